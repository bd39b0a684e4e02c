"""Several processes at once, some of them killed: what is listed is whole, and nothing is lost."""

from __future__ import annotations

import json
import random
import subprocess
import sys
import time
from pathlib import Path

from oracle.store import StoredRun
from tests.unit_oracle_store.conftest import Kept
from tests.unit_oracle_store.made import make_run, run_name
from tests.unit_oracle_store.test_damage import contents

ROOT = Path(__file__).resolve().parents[2]
NUM_WRITERS = 4
NUM_OWN = 3  # runs that one writer alone records
SECONDS = 3.0  # within which each writer is killed


def started(module: str, *arguments: object) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", module, *map(str, arguments)],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def writers(kept: Kept, seed: int) -> list[subprocess.Popen[str]]:
    ranges = [(4 + k * NUM_OWN, 4 + (k + 1) * NUM_OWN) for k in range(NUM_WRITERS)]
    module = "tests.unit_oracle_store.writer"
    found = [started(module, kept.out, f"{seed}{first}", first, last) for first, last in ranges]
    for process in found:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n", process.communicate()[1]
    return found


def assert_whole(kept: Kept) -> list[StoredRun]:
    """Every listed run is as it was recorded, and its row says what its verdict says."""
    listed = list(kept.store.runs())
    for run in listed:
        document = json.loads(kept.store.verdict(run))
        assert (document["run"], document["verdict"]) == (run.id, run.verdict)
    objects = str(kept.out / "store")
    altered = [one for one in kept.store.verify(*listed) if one.file.startswith(objects)]
    assert altered == []
    return listed


def test_writers_that_are_killed_leave_whole_runs_and_a_store_that_works(kept: Kept) -> None:
    seed = 20260101
    dice = random.Random(seed)
    for number in range(4 + NUM_WRITERS * NUM_OWN):
        make_run(kept.out, number)
    for again in range(2):
        processes = writers(kept, seed + again)
        ends = [time.monotonic() + dice.uniform(0.0, SECONDS) for _ in processes]
        try:
            for process, end in sorted(zip(processes, ends, strict=True), key=lambda pair: pair[1]):
                while time.monotonic() < end:
                    kept.store.prune()  # garbage goes while the others write
                    assert_listed_whole_or_changed(kept)
                assert process.poll() is None, process.communicate()[1]
                process.kill()
                process.wait()
        finally:
            for process in processes:
                process.kill()
                process.communicate()
        assert_whole(kept)
    before = contents(kept)
    assert kept.store.reindex() == []
    listed = assert_whole(kept)
    # Reindexing records what the killed ones had not; what was listed is as it was.
    assert {row[:2] for row in before} <= {row[:2] for row in contents(kept)}
    assert len(listed) == 4 + NUM_WRITERS * NUM_OWN
    for run in listed:
        kept.store.record(kept.store.directory(run))
    kept.store.prune()
    named = {path.name for path in kept.objects().values()}
    assert len(named) == len(kept.objects())
    assert not list((kept.out / "store").rglob("*.tmp"))
    assert_whole(kept)


def assert_listed_whole_or_changed(kept: Kept) -> None:
    """What is listed while others write can be read, unless it was recorded again meanwhile."""
    for run in kept.store.runs()[:2]:
        now = kept.store.find(run.id)
        document = json.loads(kept.store.verdict(now))
        assert document["run"] == run.id


def test_processes_that_end_well_lose_nothing(kept: Kept) -> None:
    """Four processes make the store at once and record distinct runs and one and the same."""
    for number in range(5):
        make_run(kept.out, number)
    code = (
        "import sys; from pathlib import Path; from oracle.store import open_store;"
        "from oracle.runs import open_run; out = Path(sys.argv[1]);"
        "[open_store(out).record(open_run(out / name)) for name in sys.argv[2:]]"
    )
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", code, str(kept.out), run_name(0), run_name(number)],
            cwd=ROOT,
            stderr=subprocess.PIPE,
            text=True,
        )
        for number in range(1, 5)
    ]
    assert [process.communicate()[1] for process in processes] == [""] * 4
    assert sorted(kept.ids()) == sorted(run_name(number) for number in range(5))
    assert kept.store.verify(*kept.store.runs()) == []
    assert len(kept.records()) == 5
