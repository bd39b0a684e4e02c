"""Reader and writer of the safetensors format (S-13, S-23).

A file is 8 bytes of little-endian header length, a JSON header
{name: {"dtype", "shape", "data_offsets": [begin, end]}, "__metadata__": {text: text}}, then data.
"""

import hashlib
import json
import math
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from .errors import BadInput

ITEM_BYTES = {"F64": 8, "F32": 4, "F16": 2, "BF16": 2}
NAMES = {np.dtype("<f8"): "F64", np.dtype("<f4"): "F32"}
DTYPES = {"F64": "<f8", "F32": "<f4", "F16": "<f2", "BF16": "<u2"}
MAX_HEADER_BYTES = 100_000_000


@dataclass(frozen=True, kw_only=True)
class TensorFile:
    """Tensors by name (bfloat16 widened to float32), string metadata, hash of the bytes."""

    tensors: dict[str, np.ndarray]
    metadata: dict[str, str]
    sha256: str


def read_tensors(path: Path) -> TensorFile:
    """Reads a whole file.

    Raises:
        BadInput: the file cannot be read, is truncated, or has a malformed header.
    """
    try:
        data = path.read_bytes()
    except OSError as error:
        raise BadInput(
            f"{path}: the tensors cannot be read ({error.strerror}); check the checkpoint"
        ) from error
    header, start = _read_header(data, path)
    metadata = header.pop("__metadata__", {})
    tensors = {name: _read_tensor(name, entry, data, start, path) for name, entry in header.items()}
    used = sum(tensor["data_offsets"][1] - tensor["data_offsets"][0] for tensor in header.values())
    if start + used != len(data):
        raise BadInput(
            f"{path}: the header describes {start + used} bytes, the file has {len(data)}; fetch "
            "it again"
        )
    return TensorFile(tensors=tensors, metadata=metadata, sha256=hashlib.sha256(data).hexdigest())


def _read_header(data: bytes, path: Path) -> tuple[dict[str, Any], int]:
    length = int.from_bytes(data[:8], "little")
    if len(data) < 8 or length > min(len(data) - 8, MAX_HEADER_BYTES):
        raise BadInput(
            f"{path}: the header has {length} bytes, the file {len(data)}: it is truncated; "
            "fetch it again"
        )
    try:
        header = json.loads(data[8 : 8 + length])
    except (ValueError, RecursionError) as error:
        raise BadInput(
            f"{path}: the header of a safetensors file is JSON, this one is not; fetch it again"
        ) from error
    if not isinstance(header, dict):
        raise BadInput(f"{path}: the header of a safetensors file is an object; fetch it again")
    return header, 8 + length


def _read_tensor(name: str, entry: Any, data: bytes, start: int, path: Path) -> np.ndarray:
    try:
        dtype, shape, (begin, end) = entry["dtype"], tuple(entry["shape"]), entry["data_offsets"]
        num_bytes = math.prod(shape) * ITEM_BYTES[dtype] if dtype in ITEM_BYTES else None
        inside = 0 <= begin <= end <= len(data) - start
    except (KeyError, TypeError, ValueError) as error:
        raise BadInput(
            f"{path}: the entry of {name} needs dtype, shape and data_offsets; fetch it again"
        ) from error
    if num_bytes is None:
        raise BadInput(f"{path}: {name} has the dtype {dtype}; S-13 allows {', '.join(ITEM_BYTES)}")
    if not inside:
        raise BadInput(
            f"{path}: {name} ends at byte {start + end}, the file has {len(data)}: it is "
            "truncated; fetch it again"
        )
    if end - begin != num_bytes:
        raise BadInput(
            f"{path}: {name} of shape {list(shape)} takes {num_bytes} bytes, its entry says "
            f"{end - begin}"
        )
    values = np.frombuffer(data, dtype=DTYPES[dtype], count=math.prod(shape), offset=start + begin)
    if dtype == "BF16":  # the upper half of a float32
        values = (values.astype("<u4") << 16).view("<f4")
    return values.reshape(shape)


def write_tensors(
    path: Path, tensors: Mapping[str, np.ndarray], metadata: Mapping[str, str]
) -> None:
    """Writes F64 or F32 tensors in the order of `tensors`, mode 0600, synced to the disk."""
    header: dict[str, Any] = {"__metadata__": dict(metadata)}
    offset = 0
    for name, values in tensors.items():
        end = offset + values.nbytes
        header[name] = {
            "dtype": NAMES[values.dtype],
            "shape": list(values.shape),
            "data_offsets": [offset, end],
        }
        offset = end
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)  # the data begins at a multiple of 8
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for values in tensors.values():
            file.write(np.ascontiguousarray(values).data if values.size else b"")
        file.flush()
        os.fsync(file.fileno())
