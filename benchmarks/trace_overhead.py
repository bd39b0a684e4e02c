"""Trace on against trace off, for both stacks: seconds per step, and whether one bit of the result
differs.

A leg without a trace has no step clock, so the time of a step is the slope, in processor seconds,
between a short and a long run of whole processes; start-up and compilation cancel. Goal: at most 3
% slower, final parameters and moments bit-identical.

    python -m benchmarks.trace_overhead
"""

from __future__ import annotations

import argparse
import json
import resource
import tempfile
from pathlib import Path
from typing import Any

from benchmarks import legs

SHORT_STEPS, LONG_STEPS = 20, 220


def config_of(folder: Path, num_steps: int) -> Path:
    """Return the demo's config with `num_steps`, without evaluation and snapshots, tensors every 20
    steps.
    """
    changes: dict[str, dict[str, Any]] = {
        "data": {"pad_multiple": 256},
        "train": {"num_steps": num_steps},
        "schedule": {"kind": "constant"},
        "eval": {"every_steps": 0},
        "snapshot": {"every_steps": 0},
    }
    return legs.derive(legs.DEMO, folder, changes)


def timed(stack: str, config: Path, out: Path, *options: str) -> float:
    """Return the processor seconds of a whole leg: it has one thread, and waits for nothing."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    legs.run_leg(stack, config, out, *options)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def slopes(stack: str, folder: Path, repeats: int) -> dict[str, Any]:
    """Alternate trace on and off; return milliseconds a step of both, their ratio, and equality of
    the results.
    """
    short, long = config_of(folder / "short", SHORT_STEPS), config_of(folder / "long", LONG_STEPS)
    measured: dict[str, list[float]] = {"on": [], "off": []}
    final: set[str] = set()
    for repeat in range(repeats):
        for name, options in (("on", ()), ("off", ("--no-trace",))):
            out = folder / f"{name}{repeat}"
            seconds = timed(stack, long, out / "long", *options)
            seconds -= timed(stack, short, out / "short", *options)
            measured[name].append(1000 * seconds / (LONG_STEPS - SHORT_STEPS))
            done = json.loads((out / "long" / "done.json").read_text("utf-8"))
            final.add(json.dumps(done["final"], sort_keys=True))
    on, off = legs.summary(measured["on"]), legs.summary(measured["off"])
    return {
        "on_ms_per_step": on,
        "off_ms_per_step": off,
        "ratio": on["median"] / off["median"],
        "bit_identical": len(final) == 1,
    }


def main() -> None:
    """Measure both stacks and write the result."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=3)
    repeats = parser.parse_args().repeats
    result: dict[str, Any] = {"what": "trace on / trace off", "goal": "ratio <= 1.03, same bits"}
    for stack in ("torch", "jax"):
        with tempfile.TemporaryDirectory() as name:
            result[stack] = slopes(stack, Path(name), repeats)
    legs.write_result("trace_overhead", result)


if __name__ == "__main__":
    main()
