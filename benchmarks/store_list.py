"""Listing: `oracle runs` over 1,000 stored runs (goal: under 0.5 s) beside `oracle --help`.

python -m benchmarks.store_list
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

from benchmarks import legs
from benchmarks.startup import seconds_of
from oracle.runs import open_run
from oracle.store import open_store
from tests.unit_oracle_store.made import make_run

NUM_RUNS = 1000


def main() -> None:
    """Record the runs, list them alternating with the help, and write the result."""
    oracle = str(Path(sys.executable).with_name("oracle"))
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder)
        store = open_store(out)
        for number in range(NUM_RUNS):
            name = ("AGREE", "DIVERGED", "INCONCLUSIVE", "ERROR")[number % 4]
            store.record(open_run(make_run(out, number, name=name)))
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
