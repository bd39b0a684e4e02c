"""The range on which faults are tried: a small run, its clean legs, its floor, and one leg with a
fault.

The run is the demo's, with 28 training examples of at most 128 tokens, so that 10 steps see two and
a half epochs, the last, partial batch of each, and one shape of batch. A clean leg is run once for
each config and reused: comparison works on finished traces, so a fault costs one leg. Several
processes may share a range: what is made once is made under a lock.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any

import tomli_w

from faults.fault import ROOT, Fault, planted_root
from oracle.config import load_config
from oracle.contract import Divergence, Purpose, Verdict

BASE = ROOT / "configs" / "runs" / "clinical-demo.toml"
STACKS = ("torch", "jax")
NUM_EXAMPLES = {"train": 28, "eval": 10, "edge": 60}
DATA = ROOT / "data" / "clinical"
SMALL: Mapping[str, Any] = {
    "data": {
        "train": [str(DATA / "sample" / "train.jsonl")],
        "eval": [str(DATA / "sample" / "heldout.jsonl")],
        "max_length": 128,
        "pad_multiple": 128,
    },
    "train": {"num_steps": 10},
    "schedule": {"warmup_steps": 3},
    "eval": {"every_steps": 5, "num_examples": NUM_EXAMPLES["eval"]},
    "snapshot": {"every_steps": 0},
    "trace": {"tensors_every": 1},
}
PATHS = {"data": ("train", "eval", "edge", "template", "tokenizer"), "model": ("checkpoint",)}


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

    @property
    def others(self) -> tuple[Divergence, ...]:
        """Divergences in other phases than the first that the verdict counts as independent."""
        return tuple(one for one in self.verdict.divergences if one.phase != self.phase)


class Range:
    """Keeps configs, clean traces and floors in `folder`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder.resolve()

    def config(self, changes: Mapping[str, Any]) -> Path:
        """Write the small config with `changes`; equal changes give the same file.

        Paths in the changes are relative to the repository. Of a data file the first lines are
        taken, unless it lies in this range.
        """
        config = load_config(BASE).absolute_values()
        for edits in (SMALL, changes):
            for section, values in edits.items():
                if not isinstance(values, Mapping):
                    config[section] = values
                    continue
                for key, value in values.items():
                    is_path = key in PATHS.get(section, ())
                    config[section][key] = _resolved(value) if is_path else value
        data = config["data"]
        for split, num_lines in NUM_EXAMPLES.items():
            data[split] = [str(self._head(Path(path), num_lines)) for path in data[split]]
        text = tomli_w.dumps(config).encode("utf-8")
        path = self.folder / hashlib.sha256(text).hexdigest()[:12] / "run.toml"
        if not path.exists():
            path.parent.mkdir(parents=True, exist_ok=True)
            _write(path, text)
        return path

    def _head(self, source: Path, num_lines: int) -> Path:
        """Copy the first lines of a data file, without a final newline."""
        if source.is_relative_to(self.folder):
            return source
        target = self.folder / f"{num_lines}-{source.name}"
        if not target.exists():
            self.folder.mkdir(parents=True, exist_ok=True)
            with source.open("rb") as lines:
                _write(target, b"".join(islice(lines, num_lines)).removesuffix(b"\n"))
        return target

    @property
    def environment(self) -> Mapping[str, str]:
        """Variables of every leg: what JAX compiled once is not compiled again (the same bits)."""
        return {
            "JAX_COMPILATION_CACHE_DIR": str(self.folder / "jax-cache"),
            "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
            "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "-1",
        }

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
        if not (out / "done.json").exists() and "--resume" not in options:
            shutil.rmtree(out, ignore_errors=True)  # what an interrupted try left
        argv = [sys.executable, "-m", f"stacks.{stack}_stack", "train", "--config", str(config)]
        argv += ["--root", str(config.parent), "--out", str(out), "--nonce", out.name, *options]
        variables = os.environ | self.environment | {"PYTHONPATH": str(root)}
        variables |= environment or {}
        # -P and PYTHONPATH: the planted package is imported, not one that lies in `cwd`.
        argv.insert(1, "-P")
        done = subprocess.run(argv, env=variables, cwd=cwd, capture_output=True, check=False)
        if done.returncode != 0:
            last = done.stderr.decode("utf-8", "replace").strip().splitlines()[-1:]
            raise RuntimeError(f"{stack} leg ended with {done.returncode}: {last}")
        return out

    @contextmanager
    def lock(self, name: str) -> Iterator[None]:
        """Hold a lock of this range: what is made once is made by one process."""
        self.folder.mkdir(parents=True, exist_ok=True)
        with (self.folder / f"{name}.lock").open("w") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield

    def clean(self, stack: str, config: Path) -> Path:
        """Return the trace of the clean leg, run once."""
        out = config.parent / f"clean-{stack}"
        with self.lock(f"{config.parent.name}-{stack}"):
            if not (out / "done.json").exists():
                self.leg(stack, config, out)
        return out

    def floor(self, config: Path) -> Path:
        """Return the floor of `config`, measured once."""
        from oracle.calibrate import calibrate
        from oracle.stacks import load_stacks

        folder = config.parent / "floors"
        with self.lock(f"{config.parent.name}-floor"):
            found = sorted(folder.glob("*.json"))
            if found:
                return found[0]
            known = load_stacks()
            stacks = [
                replace(known[name], env={**known[name].env, **self.environment}) for name in STACKS
            ]
            return calibrate(
                config, stacks=stacks, out=config.parent, on_progress=lambda line: None
            )

    def judge(
        self,
        a: Path,
        b: Path,
        *,
        floor: Path | None,
        purpose: Purpose = "cross",
        names: tuple[str, str] = STACKS,
    ) -> Verdict:
        """Compare two finished traces as `oracle run` would."""
        from oracle.trace import read_trace
        from oracle.verdict import judge

        return judge(
            read_trace(a),
            read_trace(b),
            purpose=purpose,
            names=names,
            tolerances=None,
            floor=floor,
            run=None,
        )

    def try_fault(self, fault: Fault) -> Tried:
        """Plant the fault, run its leg, and judge it against the other stack's clean leg.

        The floor is that of the clean code. It is measured for the base config alone: under other
        settings the exact phases and step 0 are judged, as in any run without a floor.
        """
        config = self.config(fault.config)
        other = next(stack for stack in STACKS if stack != fault.stack)
        clean = self.clean(other, config)
        floor = None if fault.config else self.floor(config)
        out = config.parent / f"fault-{fault.id}"
        if not (out / "done.json").exists():
            with tempfile.TemporaryDirectory(dir=config.parent) as code:
                root = planted_root(fault, Path(code) / "root")
                self.leg(fault.stack, config, out, root=root)
        pair = [out if stack == fault.stack else clean for stack in STACKS]
        return Tried(fault=fault, verdict=self.judge(pair[0], pair[1], floor=floor))


def _resolved(value: Any) -> Any:
    if isinstance(value, list):
        return [_resolved(one) for one in value]
    return str((ROOT / value).resolve())


def _write(path: Path, content: bytes) -> None:
    """Write a file whole: another process may look for it."""
    with tempfile.NamedTemporaryFile(dir=path.parent, delete=False) as file:
        file.write(content)
    Path(file.name).rename(path)
