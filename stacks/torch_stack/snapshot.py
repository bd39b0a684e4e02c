"""Snapshots: the state after n updates, written whole or not at all (S-23)."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from torch import Tensor

from stacks.torch_stack.config import CONTRACT
from stacks.torch_stack.documents import sync

NUM_KEPT = 2


@dataclass(frozen=True, kw_only=True)
class Snapshot:
    """State after `step` updates; `epoch` and `row` are the position of the next step's data."""

    step: int
    epoch: int
    row: int
    params: Mapping[str, Tensor]  # all
    m: Mapping[str, Tensor]  # trainable
    v: Mapping[str, Tensor]


def write_snapshot(folder: Path, snapshot: Snapshot, config_sha256: str) -> None:
    """Write, sync, rename; then remove all but the newest two."""
    from safetensors.torch import save_file

    folder.mkdir(exist_ok=True)
    kinds = {"param": snapshot.params, "m": snapshot.m, "v": snapshot.v}
    tensors = {
        f"{kind}/{name}": one.detach().cpu().contiguous()
        for kind, named in kinds.items()
        for name, one in named.items()
    }
    metadata = {
        "step": str(snapshot.step),
        "epoch": str(snapshot.epoch),
        "row": str(snapshot.row),
        "config_sha256": config_sha256,
        "contract": CONTRACT,
    }
    path = folder / f"{snapshot.step:08d}.safetensors"
    temporary = path.with_suffix(".tmp")
    save_file(tensors, temporary, metadata=metadata)
    sync(temporary)
    temporary.rename(path)
    sync(folder)
    for old in _numbered(folder)[NUM_KEPT:]:
        old.unlink()


def read_snapshots(
    folder: Path, config_sha256: str, params: Mapping[str, Tensor], trainable: Mapping[str, Tensor]
) -> Iterator[Snapshot]:
    """Whole snapshots of this config, newest first; `params` and `trainable` give the shapes."""
    for path in _numbered(folder):
        snapshot = _read(path, config_sha256)
        if snapshot is not None and all(
            _same_layout(given, expected)
            for given, expected in (
                (snapshot.params, params),
                (snapshot.m, trainable),
                (snapshot.v, trainable),
            )
        ):
            yield snapshot


def _numbered(folder: Path) -> list[Path]:
    """Snapshots of the folder, newest first."""
    if not folder.is_dir():
        return []
    found = [one for one in folder.iterdir() if re.fullmatch(r"\d{8,}\.safetensors", one.name)]
    return sorted(found, key=lambda one: int(one.stem), reverse=True)


def _read(path: Path, config_sha256: str) -> Snapshot | None:
    """The snapshot at `path`, or None when it is not whole or belongs to another run."""
    from safetensors import SafetensorError, safe_open

    named: dict[str, dict[str, Tensor]] = {"param": {}, "m": {}, "v": {}}
    try:
        with safe_open(path, framework="pt") as file:
            metadata = file.metadata() or {}
            if metadata.get("config_sha256") != config_sha256:
                return None
            if metadata.get("contract") != CONTRACT:
                return None
            for key in file.keys():  # noqa: SIM118 - it is no mapping
                kind, _, name = key.partition("/")
                named[kind][name] = file.get_tensor(key)
            return Snapshot(
                step=int(metadata["step"]),
                epoch=int(metadata["epoch"]),
                row=int(metadata["row"]),
                params=named["param"],
                m=named["m"],
                v=named["v"],
            )
    except (SafetensorError, OSError, KeyError, ValueError):
        return None  # not whole: an older one is taken


def _same_layout(given: Mapping[str, Tensor], expected: Mapping[str, Tensor]) -> bool:
    return given.keys() == expected.keys() and all(
        one.shape == expected[name].shape and one.dtype == expected[name].dtype
        for name, one in given.items()
    )
