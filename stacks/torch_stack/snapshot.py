"""Snapshots: the state after n updates, written whole or not at all (S-23).

A snapshot that is read stays in its file: each tensor is fetched when it is asked for, so that a
state never lies in memory twice.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor

from stacks.torch_stack.config import CONTRACT
from stacks.torch_stack.documents import sync
from stacks.torch_stack.errors import BadInput
from stacks.torch_stack.precision import dtype_name

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

    def tensors(self) -> Mapping[str, Tensor]:
        """Every tensor under its name in the file; none is fetched before it is asked for."""
        return _Joined({"param": self.params, "m": self.m, "v": self.v})


class _Joined(Mapping[str, Tensor]):
    def __init__(self, kinds: Mapping[str, Mapping[str, Tensor]]) -> None:
        self._kinds = kinds

    def __getitem__(self, name: str) -> Tensor:
        kind, _, plain = name.partition("/")
        return self._kinds[kind][plain]

    def __iter__(self) -> Iterator[str]:
        return (f"{kind}/{name}" for kind, named in self._kinds.items() for name in named)

    def __len__(self) -> int:
        return sum(map(len, self._kinds.values()))


class Stored(Mapping[str, Tensor]):
    """The tensors of one kind in an open file, fetched one by one."""

    def __init__(self, file: Any, prefix: str) -> None:
        self._file, self._prefix = file, prefix
        names: list[str] = file.keys()
        self._names = [one.removeprefix(prefix) for one in names if one.startswith(prefix)]

    def __getitem__(self, name: str) -> Tensor:
        tensor: Tensor = self._file.get_tensor(self._prefix + name)
        return tensor

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)


def write_snapshot(folder: Path, snapshot: Snapshot, config_sha256: str) -> None:
    """Write a snapshot under its number; then remove all but the newest two."""
    save_snapshot(folder / f"{snapshot.step:08d}.safetensors", snapshot, config_sha256)
    for old in _numbered(folder)[NUM_KEPT:]:
        old.unlink()


def save_snapshot(path: Path, snapshot: Snapshot, config_sha256: str) -> None:
    """Write, sync, rename."""
    from safetensors.torch import save_file

    path.parent.mkdir(exist_ok=True)
    metadata = {
        "step": str(snapshot.step),
        "epoch": str(snapshot.epoch),
        "row": str(snapshot.row),
        "config_sha256": config_sha256,
        "contract": CONTRACT,
    }
    temporary = path.with_suffix(".tmp")
    tensors = {name: one.detach().cpu().contiguous() for name, one in snapshot.tensors().items()}
    save_file(tensors, temporary, metadata=metadata)
    sync(temporary)
    temporary.rename(path)
    sync(path.parent)


def read_snapshots(
    folder: Path, config_sha256: str, params: Mapping[str, Tensor], trainable: Mapping[str, Tensor]
) -> Iterator[Snapshot]:
    """Whole snapshots of this config, newest first; `params` and `trainable` give the shapes."""
    for path in _numbered(folder):
        try:
            yield read_snapshot(path, config_sha256, params, trainable)
        except BadInput:
            continue  # not whole, or of another run: an older one is taken


def _numbered(folder: Path) -> list[Path]:
    """Snapshots of the folder, newest first."""
    if not folder.is_dir():
        return []
    found = [one for one in folder.iterdir() if re.fullmatch(r"\d{8,}\.safetensors", one.name)]
    return sorted(found, key=lambda one: int(one.stem), reverse=True)


def read_snapshot(
    path: Path, config_sha256: str, params: Mapping[str, Tensor], trainable: Mapping[str, Tensor]
) -> Snapshot:
    """Open one snapshot and check all but its values; raises `BadInput` that says what is wrong."""
    from safetensors import SafetensorError, safe_open

    try:
        file: Any = safe_open(path, framework="pt")
        metadata = dict(file.metadata() or {})
    except (SafetensorError, OSError) as error:
        raise BadInput(
            f"S-29: the snapshot {path} is missing, cut or no safetensors; write or copy it again"
        ) from error
    for key, expected in (("config_sha256", config_sha256), ("contract", CONTRACT)):
        if (found := metadata.get(key)) != expected:
            raise BadInput(
                f"S-29: the snapshot {path} is of another run: its {key} is {found}, that of this "
                f"run {expected}; take a snapshot of this config"
            )
    numbers = [metadata.get(key, "") for key in ("step", "epoch", "row")]
    if not all(re.fullmatch(r"[0-9]{1,18}", one) for one in numbers):
        raise BadInput(
            f"S-29: the snapshot {path} does not say its step, epoch and row as numbers, but "
            f"{numbers}; write it again"
        )
    step, epoch, row = map(int, numbers)
    _check_layout(path, file, params, trainable)
    return Snapshot(
        step=step,
        epoch=epoch,
        row=row,
        params=Stored(file, "param/"),
        m=Stored(file, "m/"),
        v=Stored(file, "v/"),
    )


def step_of(path: Path) -> int:
    """The number of updates that a snapshot says it is after; 0 when it does not say."""
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, framework="pt") as file:
            return int((file.metadata() or {}).get("step", "0"))
    except (SafetensorError, OSError, ValueError):
        return 0  # whoever reads it will refuse it


def _check_layout(
    path: Path, file: Any, params: Mapping[str, Tensor], trainable: Mapping[str, Tensor]
) -> None:
    expected = {
        f"{kind}/{name}": (list(one.shape), dtype_name(one.dtype))
        for kind, named in (("param", params), ("m", trainable), ("v", trainable))
        for name, one in named.items()
    }
    check_tensors("S-29: the snapshot", path, file, expected)


_DTYPES = {"F64": "float64", "F32": "float32", "BF16": "bfloat16", "F16": "float16", "I32": "int32"}


def check_tensors(
    what: str, path: Path, file: Any, expected: Mapping[str, tuple[list[int], str]]
) -> None:
    """Refuse a file whose tensors have not the expected names, shapes and dtypes."""
    names = set(file.keys())
    for name in sorted(names ^ expected.keys()):
        state = "holds the tensor" if name in names else "lacks the tensor"
        raise BadInput(
            f"{what} {path} {state} {name}, unlike this run's model and optimizer; take a file "
            "of this config"
        )
    for name, wanted in expected.items():
        part = file.get_slice(name)
        dtype = part.get_dtype()
        if (found := (list(part.get_shape()), _DTYPES.get(dtype, dtype))) != wanted:
            raise BadInput(
                f"{what} {path}: {name} has shape {found[0]} and dtype {found[1]}, but this run's "
                f"{wanted[0]} and {wanted[1]}; take a file of this config"
            )
