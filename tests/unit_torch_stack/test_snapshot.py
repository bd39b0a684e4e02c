"""Snapshots are whole, few, and of their run (S-23)."""

from pathlib import Path

import pytest
import torch
from safetensors import safe_open

from stacks.torch_stack.snapshot import Snapshot, read_snapshots, write_snapshot

PARAMS = {"a": torch.arange(6.0).view(2, 3), "b": torch.ones(2)}
TRAINABLE = {"a": PARAMS["a"]}


def snapshot(n: int) -> Snapshot:
    m, v = {"a": PARAMS["a"] + n}, {"a": PARAMS["a"] * n}
    return Snapshot(step=n, epoch=2, row=n, params=PARAMS, m=m, v=v)


def read(folder: Path, config: str = "c") -> list[Snapshot]:
    return list(read_snapshots(folder, config, PARAMS, TRAINABLE))


def test_names_and_metadata_are_those_of_the_clause(tmp_path: Path) -> None:
    write_snapshot(tmp_path / "s", snapshot(12), "c")
    with safe_open(tmp_path / "s/00000012.safetensors", framework="pt") as file:
        assert sorted(file.keys()) == ["m/a", "param/a", "param/b", "v/a"]
        assert file.metadata() == {
            "step": "12", "epoch": "2", "row": "12", "config_sha256": "c", "contract": "1"
        }  # fmt: skip
        assert torch.equal(file.get_tensor("v/a"), PARAMS["a"] * 12)


def test_what_is_read_is_what_was_written_newest_first(tmp_path: Path) -> None:
    for n in (3, 6, 9):
        write_snapshot(tmp_path, snapshot(n), "c")
    found = read(tmp_path)
    assert [one.step for one in found] == [9, 6]  # two are kept
    assert (found[0].epoch, found[0].row) == (2, 9)
    assert torch.equal(found[1].m["a"], PARAMS["a"] + 6)
    assert sorted(one.name for one in tmp_path.iterdir()) == [
        "00000006.safetensors", "00000009.safetensors"
    ]  # fmt: skip


def test_another_run_and_no_folder_have_none(tmp_path: Path) -> None:
    write_snapshot(tmp_path, snapshot(3), "c")
    assert read(tmp_path, "other") == []
    assert read(tmp_path / "gone") == []


@pytest.mark.parametrize("cut", [1, 100, 10_000])
def test_a_snapshot_that_is_not_whole_is_passed_over(tmp_path: Path, cut: int) -> None:
    for n in (3, 6):
        write_snapshot(tmp_path, snapshot(n), "c")
    path = tmp_path / "00000006.safetensors"
    path.write_bytes(path.read_bytes()[:-cut])
    (tmp_path / "00000007.tmp").write_bytes(b"x")
    assert [one.step for one in read(tmp_path)] == [3]


def test_another_layout_is_passed_over(tmp_path: Path) -> None:
    write_snapshot(tmp_path, snapshot(3), "c")
    wide = {name: one.double() for name, one in PARAMS.items()}
    assert list(read_snapshots(tmp_path, "c", wide, TRAINABLE)) == []
    assert list(read_snapshots(tmp_path, "c", PARAMS, PARAMS)) == []
