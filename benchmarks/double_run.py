"""The double run against its two legs run one after the other, each with the same threads. Goal:
ratio at most 1.05.

python -m benchmarks.double_run
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from benchmarks import legs


def main() -> None:
    """Alternate `oracle run` (legs, comparison, report) and the two legs in sequence on the demo's
    config.
    """
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=3)
    repeats = parser.parse_args().repeats
    double: list[float] = []
    sequence: list[float] = []
    oracle = str(Path(sys.executable).with_name("oracle"))
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        config = legs.derive(legs.DEMO, folder, {})
        for repeat in range(repeats):
            began = time.perf_counter()
            argv = [oracle, "run", str(config), "--floor", "none", "--out", str(folder / "runs")]
            code = subprocess.run(argv, capture_output=True, check=False).returncode
            if code not in (0, 3):  # without a floor the numeric phases are not judged
                raise RuntimeError(f"oracle run ended with {code}")
            double.append(time.perf_counter() - began)
            began = time.perf_counter()
            for stack in ("torch", "jax"):
                legs.run_leg(stack, config, folder / f"{stack}{repeat}")
            sequence.append(time.perf_counter() - began)
    ours, theirs = legs.summary(double), legs.summary(sequence)
    legs.write_result(
        "double_run",
        {
            "what": "seconds of oracle run / seconds of both legs one after the other",
            "goal": "ratio <= 1.05",
            "double_seconds": ours,
            "sequence_seconds": theirs,
            "ratio": ours["median"] / theirs["median"],
        },
    )


if __name__ == "__main__":
    main()
