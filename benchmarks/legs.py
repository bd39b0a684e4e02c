"""Runs legs for the benchmarks and reads how long their steps took.

Every benchmark compares within one run: the contestants alternate, and medians of repeats are
reported, because machines are shared and noisy. Times are of steps, taken from `wall_seconds` of
the trace or from the contestant's own clock; start-up, imports and compilation are left out on both
sides.
"""

from __future__ import annotations

import json
import os
import platform
import statistics
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import tomli_w

from oracle.config import load_config

ROOT = Path(__file__).resolve().parent.parent
DEMO = ROOT / "configs" / "runs" / "clinical-demo.toml"
RESULTS = ROOT / "benchmarks" / "results"


def derive(base: Path, folder: Path, changes: Mapping[str, Mapping[str, Any]]) -> Path:
    """Write `base` with some keys changed and absolute paths to `folder/run.toml`; returns its
    path.
    """
    config = load_config(base).absolute_values()
    for section, values in changes.items():
        config[section].update(values)
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "run.toml"
    path.write_bytes(tomli_w.dumps(config).encode("utf-8"))
    return path


def start_leg(stack: str, config: Path, out: Path, *options: str) -> subprocess.Popen[bytes]:
    """Start `stacks.{stack}_stack train`; its output goes to `out.log`."""
    argv = [sys.executable, "-m", f"stacks.{stack}_stack", "train", "--config", str(config)]
    argv += ["--root", str(config.parent), "--out", str(out), "--nonce", "bench", *options]
    out.parent.mkdir(parents=True, exist_ok=True)
    with out.with_suffix(".log").open("wb") as log:
        environment = {**os.environ, "PYTHONPATH": str(ROOT)}
        return subprocess.Popen(argv, env=environment, stdout=log, stderr=log)


def run_leg(stack: str, config: Path, out: Path, *options: str) -> Path:
    """Run a leg to its end; raises RuntimeError with the log's last line when it fails."""
    process = start_leg(stack, config, out, *options)
    if process.wait() != 0:
        log = out.with_suffix(".log").read_text("utf-8", "replace").strip().splitlines()
        raise RuntimeError(
            f"{stack} leg failed with {process.returncode}: {log[-1] if log else ''}"
        )
    return out


def steps(trace: Path) -> list[dict[str, Any]]:
    """Return the step lines of a trace."""
    return [json.loads(line) for line in (trace / "steps.jsonl").read_text("utf-8").splitlines()]


def seconds_between(trace: Path, first: int) -> float:
    """Return the seconds from the end of step `first` to the end of the last step."""
    rows = steps(trace)
    return float(rows[-1]["wall_seconds"] - rows[first]["wall_seconds"])


def machine() -> dict[str, Any]:
    """Return what the figures depend on besides the code."""
    return {
        "processor": platform.processor() or platform.machine(),
        "cores": len(os.sched_getaffinity(0)),
        "python": platform.python_version(),
    }


def summary(values: Sequence[float]) -> dict[str, float]:
    """Return median and extremes of repeated measurements."""
    return {"median": statistics.median(values), "min": min(values), "max": max(values)}


def write_result(name: str, result: Mapping[str, Any]) -> None:
    """Write `benchmarks/results/{name}.json` and print it."""
    RESULTS.mkdir(exist_ok=True)
    text = json.dumps({"benchmark": name, "machine": machine(), **result}, indent=1)
    (RESULTS / f"{name}.json").write_text(text + "\n", "utf-8")
    print(text)
