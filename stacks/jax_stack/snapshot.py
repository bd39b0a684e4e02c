"""Snapshots: the state after n updates, whole or not there; the newest or a named one (S-23).

n  number of updates made
"""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from .batch import Position
from .errors import BadInput
from .safetensors import TensorIndex, open_tensors, write_tensors

NUM_KEPT = 2
CONTRACT = "1"
KINDS = ("param", "m", "v")


@dataclass(frozen=True, kw_only=True)
class Snapshot:
    """The state after `num_updates` updates; the next step begins at `position` in the data."""

    num_updates: int
    position: Position
    params: Mapping[str, Any]  # all; arrays of the host or of the device
    m: Mapping[str, Any]  # trainable
    v: Mapping[str, Any]  # trainable
    config_sha256: str


def tensors_of(snapshot: Snapshot) -> dict[str, Any]:
    """The tensors of a snapshot under their names in a file."""
    tensors = {f"param/{name}": values for name, values in snapshot.params.items()}
    tensors |= {f"m/{name}": values for name, values in snapshot.m.items()}
    tensors |= {f"v/{name}": values for name, values in snapshot.v.items()}
    return tensors


@dataclass(frozen=True, kw_only=True)
class SavedState:
    """A snapshot on disk that is whole; its tensors are read one at a time."""

    file: TensorIndex
    num_updates: int
    position: Position
    config_sha256: str

    def array(self, kind: str, name: str) -> Array:
        """A tensor on the device, in memory that a step may reuse."""
        return jnp.array(self.file.read(f"{kind}/{name}"), copy=True)


def write_snapshot(folder: Path, snapshot: Snapshot) -> None:
    """Writes `{n:08d}.safetensors` and keeps the newest two."""
    write_state(folder / f"{snapshot.num_updates:08d}.safetensors", snapshot)
    for old in _newest_first(folder)[NUM_KEPT:]:
        old.unlink()


def write_state(path: Path, snapshot: Snapshot) -> None:
    """Writes a snapshot under a temporary name, syncs, renames."""
    path.parent.mkdir(mode=0o700, exist_ok=True)
    metadata = {
        "step": str(snapshot.num_updates),
        "epoch": str(snapshot.position.epoch),
        "row": str(snapshot.position.row),
        "config_sha256": snapshot.config_sha256,
        "contract": CONTRACT,
    }
    temporary = path.with_name(f".{path.stem}.tmp")
    write_tensors(temporary, tensors_of(snapshot), metadata)
    temporary.rename(path)
    sync_folder(path.parent)


def newest_snapshot(folder: Path, config_sha256: str) -> SavedState | None:
    """The newest whole snapshot of the config, or None; what cannot be read is passed over."""
    for path in _newest_first(folder):
        try:
            saved = open_snapshot(path)
        except BadInput:
            continue  # not whole, or not a snapshot
        if saved.config_sha256 == config_sha256 and path.stem == f"{saved.num_updates:08d}":
            return saved
    return None


def open_snapshot(path: Path) -> SavedState:
    """The header of a snapshot.

    Raises:
        BadInput: the file is cut, or is not a snapshot.
    """
    file = open_tensors(path)
    try:
        position = Position(epoch=int(file.metadata["epoch"]), row=int(file.metadata["row"]))
        num_updates, config_sha256 = int(file.metadata["step"]), file.metadata["config_sha256"]
    except (KeyError, ValueError, TypeError) as error:
        raise BadInput(
            f"{path}: a snapshot's metadata hold step, epoch, row and config_sha256 (S-23); name a "
            "file of snapshots/ or of anchors/"
        ) from error
    if num_updates < 0 or position.epoch < 0 or position.row < 0:
        raise BadInput(f"{path}: step, epoch and row of a snapshot are at least 0 (S-23)")
    return SavedState(
        file=file, num_updates=num_updates, position=position, config_sha256=config_sha256
    )


def open_checked(
    path: Path,
    config_sha256: str,
    shapes: Mapping[str, tuple[int, ...]],
    trainable: frozenset[str],
    dtype: np.dtype,
) -> SavedState:
    """A snapshot that a run with these tensors can go on from (S-29).

    Raises:
        BadInput: it is cut, or of another config, dtype, set of tensors or shape.
    """
    saved = open_snapshot(path)
    if saved.config_sha256 != config_sha256:
        raise BadInput(
            f"{path}: the snapshot is of the config {saved.config_sha256[:12]}, --config is "
            f"{config_sha256[:12]} (S-29); take a snapshot of the same run"
        )
    wanted = {
        f"{kind}/{name}": shape
        for kind in KINDS
        for name, shape in shapes.items()
        if kind == "param" or name in trainable
    }
    entries = saved.file.entries
    for name in sorted(wanted.keys() ^ entries.keys()):
        there, needed = name in entries, name in wanted
        raise BadInput(
            f"{path}: {name} is {'' if there else 'not '}in the snapshot and "
            f"{'' if needed else 'not '}in the run (S-29); take a snapshot of the same run"
        )
    for name, shape in wanted.items():
        if entries[name].shape != shape:
            raise BadInput(
                f"{path}: {name} has the shape {list(entries[name].shape)}, the run needs "
                f"{list(shape)} (S-29); take a snapshot of the same run"
            )
        if entries[name].dtype != dtype:
            raise BadInput(
                f"{path}: {name} is {entries[name].dtype.name}, the run holds {dtype.name} (S-29); "
                "take a snapshot of the same precision"
            )
    return saved


def _newest_first(folder: Path) -> list[Path]:
    names = (
        [path for path in folder.glob("*.safetensors") if path.stem.isdigit()]
        if folder.exists()
        else []
    )
    return sorted(names, key=lambda path: int(path.stem), reverse=True)


def sync_folder(folder: Path) -> None:
    """Makes renames in `folder` durable."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
