"""A traced leg against a bare contestant on the same rows: they alternate, medians decide."""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks import legs

CHECKPOINT = legs.ROOT / "data" / "checkpoints" / "clinical-tiny"


@dataclass(frozen=True, kw_only=True)
class Duel:
    """One leg and its contestant; the first `warm_steps` of `num_steps` are not timed.

    `contestant` is a module that takes TRACE CHECKPOINT WARM_STEPS and prints its seconds as JSON.
    """

    name: str
    stack: str
    contestant: str
    environment: Mapping[str, str]
    num_steps: int
    warm_steps: int
    changes: Mapping[str, Mapping[str, Any]]
    what: str
    goal: str

    def contestant_seconds(self, trace: Path) -> float:
        """Run the contestant in a process of its own on the rows of `trace`; returns seconds."""
        argv = [sys.executable, "-m", self.contestant, str(trace), str(CHECKPOINT)]
        output = subprocess.run(
            [*argv, str(self.warm_steps)],
            cwd=legs.ROOT,
            env={**os.environ, **self.environment},
            check=True,
            capture_output=True,
            text=True,
        ).stdout
        return float(json.loads(output.strip().splitlines()[-1])["seconds"])

    def main(self) -> None:
        """Alternate the two and write the ratio of their medians."""
        parser = argparse.ArgumentParser(description=self.what)
        parser.add_argument("--repeats", type=int, default=5)
        ours: list[float] = []
        theirs: list[float] = []
        repeats = parser.parse_args().repeats
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            config = legs.derive(legs.DEMO, folder, self.changes)
            for repeat in range(repeats):
                trace = legs.run_leg(self.stack, config, folder / f"trace{repeat}")
                ours.append(legs.seconds_between(trace, self.warm_steps - 1))
                theirs.append(self.contestant_seconds(trace))
        leg, contestant = legs.summary(ours), legs.summary(theirs)
        legs.write_result(
            self.name,
            {
                "what": self.what,
                "goal": self.goal,
                "num_steps": self.num_steps - self.warm_steps,
                "leg_seconds": leg,
                "contestant_seconds": contestant,
                "ratio": contestant["median"] / leg["median"],
            },
        )
