"""The header of a safetensors file: names, dtypes, shapes and byte ranges; values on demand."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from oracle.document import loads
from oracle.errors import DataError

READ_AS = {"F64": "<f8", "F32": "<f4", "F16": "<f2", "BF16": "<u2"}
BYTES_OF = {"F64": 8, "F32": 4, "F16": 2, "BF16": 2}
LARGEST_HEADER_BYTES = 100_000_000  # the limit of the format's own library


@dataclass(frozen=True, kw_only=True)
class StoredTensor:
    """Where a tensor lies in a file: bytes `[start, end)` of it."""

    path: Path
    dtype: str
    shape: tuple[int, ...]
    start: int
    end: int


def read_header(path: Path) -> dict[str, StoredTensor]:
    """Return the tensors of a safetensors file; raises DataError when it is cut or malformed."""
    try:
        size = path.stat().st_size
        with path.open("rb") as stream:
            num_header_bytes = int.from_bytes(stream.read(8), "little")
            if size < 8 or num_header_bytes > min(size - 8, LARGEST_HEADER_BYTES):
                raise DataError(
                    f"{path} has {size} bytes and its header alone wants {8 + num_header_bytes}; "
                    "it is truncated or no safetensors file."
                )
            header = loads(stream.read(num_header_bytes))
    except OSError as error:
        raise DataError(f"weights {path} cannot be read ({error.strerror}).") from None
    except ValueError:
        raise DataError(f"the header of {path} is not JSON; it is no safetensors file.") from None
    if not isinstance(header, dict):
        raise DataError(f"the header of {path} is not a table; it is no safetensors file.")
    start = 8 + num_header_bytes
    tensors = {
        name: _tensor(path, name, entry, start)
        for name, entry in header.items()
        if name != "__metadata__"
    }
    end = max((tensor.end for tensor in tensors.values()), default=start)
    if end != size:
        raise DataError(
            f"{path} has {size} bytes and its header describes {end}; "
            + ("it is truncated." if size < end else "it holds bytes that belong to no tensor.")
        )
    return tensors


def read_values(tensor: StoredTensor) -> npt.NDArray[Any]:
    """Return the values of a tensor in its shape; BF16 is widened to float32."""
    with tensor.path.open("rb") as stream:
        stream.seek(tensor.start)
        raw = np.frombuffer(stream.read(tensor.end - tensor.start), dtype=READ_AS[tensor.dtype])
    if tensor.dtype == "BF16":
        raw = (raw.astype(np.uint32) << 16).view(np.float32)
    return raw.reshape(tensor.shape)


def _tensor(path: Path, name: str, entry: Any, start: int) -> StoredTensor:
    if not isinstance(entry, Mapping) or not {"dtype", "shape", "data_offsets"} <= entry.keys():
        raise DataError(f"{path}: tensor {name} lacks dtype, shape or data_offsets.")
    dtype, shape, offsets = entry["dtype"], entry["shape"], entry["data_offsets"]
    if not _are_counts(shape) or not _are_counts(offsets) or len(offsets) != 2:
        raise DataError(f"{path}: shape or data_offsets of tensor {name} are no lists of counts.")
    begin, end = offsets
    if dtype not in BYTES_OF:
        raise DataError(
            f"{path}: tensor {name} is {dtype} and should be one of {', '.join(BYTES_OF)} (S-13)."
        )
    num_bytes = math.prod(shape) * BYTES_OF[dtype]
    if end - begin != num_bytes:
        raise DataError(
            f"{path}: tensor {name} of shape {shape} in {dtype} wants {num_bytes} bytes and "
            f"its range holds {end - begin}."
        )
    return StoredTensor(
        path=path, dtype=dtype, shape=tuple(shape), start=start + begin, end=start + end
    )


def _are_counts(values: Any) -> bool:
    return isinstance(values, list) and all(type(v) is int and v >= 0 for v in values)
