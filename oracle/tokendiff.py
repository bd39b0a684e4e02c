"""Aligned differences of two sequences: Myers' O(ND) algorithm, bounded on long inputs.

A range is `{"op": "equal" | "replace" | "delete" | "insert", "a": [start, end), "b": [start, end)}`
in tokens or characters. Equal ends are cut off first; when what is left differs in more than
`MAX_EDITS` places it is one `replace`, which is what a reader would make of it too.

Source: E. Myers, "An O(ND) Difference Algorithm and Its Variations", Algorithmica 1 (1986).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

MAX_EDITS = 200
MAX_RANGES = 64

Op = Literal["equal", "replace", "delete", "insert"]
Ids = npt.NDArray[np.integer[Any]]


def codepoints(text: str) -> Ids:
    """Return the characters of a text as numbers."""
    return np.frombuffer(text.encode("utf-32-le", "surrogatepass"), dtype=np.uint32)


def common_prefix(a: Ids, b: Ids) -> int:
    """Return the length of the common beginning."""
    size = min(len(a), len(b))
    unequal = np.flatnonzero(a[:size] != b[:size])
    return int(unequal[0]) if len(unequal) else size


def diff(a: Ids, b: Ids) -> tuple[dict[str, Any], ...]:
    """Return the aligned ranges of two sequences, in order, covering both."""
    head = common_prefix(a, b)
    tail = common_prefix(a[head:][::-1], b[head:][::-1])
    middle_a, middle_b = a[head : len(a) - tail], b[head : len(b) - tail]
    matches = [(0, 0, head)] if head else []
    matches += [(x + head, y + head, n) for x, y, n in _matches(middle_a, middle_b)]
    matches.append((len(a) - tail, len(b) - tail, tail))
    return _ranges(matches)


def mask_diff(a: Ids, b: Ids) -> tuple[dict[str, Any], ...]:
    """Return the ranges of two masks over the same tokens: equal, or not."""
    equal = np.concatenate([[-1], (a == b).astype(int), [-1]])
    cuts = np.flatnonzero(np.diff(equal))
    return _bounded(
        [
            _range("equal" if equal[s + 1] else "replace", (s, e), (s, e))
            for s, e in zip(cuts[:-1].tolist(), cuts[1:].tolist(), strict=True)
        ]
    )


def _matches(a: Ids, b: Ids) -> list[tuple[int, int, int]]:
    """Return runs (start in a, start in b, length) of the longest common subsequence."""
    if not len(a) or not len(b):
        return []
    trace = _forward(a.tolist(), b.tolist())
    if trace is None:
        return []
    return _backtrack(trace, len(a), len(b))


def _forward(a: list[int], b: list[int]) -> list[dict[int, int]] | None:
    """Return the furthest x on each diagonal for each number of edits; None when over the bound."""
    reach = {1: 0}
    trace = []
    for edits in range(min(MAX_EDITS, len(a) + len(b)) + 1):
        trace.append(dict(reach))
        for k in range(-edits, edits + 1, 2):
            down = k == -edits or (k != edits and reach[k - 1] < reach[k + 1])
            x = reach[k + 1] if down else reach[k - 1] + 1
            y = x - k
            while x < len(a) and y < len(b) and a[x] == b[y]:
                x, y = x + 1, y + 1
            reach[k] = x
            if x >= len(a) and y >= len(b):
                return trace
    return None


def _backtrack(trace: list[dict[int, int]], x: int, y: int) -> list[tuple[int, int, int]]:
    matches = []
    for edits in range(len(trace) - 1, -1, -1):
        reach, k = trace[edits], x - y
        down = k == -edits or (k != edits and reach[k - 1] < reach[k + 1])
        before = k + 1 if down else k - 1
        from_x = reach[before]
        from_y = from_x - before
        # Where the diagonal run of this round began: after the edit, or at the origin.
        start_x, start_y = (0, 0) if edits == 0 else (from_x + (not down), from_y + down)
        if x > start_x:
            matches.append((start_x, start_y, x - start_x))
        x, y = from_x, from_y
    return matches[::-1]


def _ranges(matches: Sequence[tuple[int, int, int]]) -> tuple[dict[str, Any], ...]:
    """Turn matched runs, the last one at both ends, into ranges that cover both sequences."""
    ranges, x, y = [], 0, 0
    for start_a, start_b, length in matches:
        if start_a > x or start_b > y:
            op: Op = "insert" if start_a == x else "delete" if start_b == y else "replace"
            ranges.append(_range(op, (x, start_a), (y, start_b)))
        x, y = start_a + length, start_b + length
        if length:
            ranges.append(_range("equal", (start_a, x), (start_b, y)))
    return _bounded(ranges)


def _range(op: Op, a: tuple[int, int], b: tuple[int, int]) -> dict[str, Any]:
    return {"op": op, "a": list(a), "b": list(b)}


def _bounded(ranges: list[dict[str, Any]]) -> tuple[dict[str, Any], ...]:
    """Join what follows the first `MAX_RANGES` ranges into one `replace`."""
    if len(ranges) <= MAX_RANGES:
        return tuple(ranges)
    kept, rest = ranges[: MAX_RANGES - 1], ranges[MAX_RANGES - 1 :]
    joined = _range(
        "replace", (rest[0]["a"][0], rest[-1]["a"][1]), (rest[0]["b"][0], rest[-1]["b"][1])
    )
    return (*kept, joined)
