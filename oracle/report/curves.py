"""Levels of detail of a curve: which of its N steps to keep so that no extreme is lost.

Nothing is averaged: a kept point is a traced point, and a bucket keeps its first, last, smallest,
largest and first non-finite value. Smoothing would erase the first divergence.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

Array = np.ndarray[Any, np.dtype[Any]]
POINTS_PER_CURVE = 3  # smallest, largest, first non-finite; first and last are common to curves


def extremes(values: Array, num_buckets: int) -> Array:
    """Return ascending indices (K,) into `values` (N,): of each bucket the points named above."""
    kept: set[int] = set()
    for bucket in np.array_split(np.arange(len(values)), max(1, min(num_buckets, len(values)))):
        if len(bucket) == 0:
            continue
        kept.update((int(bucket[0]), int(bucket[-1])))
        part = values[bucket]
        finite = bucket[np.isfinite(part)]
        if len(finite) < len(bucket):
            kept.add(int(bucket[np.argmin(np.isfinite(part))]))
        if len(finite):
            kept.add(int(finite[np.argmin(values[finite])]))
            kept.add(int(finite[np.argmax(values[finite])]))
    return np.array(sorted(kept), dtype=np.int64)


def kept(curves: Sequence[Array], *, must: Iterable[int], limit: int) -> Array:
    """Return ascending indices to keep of curves of one length N: all of them when N <= limit.

    Otherwise every index of `must` and the extremes of each curve, in as many buckets as keep the
    rest within `limit`.
    """
    num = len(curves[0])
    if num <= limit:
        return np.arange(num)
    needed = {index for index in must if 0 <= index < num}
    num_buckets = max(1, limit // (2 + POINTS_PER_CURVE * len(curves)))
    for curve in curves:
        needed.update(extremes(curve, num_buckets).tolist())
    return np.array(sorted(needed), dtype=np.int64)
