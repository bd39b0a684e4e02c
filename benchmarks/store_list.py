"""Listing: `oracle runs` over 1,000 stored runs (goal: under 0.5 s) beside `oracle --help`.

python -m benchmarks.store_list
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path
from unittest import mock

from benchmarks import legs
from benchmarks.startup import seconds_of
from oracle.store import open_store
from tests.unit_oracle_store.made import make_run

NUM_RUNS = 1000
NAMES = ("AGREE", "DIVERGED", "INCONCLUSIVE", "ERROR")


def fill(out: Path) -> None:
    """Record the runs, small ones that differ, without waiting for the disk."""
    for number in range(NUM_RUNS):
        make_run(out, number, name=NAMES[number % len(NAMES)])
    with (
        mock.patch("os.fsync"),
        mock.patch("oracle.store.database.PRAGMAS", ("synchronous = off",)),
    ):
        open_store(out).reindex()


def main() -> None:
    """List the runs alternating with the help, and write the result."""
    oracle = str(Path(sys.executable).with_name("oracle"))
    with tempfile.TemporaryDirectory() as folder:
        fill(Path(folder))
        argv = [oracle, "runs", "--out", folder, "--limit", "0"]
        listed = subprocess.run(argv, check=True, capture_output=True, text=True).stdout
        assert listed.count("\n") == NUM_RUNS, f"{listed.count(chr(10))} of {NUM_RUNS} are listed"
        all_runs, diverged, bare = [], [], []
        for _ in range(21):
            all_runs.append(seconds_of(argv))
            diverged.append(seconds_of([*argv, "--verdict", "DIVERGED"]))
            bare.append(seconds_of([oracle, "--help"]))
    legs.write_result(
        "store_list",
        {
            "what": f"oracle runs over {NUM_RUNS:,} stored runs",
            "goal": "< 0.5 s",
            "all_seconds": legs.summary(all_runs),
            "one_verdict_seconds": legs.summary(diverged),
            "help_seconds": legs.summary(bare),
        },
    )


if __name__ == "__main__":
    main()
