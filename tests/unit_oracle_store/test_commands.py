"""The commands of the store as a person calls them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from oracle.kept import _short
from oracle.store import keep
from tests.unit_oracle_run.command import Ended, oracle
from tests.unit_oracle_store.conftest import Kept
from tests.unit_oracle_store.made import LARGE, make_run, put, run_name


def call(kept: Kept, *argv: str) -> Ended:
    return oracle(*argv, "--out", str(kept.out))


def used_bytes(folder: Path) -> int:
    """Bytes of all files below a folder but the index, each once however many names it has."""
    files = [path for path in folder.rglob("*") if path.is_file() and not path.is_symlink()]
    status = [path.stat() for path in files if not path.name.startswith("index.sqlite")]
    return sum({(one.st_dev, one.st_ino): one.st_size for one in status}.values())


def test_an_empty_store_says_in_one_line_what_to_do(kept: Kept) -> None:
    ended = call(kept, "runs")
    assert (ended.returncode, ended.stdout.count("\n")) == (0, 1)
    assert "oracle run CONFIG" in ended.stdout
    assert not kept.out.exists(), "to look makes nothing"
    kept.add(0)
    assert "none of 1 run" in call(kept, "runs", "--verdict", "ERROR").stdout


def test_runs_are_listed_newest_first_in_columns(kept: Kept) -> None:
    kept.add(0)
    kept.add(1, name="DIVERGED", config="other-config")
    newest, oldest = call(kept, "runs").stdout.splitlines()
    assert (
        newest.split()
        == (
            f"{run_name(1)[-4:]} 2026-01-01 00:01 other-config torch/jax 4 DIVERGED "
            "torch and jax part in mask at step 3 (run 1)"
        ).split()
    )
    assert oldest.split()[:3] == [run_name(0)[-4:], "2026-01-01", "00:00"]
    assert newest.index("torch/jax") == oldest.index("torch/jax")


def test_filters_reach_the_store(kept: Kept) -> None:
    kept.add(0)
    kept.add(1, name="DIVERGED")
    found = json.loads(call(kept, "runs", "--verdict", "diverged", "--json").stdout)
    assert [run["id"] for run in found] == [run_name(1)]
    assert len(call(kept, "runs", "--limit", "1").stdout.splitlines()) == 2  # and how many more
    assert len(json.loads(call(kept, "runs", "--limit", "0", "--json").stdout)) == 2
    since = call(kept, "runs", "--since", "2026-01-01T01:01+01:00", "--json").stdout
    assert [run["id"] for run in json.loads(since)] == [run_name(1)]
    ended = call(kept, "runs", "--since", "yesterday")
    assert (ended.returncode, ended.stderr.count("\n")) == (2, 1)
    assert "--since yesterday is no date" in ended.stderr


def test_a_headline_cannot_write_to_the_terminal(kept: Kept) -> None:
    from oracle.runs import open_run
    from tests.unit_oracle_store.made import verdict

    path = make_run(kept.out, 0)
    document = verdict(0) | {"headline": "part at \x1b[2Jexample\nx"}
    put(path / "verdict.json", json.dumps(document).encode())
    kept.store.record(open_run(path))
    assert call(kept, "runs").stdout.rstrip().endswith(r"part at \x1b[2Jexample\nx")


def test_the_shown_id_is_the_shortest_end_that_no_other_has() -> None:
    ends = {"a-1cbb": "1cbb", "b-2cbb": "-2cbb", "c-x2cbb": "x2cbb", "d-0000": "0000"}
    assert _short(list(ends)) == ends


def test_removing_a_run_frees_what_is_said_and_keeps_what_others_need(kept: Kept) -> None:
    kept.add(0, large=b"a" * LARGE)
    kept.add(1, large=b"a" * LARGE)
    (kept.out / "latest").symlink_to(run_name(1))
    before = used_bytes(kept.out)
    ended = call(kept, "rm", run_name(1), "--yes")
    assert ended.returncode == 0, ended.stderr
    freed = before - used_bytes(kept.out)
    assert freed > LARGE
    assert f"removed 1 run; {freed / 2**20:,.1f} MiB freed" in ended.stdout
    assert kept.ids() == [run_name(0)]
    assert kept.store.verify(*kept.store.runs()) == []
    assert not (kept.out / run_name(1)).exists()
    assert os.readlink(kept.out / "latest") == run_name(0)
    call(kept, "rm", "latest", "--yes")
    assert kept.objects() == {}
    assert not (kept.out / "latest").is_symlink()


def test_removal_asks(kept: Kept) -> None:
    kept.add(0)
    ended = call(kept, "rm", run_name(0))  # no answer: standard input is empty
    assert ended.returncode != 0
    assert kept.ids() == [run_name(0)]


def test_a_run_that_somebody_needs_stays_unless_forced(kept: Kept) -> None:
    stored = kept.add(0)
    kept.store.pin(stored, "gate merge")
    ended = call(kept, "rm", stored.id, "--yes")
    assert (ended.returncode, kept.ids()) == (2, [stored.id])
    assert "needed by gate merge" in ended.stderr
    assert kept.store.prune(keep_last=0).runs == ()
    kept.store.unpin(stored, "somebody else")
    assert kept.store.pins(stored) == ["gate merge"]
    kept.store.unpin(stored, "gate merge")
    assert kept.store.pins(stored) == []
    kept.store.pin(stored, "gate merge")
    assert call(kept, "rm", stored.id, "--yes", "--force").returncode == 0
    assert kept.ids() == []
    assert not list((kept.out / "store" / "pins").iterdir())


def test_a_run_that_still_runs_stays_even_when_forced(kept: Kept) -> None:
    stored = kept.add(0)
    leg = subprocess.Popen([sys.executable, "-c", "input()", "nonce-jax"], stdin=subprocess.PIPE)
    try:
        path = kept.out / stored.id / "run.json"
        manifest = json.loads(path.read_text())
        manifest["legs"]["jax"]["process_id"] = leg.pid
        path.write_text(json.dumps(manifest))
        ended = call(kept, "rm", stored.id, "--yes", "--force")
        assert (ended.returncode, kept.ids()) == (2, [stored.id])
        assert f"still runs as process {leg.pid}" in ended.stderr
        assert kept.store.prune(keep_last=0).runs == ()
    finally:
        leg.communicate(b"\n")
    assert kept.store.prune(keep_last=0).runs == (stored.id,)


def test_prune_keeps_what_a_limit_keeps_and_a_dry_run_says_the_same(kept: Kept) -> None:
    for number in range(4):
        kept.add(number)
    kept.add(0, config="other")
    before = used_bytes(kept.out)
    argv = ("prune", "--keep-last", "1", "--keep-days", "1")
    dry = call(kept, *argv, "--dry-run").stdout.splitlines()
    assert used_bytes(kept.out) == before
    assert dry[:-1] == [run_name(number) for number in (2, 1, 0)]
    done = call(kept, *argv).stdout.splitlines()
    assert [*done[:-1], done[-1].replace("removed", "would remove")] == dry
    assert f"{(before - used_bytes(kept.out)) / 2**10:,.1f} KiB" in done[-1]
    assert sorted(kept.ids()) == sorted([run_name(3), run_name(0, "other")])
    days = "100000"
    assert call(kept, "prune", "--keep-days", days).stdout.startswith("removed 0 runs;")


def test_prune_collects_what_killed_processes_left(kept: Kept) -> None:
    stored = kept.add(0)
    folder = kept.out / "store"
    garbage = [
        put(folder / "objects" / ".0123.tmp", b"half"),
        put(folder / "objects" / "ab" / ("c" * 62), b"of no run"),
        put(folder / "records" / ".x.json.1234.tmp", b"half"),
        put(kept.out / ".removed-0123-tiny" / "run.json", b"{}"),
    ]
    assert "3 leftovers" in call(kept, "prune").stdout
    assert [path.exists() for path in garbage] == [False] * 4
    assert kept.store.verify(stored) == []


def test_floors_are_kept_with_their_provenance(kept: Kept) -> None:
    import sqlite3
    from contextlib import closing

    from oracle.floor import write_floor

    leg = {"code_sha256": "a" * 64}
    path = write_floor(
        kept.out / "floors",
        name="tiny",
        provenance={
            **{"config_sha256": "d" * 64, "config_name": "tiny", "precision": "float64"},
            **{"created": "2026-01-01T00:00:00+00:00", "legs": {"torch": leg}},
        },
        num_steps=4,
        rises={"torch": {"steps.loss": [[0, 1e-16]]}},
        contributions={},
    )
    keep(path, kept.notes.append)
    assert kept.notes == []
    kept.store.prune()
    (digest,) = kept.objects()
    assert kept.objects()[digest].read_bytes() == path.read_bytes()

    def rows() -> list[tuple[object, ...]]:
        with closing(sqlite3.connect(kept.index)) as connection:
            columns = "name, sha256, config_name, config_sha256, precision, num_steps, created"
            return connection.execute(f"select {columns} from floor").fetchall()

    row = (path.stem, digest, "tiny", "d" * 64, "float64", 4, "2026-01-01T00:00:00+00:00")
    assert rows() == [row]
    kept.store.reindex()
    assert rows() == [row]
    kept.index.unlink()
    kept.store.runs()
    assert rows() == [row]


@pytest.mark.parametrize("command", ["runs", "rm", "prune", "verify", "reindex"])
def test_every_command_has_examples(command: str) -> None:
    assert f"oracle {command}" in oracle(command, "--help").stdout.partition("\n")[2]
