"""How far a leg is, read from outside: the lines of `steps.jsonl` as they come, and signs of life.

A leg is alive while files of its trace appear or grow. What it prints is no sign: a leg that prints
the same warning for ever makes no progress.
"""

from __future__ import annotations

import math
import os
import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from oracle.document import as_float, loads

PhaseOfLeg = Literal["starting", "rendering", "training", "done", "failed"]
RATE_SECONDS = 20.0
FOLDERS = ("", "tokens", "tensors", "snapshots", "checkpoint")


@dataclass(frozen=True, kw_only=True)
class LegState:
    """One leg at one moment. `losses` by step is shared with the tail and grows."""

    name: str
    phase: PhaseOfLeg
    step: int | None
    loss: float | None
    losses: Mapping[int, float]
    steps_per_second: float | None


OnProgress = Callable[[tuple[LegState, ...]], None]


class LegTail:
    """Follows the trace that a leg is writing."""

    def __init__(self, name: str, out: Path) -> None:
        self.name = name
        self.out = out
        self.losses: dict[int, float] = {}
        self.step: int | None = None
        self._offset = 0
        self._signature: object = None
        self._reached: deque[tuple[float, int]] = deque()  # when, which step

    def poll(self) -> bool:
        """Read what is new; return whether the leg gave a sign of life since the last call."""
        self._read_steps()
        signature = _signature(self.out)
        changed = signature != self._signature
        self._signature = signature
        return changed

    def state(self, phase: PhaseOfLeg | None = None) -> LegState:
        """Return where the leg is; `phase` when the caller knows it better than the files tell."""
        return LegState(
            name=self.name,
            phase=phase or self._phase(),
            step=self.step,
            loss=None if self.step is None else self.losses.get(self.step),
            losses=self.losses,
            steps_per_second=self._rate(),
        )

    def _phase(self) -> PhaseOfLeg:
        if self.step is not None:
            return "training"
        return "rendering" if (self.out / "tokens").is_dir() else "starting"

    def _read_steps(self) -> None:
        path = self.out / "steps.jsonl"
        try:
            with path.open("rb") as stream:
                if os.fstat(stream.fileno()).st_size < self._offset:
                    self._offset = 0  # a resumed leg cuts what it will replay
                stream.seek(self._offset)
                fresh = stream.read()
        except OSError:
            return  # not there yet
        whole = fresh[: fresh.rfind(b"\n") + 1]
        self._offset += len(whole)
        for line in whole.splitlines():
            self._read_step(line)
        self._measure()

    def _read_step(self, line: bytes) -> None:
        try:
            row: Any = loads(line)
            step, loss = int(row["step"]), as_float(row["loss"])
        except (ValueError, KeyError, TypeError):
            return  # the reader of the finished trace says what is wrong, with the line
        self.step = step
        self.losses[step] = loss

    def _measure(self) -> None:
        """Note when a step was reached. What a resumed leg had written before comes in one go."""
        now = time.monotonic()
        if self.step is None or (self._reached and self._reached[-1][1] == self.step):
            return
        self._reached.append((now, self.step))
        while len(self._reached) > 2 and now - self._reached[0][0] > RATE_SECONDS:
            self._reached.popleft()

    def _rate(self) -> float | None:
        # Of late, not since the start: the first steps of a compiled leg take long.
        if len(self._reached) < 2:
            return None
        (began, first), (ended, last) = self._reached[0], self._reached[-1]
        return (last - first) / (ended - began) if ended > began else None


def _signature(out: Path) -> tuple[tuple[str, int, int], ...]:
    """Names, sizes and times of the files of a trace."""
    found = []
    for folder in FOLDERS:
        try:
            with os.scandir(out / folder) as entries:
                for entry in entries:
                    status = entry.stat()
                    found.append((folder + entry.name, status.st_size, status.st_mtime_ns))
        except OSError:
            continue  # not there yet, or renamed between the two calls
    return tuple(sorted(found))


def largest_gap(a: Mapping[int, float], b: Mapping[int, float]) -> float | None:
    """Return the largest relative loss difference `|a - b| / max(|a|, |b|)` over common steps."""
    gaps = [relative(a[step], b[step]) for step in a.keys() & b.keys()]
    return max(gaps, default=None)


def relative(a: float, b: float) -> float:
    """Return `|a - b| / max(|a|, |b|)`; infinite when exactly one is not finite."""
    if not (math.isfinite(a) and math.isfinite(b)):
        return 0.0 if a == b or (math.isnan(a) and math.isnan(b)) else math.inf
    largest = max(abs(a), abs(b))
    return abs(a - b) / largest if largest else 0.0
