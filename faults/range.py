"""The range on which faults are tried: a small run, its clean legs, its floor, and one leg with a
fault.

The run is the demo's, with 60 training examples, so that 20 steps see three epochs and the last,
partial batch of each. A clean leg is run once for each config and reused: comparison works on
finished traces, so a fault costs one leg.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import tomli_w

from faults.fault import ROOT, Fault, planted_root
from oracle.contract import Verdict

BASE = ROOT / "configs" / "runs" / "clinical-demo.toml"
STACKS = ("torch", "jax")
NUM_TRAIN, NUM_EVAL = 60, 12
SMALL: Mapping[str, Mapping[str, Any]] = {
    "train": {"num_steps": 20},
    "schedule": {"warmup_steps": 4},
    "eval": {"every_steps": 10, "num_examples": NUM_EVAL},
    "snapshot": {"every_steps": 0},
    "trace": {"tensors_every": 1},
}


@dataclass(frozen=True, kw_only=True)
class Tried:
    """A fault and the verdict on the run that had it."""

    fault: Fault
    verdict: Verdict

    @property
    def phase(self) -> str | None:
        """The phase of the first divergence."""
        return self.verdict.first.phase if self.verdict.first else None

    @property
    def caught(self) -> bool:
        """DIVERGED, in a phase that the catalogue expects."""
        return self.verdict.verdict == "DIVERGED" and self.phase in self.fault.expect


class Range:
    """Keeps configs, clean traces and floors in `folder`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def config(self, changes: Mapping[str, Mapping[str, Any]]) -> Path:
        """Write the small config with `changes`; equal changes give the same file."""
        config = tomllib.loads(BASE.read_text("utf-8"))
        data = config["data"]
        data["train"] = [str(self._head(BASE.parent / data["train"][0], NUM_TRAIN))]
        data["eval"] = [str(self._head(BASE.parent / data["eval"][0], NUM_EVAL))]
        data["edge"] = [str((BASE.parent / path).resolve()) for path in data["edge"]]
        for section, key in (("data", "template"), ("data", "tokenizer"), ("model", "checkpoint")):
            config[section][key] = str((BASE.parent / config[section][key]).resolve())
        for edits in (SMALL, changes):
            for section, values in edits.items():
                config[section].update(values)
        text = tomli_w.dumps(config).encode("utf-8")
        path = self.folder / hashlib.sha256(text).hexdigest()[:12] / "run.toml"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text)
        return path

    def _head(self, source: Path, num_lines: int) -> Path:
        """Copy the first lines of a data file, without a final newline."""
        target = self.folder / source.name
        if not target.exists():
            self.folder.mkdir(parents=True, exist_ok=True)
            with source.open("rb") as lines:
                target.write_bytes(b"".join(islice(lines, num_lines)).removesuffix(b"\n"))
        return target

    def leg(
        self,
        stack: str,
        config: Path,
        out: Path,
        *options: str,
        root: Path = ROOT,
        environment: Mapping[str, str] | None = None,
        cwd: Path = ROOT,
    ) -> Path:
        """Run one leg to its end; raises RuntimeError with the last line of its stderr."""
        argv = [sys.executable, "-m", f"stacks.{stack}_stack", "train", "--config", str(config)]
        argv += ["--root", str(config.parent), "--out", str(out), "--nonce", out.name, *options]
        variables = {**os.environ, "PYTHONPATH": str(root), **(environment or {})}
        done = subprocess.run(argv, env=variables, cwd=cwd, capture_output=True, check=False)
        if done.returncode != 0:
            last = done.stderr.decode("utf-8", "replace").strip().splitlines()[-1:]
            raise RuntimeError(f"{stack} leg ended with {done.returncode}: {last}")
        return out

    def clean(self, stack: str, config: Path) -> Path:
        """Return the trace of the clean leg, run once."""
        out = config.parent / f"clean-{stack}"
        if not (out / "done.json").exists():
            self.leg(stack, config, out)
        return out

    def floor(self, config: Path) -> Path:
        """Return the floor of `config`, measured once."""
        from oracle.calibrate import calibrate

        found = sorted((config.parent / "floors").glob("*.json"))
        if found:
            return found[0]
        return calibrate(
            config, stacks=STACKS, out=config.parent / "floors", on_progress=lambda line: None
        )

    def judge(self, a: Path, b: Path, config: Path) -> Verdict:
        """Compare two finished traces as `oracle run` would, with the floor of the clean code."""
        from oracle.trace import read_trace
        from oracle.verdict import judge

        tolerances = ROOT / "configs" / "tolerances"
        precision = tomllib.loads(config.read_text("utf-8"))["train"]["precision"]
        return judge(
            read_trace(a),
            read_trace(b),
            purpose="cross",
            names=STACKS,
            tolerances=tolerances / f"{precision}.toml",
            floor=self.floor(config),
            run=None,
        )

    def try_fault(self, fault: Fault) -> Tried:
        """Plant the fault, run its leg, and judge it against the other stack's clean leg."""
        config = self.config(fault.config)
        folder = config.parent / f"fault-{fault.id}"
        out = folder / "trace"
        if not (out / "done.json").exists():
            self.leg(fault.stack, config, out, root=planted_root(fault, folder / "code"))
        pair = [out if stack == fault.stack else self.clean(stack, config) for stack in STACKS]
        return Tried(fault=fault, verdict=self.judge(pair[0], pair[1], config))
