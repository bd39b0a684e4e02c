"""The JAX leg, traced, against a bare jitted Optax loop on the same work. Goal: ratio (bare seconds
/ leg seconds) >= 0.95.

python -m benchmarks.jax_leg
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from benchmarks import legs

NUM_STEPS, WARM_STEPS = 200, 100
CHANGES: dict[str, dict[str, Any]] = {
    "data": {"pad_multiple": 256},  # one shape: no compilation after the first step on either side
    "train": {"precision": "float32", "num_steps": NUM_STEPS},
    "eval": {"every_steps": 0},
    "snapshot": {"every_steps": 0},
    "trace": {"tensors_every": 20},
}


def bare_seconds(trace: Path, checkpoint: Path) -> float:
    """Run the bare loop in a process of its own on the rows of `trace`; returns seconds after the
    warm-up steps.
    """
    argv = [sys.executable, "-m", "benchmarks.optax_loop", str(trace), str(checkpoint)]
    argv += [str(WARM_STEPS)]
    environment = {**os.environ, "JAX_PLATFORMS": "cpu"}
    output = subprocess.run(
        argv, cwd=legs.ROOT, env=environment, check=True, capture_output=True, text=True
    ).stdout
    return float(json.loads(output.strip().splitlines()[-1])["seconds"])


def main() -> None:
    """Alternate the two contestants and write the ratio of their medians."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=5)
    repeats = parser.parse_args().repeats
    ours: list[float] = []
    theirs: list[float] = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        config = legs.derive(legs.DEMO, folder, CHANGES)
        checkpoint = legs.ROOT / "data" / "checkpoints" / "clinical-tiny"
        for repeat in range(repeats):
            trace = legs.run_leg("jax", config, folder / f"trace{repeat}")
            ours.append(legs.seconds_between(trace, WARM_STEPS - 1))
            theirs.append(bare_seconds(trace, checkpoint))
    ours_median, theirs_median = legs.summary(ours)["median"], legs.summary(theirs)["median"]
    legs.write_result(
        "jax_leg",
        {
            "what": "seconds of a bare jitted Optax loop / seconds of the JAX leg traced",
            "goal": "ratio >= 0.95",
            "num_steps": NUM_STEPS - WARM_STEPS,
            "leg_seconds": legs.summary(ours),
            "bare_seconds": legs.summary(theirs),
            "ratio": theirs_median / ours_median,
        },
    )


if __name__ == "__main__":
    main()
