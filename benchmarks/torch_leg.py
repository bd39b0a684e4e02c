"""The PyTorch leg, traced, against `transformers.Trainer`, untraced, on the same work: the
yardstick is what people use.

Both train the demo's checkpoint in float32 with fused attention on one thread, on the same rows in
the same order padded to the same lengths, with accumulation, clipping, AdamW and the same schedule.
The Trainer gets ids and labels that are already rendered, so that its tokenisation costs nothing.
Goal: ratio (Trainer's seconds / leg's seconds) at least 1.

    python -m benchmarks.torch_leg
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from benchmarks import legs

NUM_STEPS, WARM_STEPS = 120, 20
CHANGES: dict[str, dict[str, Any]] = {
    "train": {"precision": "float32", "num_steps": NUM_STEPS},
    "model": {"attention": "fused"},
    "eval": {"every_steps": 0},
    "snapshot": {"every_steps": 0},
    "trace": {"tensors_every": 20},
}


def trainer_seconds(trace: Path, checkpoint: Path) -> float:
    """Run the Trainer in a process of its own on the rows of `trace`; returns the seconds after the
    warm-up steps.
    """
    argv = [sys.executable, "-m", "benchmarks.trainer", str(trace), str(checkpoint)]
    argv += [str(WARM_STEPS)]
    output = subprocess.run(argv, cwd=legs.ROOT, check=True, capture_output=True, text=True).stdout
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
            trace = legs.run_leg("torch", config, folder / f"trace{repeat}")
            ours.append(legs.seconds_between(trace, WARM_STEPS - 1))
            theirs.append(trainer_seconds(trace, checkpoint))
    ours_median, theirs_median = legs.summary(ours)["median"], legs.summary(theirs)["median"]
    legs.write_result(
        "torch_leg",
        {
            "what": "seconds of transformers.Trainer untraced / seconds of the PyTorch leg traced",
            "goal": "ratio >= 1",
            "num_steps": NUM_STEPS - WARM_STEPS,
            "leg_seconds": legs.summary(ours),
            "trainer_seconds": legs.summary(theirs),
            "ratio": theirs_median / ours_median,
        },
    )


if __name__ == "__main__":
    main()
