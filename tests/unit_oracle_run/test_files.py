"""Files that are written whole or not at all."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from oracle.files import write_atomic

from .command import oracle
from .tiny import TinyRun


def full_disk(handle: int) -> None:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_a_full_disk_is_told_with_the_path_and_leaves_the_old_file_and_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "verdict.json"
    write_atomic(path, b"old")
    monkeypatch.setattr(os, "fsync", full_disk)
    with pytest.raises(OSError, match=r"No space left on device: .*/verdict\.json"):
        write_atomic(path, b"new")
    assert [entry.name for entry in tmp_path.iterdir()] == ["verdict.json"]
    assert path.read_bytes() == b"old"


def test_a_command_on_a_full_disk_ends_with_one_sentence(
    tiny: TinyRun, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "fsync", full_disk)
    ended = oracle("run", str(tiny.config), "--out", str(tmp_path / "runs"))
    assert ended.returncode == 2
    assert ended.stderr.startswith(f"oracle: No space left on device {tmp_path}/runs/")
    assert ended.stderr.count("\n") == 1
