"""Float64, small model, 2,000 steps: both stacks against the floor, token streams identical.

Goals: every loss and gradient norm within 10 times the floor of its step; the floor under 1e-10.

    python -m benchmarks.long_float64
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import legs
from oracle.floor import read_floor

CONFIG = legs.ROOT / "configs" / "runs" / "clinical-long.toml"


def oracle(*arguments: str) -> int:
    """Run an oracle command with its progress shown; returns its exit code."""
    command = str(Path(sys.executable).with_name("oracle"))
    return subprocess.run([command, *arguments], cwd=legs.ROOT, check=False).returncode


def differences(run: Path, field: str) -> np.ndarray:
    """Return the relative difference of `field` at each step, shape (N,)."""
    a, b = ([row[field] for row in legs.steps(run / leg)] for leg in ("torch", "jax"))
    ours, theirs = np.asarray(a), np.asarray(b)
    difference: np.ndarray = np.abs(ours - theirs) / np.maximum(np.abs(ours), np.abs(theirs))
    return difference


def main() -> None:
    """Calibrate, run, and write what the two stacks and the floor did."""
    argparse.ArgumentParser(description=__doc__).parse_args()
    out = legs.ROOT / "runs"
    if oracle("calibrate", str(CONFIG)) != 0:
        raise RuntimeError("calibration failed")
    known = set(out.glob("clinical-long-*"))
    code = oracle("run", str(CONFIG))
    (run,) = set(out.glob("clinical-long-*")) - known
    verdict = json.loads((run / "verdict.json").read_text("utf-8"))
    floor = read_floor(Path(verdict["floor"]["file"]))
    result: dict[str, Any] = {
        "what": "2,000 steps in float64: two stacks against the measured floor",
        "goal": "loss and gradient norm within 10 x floor, floor under 1e-10",
        "exit_code": code,
        "verdict": verdict["verdict"],
    }
    for field in ("loss", "grad_norm"):
        found = differences(run, field)
        rise = floor.at(f"steps.{field}", np.arange(len(found)))
        noise = np.maximum(rise, 8 * np.finfo(np.float64).eps)  # the floor is at least 8 units
        result[field] = {
            "floor": float(rise[-1]),
            "largest_share_of_floor": float((found / noise).max()),
            "mean_relative_difference": float(found.mean()),
            "max_relative_difference": float(found.max()),
        }
    result["phases"] = {p["phase"]: p["agreement"] for p in verdict["phases"]}
    legs.write_result("long_float64", result)


if __name__ == "__main__":
    main()
