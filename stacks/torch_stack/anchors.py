"""Anchored runs: the leader writes its state every few steps, the follower goes on from it (S-30).

A state is read from its file a tensor at a time, measured against the own one, and copied over it.
"""

import json
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from stacks.torch_stack.config import Config
from stacks.torch_stack.documents import jsonable, sync
from stacks.torch_stack.errors import BadInput, Failed, Interrupted
from stacks.torch_stack.numerics import tensors_sha256
from stacks.torch_stack.snapshot import read_snapshot, save_snapshot

if TYPE_CHECKING:
    from stacks.torch_stack.train import Trainer

LINES = "anchors.jsonl"
_POLL_SECONDS = 0.05
_CHUNK_ENTRIES = 1 << 20


@dataclass(frozen=True, kw_only=True)
class Following:
    """Where a follower finds anchors, and how long it waits for one."""

    folder: Path
    seconds: float


def is_anchor(n: int, config: Config) -> bool:
    """Whether the state after `n` updates is an anchor."""
    every = config.trajectory.anchor_every
    return every > 0 and n > 0 and (n % every == 0 or n == config.train.num_steps)


class Leader:
    """Writes each anchor into `anchors/`; none is deleted."""

    def __init__(self, config: Config, out: Path) -> None:
        self._config, self._folder = config, out / "anchors"

    def reach(self, n: int, trainer: "Trainer") -> None:
        """The trainer has made `n` updates."""
        if is_anchor(n, self._config):
            path = self._folder / f"{n:08d}.safetensors"
            save_snapshot(path, trainer.state(n), self._config.sha256)


class Follower:
    """Measures its state against each anchor, and goes on from the anchor."""

    def __init__(
        self,
        config: Config,
        out: Path,
        start: int,
        following: Following,
        stop_signal: Callable[[], str | None],
    ) -> None:
        self._config, self._following = config, following
        self._stop_signal = stop_signal
        self._lines = out / LINES
        _cut(self._lines, start)

    def reach(self, n: int, trainer: "Trainer") -> None:
        """The trainer has made `n` updates; raises `Failed` when the anchor does not come."""
        if not is_anchor(n, self._config):
            return
        path = self._wait(n)
        anchor = read_snapshot(path, self._config.sha256, trainer.parameters, trainer.trainable)
        if anchor.step != n:
            raise BadInput(
                f"S-30: the anchor {path} says that it is the state after {anchor.step} updates, "
                f"but its name says {n}; name the leader's own folder"
            )
        line = {"step": n, **compare(trainer.state(n).tensors(), anchor.tensors())}
        with self._lines.open("a", encoding="utf-8") as file:
            file.write(json.dumps(jsonable(line), allow_nan=False) + "\n")
        sync(self._lines)
        if n < self._config.train.num_steps:
            trainer.adopt(anchor)

    def _wait(self, n: int) -> Path:
        path, seconds = self._following.folder / f"{n:08d}.safetensors", self._following.seconds
        limit = time.monotonic() + seconds
        while not path.exists():
            if (signal := self._stop_signal()) is not None:
                raise Interrupted(
                    f"S-26: {signal} stopped the leg while it waited for anchor {n} in "
                    f"{self._following.folder}; go on from its newest snapshot with --resume"
                )
            if time.monotonic() >= limit:
                raise Failed(
                    f"S-30: the anchor of step {n} did not come to {self._following.folder} "
                    f"within {seconds:g} seconds; see whether the leader runs, or wait longer "
                    "with --anchor-seconds"
                )
            time.sleep(_POLL_SECONDS)
        return path


def _cut(lines: Path, n: int) -> None:
    """Remove the lines of steps > n, and what is not whole."""
    if not lines.exists():
        lines.touch()
        return
    kept = []
    for line in lines.read_text(encoding="utf-8").splitlines(keepends=True):
        if not line.endswith("\n") or json.loads(line)["step"] > n:
            break
        kept.append(line)
    temporary = lines.with_suffix(".tmp")
    temporary.write_text("".join(kept), encoding="utf-8")
    sync(temporary)
    temporary.rename(lines)


def compare(own: Mapping[str, Tensor], anchor: Mapping[str, Tensor]) -> dict[str, object]:
    """Names in the file → `sha256` of the anchor, and for each tensor how far the own one is."""
    names = sorted(anchor, key=lambda name: name.partition("/")[::2])
    tensors = [_distance(name, own[name], anchor[name]) for name in names]
    return {"sha256": tensors_sha256(anchor), "tensors": tensors}


@torch.no_grad()
def _distance(name: str, own: Tensor, anchor: Tensor) -> dict[str, object]:
    """All in float64, a part at a time: a widened copy of a large tensor is not needed."""
    kind, _, plain = name.partition("/")
    own, anchor = own.detach(), anchor.to(own.device)
    squares = torch.zeros(2, dtype=torch.float64, device=own.device)  # of the difference, anchor
    largest = torch.zeros((), dtype=torch.float64, device=own.device)
    parts = (torch.split(one.reshape(-1), _CHUNK_ENTRIES) for one in (own, anchor))
    for x, y in zip(*parts, strict=True):
        if y.numel():
            y = y.double()
            difference = x.double() - y
            squares += torch.stack([difference.square().sum(), y.square().sum()])
            largest = torch.maximum(largest, difference.abs().max())
    distance, norm = squares.sqrt().tolist()
    return {
        "kind": kind,
        "name": plain,
        "distance": distance,
        "norm": norm,
        "max_abs": float(largest),
    }
