"""Statistics of a tensor (S-21): norm, mean, largest magnitude and the sketch of 64 numbers."""

import hashlib
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

NUM_BUCKETS = 64
MASK = 0xFFFFFFFF


def name_key(name: str) -> int:
    """First four bytes of the name's SHA-256 as a big-endian number."""
    return int.from_bytes(hashlib.sha256(name.encode()).digest()[:4], "big")


def sign(index: int, key: int) -> int:
    """The sign of entry `index`, in Python integers masked to 32 bits."""
    z = ((index * 0x9E3779B1) & MASK) ^ key
    z ^= z >> 16
    z = (z * 0x85EBCA6B) & MASK
    z ^= z >> 13
    z = (z * 0xC2B2AE35) & MASK
    z ^= z >> 16
    return -1 if z & 0x80000000 else 1


@dataclass(frozen=True, kw_only=True)
class Statistics:
    """The record of one tensor; all zero for a tensor without entries."""

    norm: float
    mean: float
    max_abs: float
    sketch: tuple[float, ...]


def tensor_statistics(
    name: str, values: npt.NDArray[np.floating[Any]], number: type[np.floating] = np.float64
) -> Statistics:
    """Statistics of `values` in row-major order, accumulated in `number`."""
    flat = np.ascontiguousarray(values).reshape(-1).astype(number)
    if flat.size == 0:
        return Statistics(norm=0.0, mean=0.0, max_abs=0.0, sketch=(0.0,) * NUM_BUCKETS)
    key = name_key(name)
    signs = np.array([sign(i, key) for i in range(flat.size)], dtype=number)
    padded = np.zeros(-(-flat.size // NUM_BUCKETS) * NUM_BUCKETS, dtype=number)
    padded[: flat.size] = signs * flat
    sketch = padded.reshape(-1, NUM_BUCKETS).sum(axis=0)
    return Statistics(
        norm=float(np.sqrt(np.sum(flat * flat))),
        mean=float(np.sum(flat) / number(flat.size)),
        max_abs=float(np.max(np.abs(flat))),
        sketch=tuple(float(entry) for entry in sketch),
    )
