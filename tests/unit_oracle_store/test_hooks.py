"""What `oracle run` leaves in the store, and what it says when it cannot."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from oracle.errors import OracleError
from oracle.runs import open_run
from oracle.store import open_store
from tests.unit_oracle_gate.case import NUM_STEPS, Case
from tests.unit_oracle_run.command import Ended, oracle
from tests.unit_oracle_run.tiny import TinyRun, stacks_file


def run(tmp_path: Path) -> Ended:
    tiny = TinyRun(tmp_path / "inputs")
    stacks = stacks_file(tmp_path, torch="good", jax="good")
    out = str(tmp_path / "runs")
    return oracle("run", str(tiny.config), "--stacks-file", str(stacks), "--out", out)


def test_a_run_is_listed_with_the_verdict_that_was_printed(tmp_path: Path) -> None:
    ended = run(tmp_path)
    (listed,) = open_store(tmp_path / "runs").runs()
    assert ended.stdout.startswith(listed.verdict)
    assert (tmp_path / "runs" / listed.id / "verdict.json").exists()
    assert open_store(tmp_path / "runs").verify(listed) == []


def test_a_verdict_that_cannot_be_recorded_is_printed_all_the_same(tmp_path: Path) -> None:
    expected = run(tmp_path)
    shutil.rmtree(tmp_path)
    (tmp_path / "runs").mkdir(parents=True)
    (tmp_path / "runs" / "store").write_text("in the way")  # holds for root, too
    ended = run(tmp_path)
    assert ended.returncode == expected.returncode
    assert ended.stdout.partition("\n")[0] == expected.stdout.partition("\n")[0]
    assert "was not recorded in the store" in ended.stderr
    (tmp_path / "runs" / "store").unlink()
    assert oracle("reindex", "--out", str(tmp_path / "runs")).returncode == 0
    assert len(open_store(tmp_path / "runs").runs()) == 1


def test_traces_are_read_from_the_store_when_the_directory_is_gone(tmp_path: Path) -> None:
    case = Case(tmp_path)
    path, store = case.run(), open_store(case.out)
    stored = store.record(open_run(path))
    shown = oracle("show", path.name, "--step", "2", "--out", str(case.out))
    shutil.rmtree(path)
    assert oracle("show", path.name, "--step", "2", "--out", str(case.out)) == shown
    assert oracle("report", path.name, "--format", "html", "--out", str(case.out)).returncode == 0
    trace = store.open_trace(stored, "jax")
    assert (trace.steps.height, trace.header["provenance"]["stack"]) == (NUM_STEPS, "jax")
    with pytest.raises(OracleError, match="no leg 'mine'; it has torch, jax"):
        store.open_trace(stored, "mine")


def test_listing_imports_nothing_that_is_slow(tmp_path: Path) -> None:
    code = (
        "import sys; from pathlib import Path; from oracle.store import open_store;"
        "open_store(Path(sys.argv[1])).runs(); print(*sys.modules)"
    )
    argv = [sys.executable, "-c", code, str(tmp_path)]
    done = subprocess.run(argv, capture_output=True, text=True, check=True)
    modules = set(done.stdout.split())
    assert "sqlalchemy" in modules
    assert modules.isdisjoint({"polars", "numpy", "jsonschema", "alembic", "rich", "jinja2"})
