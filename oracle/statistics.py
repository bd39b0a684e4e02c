"""Statistics of a tensor as S-21 states them: L2 norm, mean, largest magnitude, sketch.

The oracle's own reading of the clause, for what a leg left as a file: it is held against the rows
that the leg wrote about it.
"""

from __future__ import annotations

import functools
import hashlib

import numpy as np
import numpy.typing as npt

NUM_BUCKETS = 64
Floats = npt.NDArray[np.float64]


def sketch(name: str, values: npt.NDArray[np.floating]) -> Floats:
    """Return the sketch (64,) of the entries of a tensor in row-major order (S-21).

    `|sketch(x) - sketch(y)|` estimates `|x - y|`, both as L2 norms.
    """
    wide = values.astype(np.float64).reshape(-1)
    signed = np.zeros(-(-wide.size // NUM_BUCKETS) * NUM_BUCKETS)
    signed[: wide.size] = wide * signs(name, wide.size)
    total: Floats = signed.reshape(-1, NUM_BUCKETS).sum(axis=0)
    return total


@functools.lru_cache(maxsize=8)
def signs(name: str, num_entries: int) -> npt.NDArray[np.int8]:
    """Return the sign (-1 or 1) of each index of the tensor of this name (S-21)."""
    key = np.uint32(int.from_bytes(hashlib.sha256(name.encode()).digest()[:4], "big"))
    z = np.arange(num_entries, dtype=np.uint32) * np.uint32(0x9E3779B1) ^ key
    z ^= z >> np.uint32(16)
    z *= np.uint32(0x85EBCA6B)
    z ^= z >> np.uint32(13)
    z *= np.uint32(0xC2B2AE35)
    z ^= z >> np.uint32(16)
    return np.where(z >> np.uint32(31), -1, 1).astype(np.int8)
