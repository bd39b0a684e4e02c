"""Reader and writer of the safetensors format (S-13, S-23).

A file is 8 bytes of little-endian header length, a JSON header
{name: {"dtype", "shape", "data_offsets": [begin, end]}, "__metadata__": {text: text}}, then data.
"""

import hashlib
import io
import json
import math
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import jax.numpy as jnp
import numpy as np

from .errors import BadInput
from .precision import BFLOAT16

DTYPES = {
    "F64": np.dtype("<f8"),
    "F32": np.dtype("<f4"),
    "F16": np.dtype("<f2"),
    "BF16": BFLOAT16,
    "I32": np.dtype("<i4"),
}
NAMES = {dtype: name for name, dtype in DTYPES.items()}
FLOATING = ("F64", "F32", "F16", "BF16")  # what S-13 allows
MAX_HEADER_BYTES = 100_000_000


@dataclass(frozen=True, kw_only=True)
class TensorFile:
    """Tensors by name, string metadata, hash of the bytes."""

    tensors: dict[str, np.ndarray]
    metadata: dict[str, str]
    sha256: str


@dataclass(frozen=True, kw_only=True)
class Entry:
    """Where a tensor stands in a file: `offset` is that of its first byte."""

    dtype: np.dtype
    shape: tuple[int, ...]
    offset: int


@dataclass(frozen=True, kw_only=True)
class TensorIndex:
    """The header of a file that is whole; its tensors are read one at a time."""

    path: Path
    entries: dict[str, Entry]
    metadata: dict[str, str]

    def read(self, name: str) -> np.ndarray:
        """The values of a tensor.

        Raises:
            BadInput: the file was replaced or cut since its header was read.
        """
        entry = self.entries[name]
        count = math.prod(entry.shape)
        try:
            values = np.fromfile(self.path, entry.dtype, count=count, offset=entry.offset)
        except OSError as error:
            raise BadInput(
                f"{self.path}: {name} cannot be read ({error.strerror}); restore the file"
            ) from error
        if values.size != count:
            raise BadInput(
                f"{self.path}: {name} has {values.size} of its {count} values: the file was cut "
                "while it was read; fetch it again"
            )
        return values.reshape(entry.shape)


def read_tensors(path: Path) -> TensorFile:
    """Reads a whole file.

    Raises:
        BadInput: the file cannot be read, is truncated, or has a malformed header.
    """
    try:
        data = path.read_bytes()
    except OSError as error:
        raise _unreadable(path, error) from error
    index = _read_index(io.BytesIO(data), len(data), path, FLOATING)
    tensors = {
        name: np.frombuffer(
            data, entry.dtype, count=math.prod(entry.shape), offset=entry.offset
        ).reshape(entry.shape)
        for name, entry in index.entries.items()
    }
    digest = hashlib.sha256(data).hexdigest()
    return TensorFile(tensors=tensors, metadata=index.metadata, sha256=digest)


def open_tensors(path: Path, dtypes: tuple[str, ...] = FLOATING) -> TensorIndex:
    """Reads the header of a file of tensors in `dtypes`, and no tensor.

    Raises:
        BadInput: the file cannot be read, is truncated, or has a malformed header.
    """
    try:
        with path.open("rb") as file:
            return _read_index(file, os.fstat(file.fileno()).st_size, path, dtypes)
    except OSError as error:
        raise _unreadable(path, error) from error


def _unreadable(path: Path, error: OSError) -> BadInput:
    return BadInput(f"{path}: the tensors cannot be read ({error.strerror}); check the path")


def _read_index(file: IO[bytes], size: int, path: Path, dtypes: tuple[str, ...]) -> TensorIndex:
    header, start = _read_header(file, size, path)
    metadata = header.pop("__metadata__", {})
    if not isinstance(metadata, dict):
        raise BadInput(f"{path}: the metadata of a safetensors file are an object; fetch it again")
    entries, used = {}, 0
    for name, entry in header.items():
        entries[name] = _parse_entry(name, entry, size, start, path, dtypes)
        used += entry["data_offsets"][1] - entry["data_offsets"][0]
    if start + used != size:
        raise BadInput(
            f"{path}: the header describes {start + used} bytes, the file has {size}; fetch it "
            "again"
        )
    return TensorIndex(path=path, entries=entries, metadata=metadata)


def _read_header(file: IO[bytes], size: int, path: Path) -> tuple[dict[str, Any], int]:
    length = int.from_bytes(file.read(8), "little")
    if size < 8 or length > min(size - 8, MAX_HEADER_BYTES):
        raise BadInput(
            f"{path}: the header has {length} bytes, the file {size}: it is truncated; fetch it "
            "again"
        )
    try:
        header = json.loads(file.read(length))
    except (ValueError, RecursionError) as error:
        raise BadInput(
            f"{path}: the header of a safetensors file is JSON, this one is not; fetch it again"
        ) from error
    if not isinstance(header, dict):
        raise BadInput(f"{path}: the header of a safetensors file is an object; fetch it again")
    return header, 8 + length


def _parse_entry(
    name: str, entry: Any, size: int, start: int, path: Path, dtypes: tuple[str, ...]
) -> Entry:
    try:
        dtype, shape, (begin, end) = entry["dtype"], tuple(entry["shape"]), entry["data_offsets"]
        num_bytes = math.prod(shape) * DTYPES[dtype].itemsize if dtype in dtypes else None
        inside = 0 <= begin <= end <= size - start
    except (KeyError, TypeError, ValueError) as error:
        raise BadInput(
            f"{path}: the entry of {name} needs dtype, shape and data_offsets; fetch it again"
        ) from error
    if num_bytes is None:
        raise BadInput(
            f"{path}: {name} has the dtype {dtype}; here are allowed {', '.join(dtypes)}"
        )
    if not inside:
        raise BadInput(
            f"{path}: {name} ends at byte {start + end}, the file has {size}: it is truncated; "
            "fetch it again"
        )
    if end - begin != num_bytes:
        raise BadInput(
            f"{path}: {name} of shape {list(shape)} takes {num_bytes} bytes, its entry says "
            f"{end - begin}"
        )
    return Entry(dtype=DTYPES[dtype], shape=shape, offset=start + begin)


def write_tensors(path: Path, tensors: Mapping[str, Any], metadata: Mapping[str, str]) -> None:
    """Writes tensors in the order of `tensors`, mode 0600, synced to the disk.

    Arrays of a device are brought over one at a time, as copies: JAX silently does not donate an
    array while NumPy holds a view of it.
    """
    header: dict[str, Any] = {"__metadata__": dict(metadata)}
    offset = 0
    for name, values in tensors.items():
        end = offset + values.nbytes
        header[name] = {
            "dtype": NAMES[np.dtype(values.dtype)],
            "shape": list(values.shape),
            "data_offsets": [offset, end],
        }
        offset = end
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)  # the data begins at a multiple of 8
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for values in tensors.values():
            host = values if isinstance(values, np.ndarray) else np.asarray(jnp.copy(values))
            # As bytes: bfloat16 is no type of Python's buffers.
            file.write(np.ascontiguousarray(host).reshape(-1).view(np.uint8).data)
        file.flush()
        os.fsync(file.fileno())
