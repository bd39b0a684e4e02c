"""Snapshots: the state after n updates, whole or not there, and the newest of them (S-23)."""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from .batch import Position
from .errors import BadInput
from .safetensors import read_tensors, write_tensors

NUM_KEPT = 2
CONTRACT = "1"


@dataclass(frozen=True, kw_only=True)
class Snapshot:
    """The state after `num_updates` updates; the next step begins at `position` in the data."""

    num_updates: int
    position: Position
    params: Mapping[str, np.ndarray]  # all
    m: Mapping[str, np.ndarray]  # trainable
    v: Mapping[str, np.ndarray]  # trainable
    config_sha256: str


def write_snapshot(folder: Path, snapshot: Snapshot) -> None:
    """Writes `{n:08d}.safetensors` under a temporary name, syncs, renames, keeps the newest two."""
    folder.mkdir(mode=0o700, exist_ok=True)
    tensors = {f"param/{name}": values for name, values in snapshot.params.items()}
    tensors |= {f"m/{name}": values for name, values in snapshot.m.items()}
    tensors |= {f"v/{name}": values for name, values in snapshot.v.items()}
    metadata = {
        "step": str(snapshot.num_updates),
        "epoch": str(snapshot.position.epoch),
        "row": str(snapshot.position.row),
        "config_sha256": snapshot.config_sha256,
        "contract": CONTRACT,
    }
    temporary = folder / f".{snapshot.num_updates:08d}.tmp"
    write_tensors(temporary, tensors, metadata)
    temporary.rename(folder / f"{snapshot.num_updates:08d}.safetensors")
    sync_folder(folder)
    for old in _newest_first(folder)[NUM_KEPT:]:
        old.unlink()


def newest_snapshot(folder: Path, config_sha256: str) -> Snapshot | None:
    """The newest whole snapshot of the config, or None; what cannot be read is passed over."""
    for path in _newest_first(folder):
        try:
            snapshot = _read(path)
        except (BadInput, KeyError, ValueError):
            continue  # not whole, or not a snapshot
        if snapshot.config_sha256 == config_sha256 and path.stem == f"{snapshot.num_updates:08d}":
            return snapshot
    return None


def _read(path: Path) -> Snapshot:
    file = read_tensors(path)

    def under(prefix: str) -> dict[str, np.ndarray]:
        return {
            name.removeprefix(prefix): x
            for name, x in file.tensors.items()
            if name.startswith(prefix)
        }

    return Snapshot(
        num_updates=int(file.metadata["step"]),
        position=Position(epoch=int(file.metadata["epoch"]), row=int(file.metadata["row"])),
        params=under("param/"),
        m=under("m/"),
        v=under("v/"),
        config_sha256=file.metadata["config_sha256"],
    )


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
