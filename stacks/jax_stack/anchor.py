"""Anchored runs: a leader writes its state, a follower goes on from it (S-30).

n  number of updates made; an anchor is due after every multiple of K of them, and after the last
"""

import json
import os
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np

from .errors import BadInput, Failed
from .leg import Leg, place_saved
from .model import parameter_shapes
from .numerics import SetHash
from .runtime import StopSignal
from .snapshot import SavedState, open_checked, tensors_of, write_state
from .trace import to_json, whole_lines, write_whole

POLL_SECONDS = 0.05


@dataclass(frozen=True, kw_only=True)
class Leader:
    """Writes its state where an anchor is due."""

    every: int  # updates
    role: str = "leader"

    def settle(self, leg: Leg, stop: StopSignal) -> bool:
        """Writes the anchor of the leg's number of updates, if one is due."""
        if is_due(leg, self.every):
            folder = leg.trace.out / "anchors"
            write_state(folder / f"{leg.num_updates:08d}.safetensors", leg.snapshot())
        return True

    def begin(self, leg: Leg, stop: StopSignal) -> bool:
        """Nothing: an anchor is written before the snapshot of the same state."""
        return True


@dataclass(frozen=True, kw_only=True)
class Follower:
    """Compares its state with the leader's where an anchor is due, and goes on from that."""

    every: int  # updates
    folder: Path
    seconds: float  # to wait for an anchor
    lines: Path  # anchors.jsonl
    role: str = "follower"

    def begin(self, leg: Leg, stop: StopSignal) -> bool:
        """Cuts the lines beyond the leg's number of updates, and takes the anchor of that number
        where the leg was stopped before it had come.
        """
        kept = [
            line for line in whole_lines(self.lines) if json.loads(line)["step"] <= leg.num_updates
        ]
        write_whole(self.lines, b"".join(kept))
        is_taken = bool(kept) and json.loads(kept[-1])["step"] == leg.num_updates
        return is_taken or self.settle(leg, stop)

    def settle(self, leg: Leg, stop: StopSignal) -> bool:
        """Takes the anchor of the leg's number of updates, if one is due; False: told to stop.

        Raises:
            BadInput: the anchor is not one of this run.
            Failed: it did not come in time.
        """
        if not is_due(leg, self.every):
            return True
        saved = self._wait(leg, stop)
        if saved is None:
            return False
        own = tensors_of(leg.snapshot())
        line = compare_tensors(own, saved.file.entries, saved.file.read)
        with self.lines.open("a", encoding="utf-8") as file:
            file.write(to_json({"step": leg.num_updates, **line}) + "\n")
            file.flush()
            os.fsync(file.fileno())  # before the snapshot that follows: resuming relies on it
        if leg.num_updates < len(leg.rates):
            leg.state = place_saved(leg.trainer, saved)
        return True

    def _wait(self, leg: Leg, stop: StopSignal) -> SavedState | None:
        path = self.folder / f"{leg.num_updates:08d}.safetensors"
        deadline = time.monotonic() + self.seconds
        while not path.exists():
            if stop.name:
                return None
            if time.monotonic() > deadline:
                raise Failed(
                    f"{path}: the anchor of {leg.num_updates} updates did not come within "
                    f"{self.seconds:g} s (S-30); see whether the leader still runs, then resume "
                    "with --anchor-seconds"
                )
            time.sleep(POLL_SECONDS)
        return open_anchor(path, leg)


def is_due(leg: Leg, every: int) -> bool:
    """Whether the state after the leg's number of updates is an anchor; the start is none."""
    is_last = leg.num_updates == len(leg.rates)
    return leg.num_updates > 0 and (leg.num_updates % every == 0 or is_last)


def open_anchor(path: Path, leg: Leg) -> SavedState:
    """The anchor of the leg's number of updates, checked like a snapshot (S-29)."""
    shapes = parameter_shapes(leg.trainer.model)
    trainable = frozenset(leg.trainer.optimizer.decay_mask)
    saved = open_checked(path, leg.config.sha256, shapes, trainable, leg.trainer.precision.held)
    if saved.num_updates != leg.num_updates:
        raise BadInput(
            f"{path}: the anchor is the state after {saved.num_updates} updates, its name and the "
            f"leg say {leg.num_updates} (S-30); restore the leader's anchors/"
        )
    return saved


def compare_tensors(
    own: Mapping[str, Any], names: Iterable[str], read: Callable[[str], np.ndarray]
) -> dict[str, Any]:
    """`tensors` and `sha256` of a line of anchors.jsonl, one tensor in memory at a time.

    Args:
        own: name in a file -> array.
        names: of the anchor's tensors, in its file.
        read: name -> values.
    """
    rows = []
    digest = SetHash()
    for name in sorted(names, key=str.encode):
        anchor = read(name)
        digest.add(name, anchor)
        rows.append(compare(name, np.asarray(jnp.copy(own[name])), anchor))
    rows.sort(key=lambda row: (row["kind"], row["name"]))
    return {"sha256": digest.hexdigest(), "tensors": rows}


def compare(name: str, own: np.ndarray, anchor: np.ndarray) -> dict[str, Any]:
    """How far a tensor is from the anchor's, in float64; `name` is kind/name."""
    kind, _, tensor = name.partition("/")
    held = anchor.astype(np.float64)
    with np.errstate(over="ignore", invalid="ignore"):  # what is not finite shows as itself
        apart = own.astype(np.float64) - held
        return {
            "kind": kind,
            "name": tensor,
            "distance": float(np.sqrt(np.sum(np.square(apart)))),
            "norm": float(np.sqrt(np.sum(np.square(held)))),
            "max_abs": float(np.max(np.abs(apart), initial=0.0)),
        }
