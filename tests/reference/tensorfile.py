"""The safetensors format: eight bytes of header length, a JSON header, raw little-endian values.

Reads F64, F32, F16 and BF16 (S-13); writes them too, for the checkpoints of the vectors.
"""

import json
from collections.abc import Mapping
from math import prod
from typing import Any

import numpy as np
import numpy.typing as npt

from tests.reference.errors import RefusedError, require

Tensor = npt.NDArray[np.floating[Any]]
SIZES = {"F64": 8, "F32": 4, "F16": 2, "BF16": 2}  # bytes of a value
LAYOUTS = {"F64": "<f8", "F32": "<f4", "F16": "<f2"}


def decode(data: bytes, dtype: str, shape: tuple[int, ...]) -> Tensor:
    """Values widened exactly to float64."""
    if dtype == "BF16":
        wide = np.frombuffer(data, dtype="<u2").astype(np.uint32) << 16
        flat: Tensor = wide.view(np.float32)
    else:
        flat = np.frombuffer(data, dtype=LAYOUTS[dtype])
    return flat.astype(np.float64).reshape(shape)


def encode(values: Tensor, dtype: str) -> bytes:
    """Values rounded to nearest, ties to even."""
    if dtype != "BF16":
        return values.astype(LAYOUTS[dtype]).tobytes()
    bits = values.astype(np.float32).view(np.uint32).astype(np.uint64)
    rounded = (bits + 0x7FFF + ((bits >> 16) & 1)) >> 16
    return rounded.astype("<u2").tobytes()


def read(data: bytes, where: str) -> dict[str, Tensor]:
    """name -> float64 array. Raises RefusedError for a file that is cut off or malformed."""
    require(len(data) >= 8, f"{where}: shorter than its header length")
    start = 8 + int.from_bytes(data[:8], "little")
    require(len(data) >= start, f"{where}: ends inside its header")
    try:
        header = json.loads(data[8:start])
    except ValueError:
        raise RefusedError(f"{where}: the header is not JSON") from None
    tensors = {}
    for name, record in header.items():
        if name == "__metadata__":
            continue
        dtype, shape = record["dtype"], tuple(record["shape"])
        first, last = record["data_offsets"]
        require(dtype in SIZES, f"{where}: {name} has the dtype {dtype}")
        require(last - first == prod(shape) * SIZES[dtype], f"{where}: {name} has another size")
        require(start + last <= len(data), f"{where}: ends inside {name}")
        tensors[name] = decode(data[start + first : start + last], dtype, shape)
    return tensors


def write(tensors: Mapping[str, Tensor], dtypes: Mapping[str, str]) -> bytes:
    """The bytes of a file that holds `tensors` in this order, each in its dtype."""
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    body = b""
    for name, values in tensors.items():
        data = encode(values, dtypes[name])
        offsets = [len(body), len(body) + len(data)]
        header[name] = {
            "dtype": dtypes[name],
            "shape": list(values.shape),
            "data_offsets": offsets,
        }
        body += data
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    return len(text).to_bytes(8, "little") + text + body
