"""Rows (S-09): which examples share a row. Next-fit: only the last row is ever open."""

from collections.abc import Sequence


def fill_rows(lengths: Sequence[int], *, max_length: int, packing: bool) -> list[list[int]]:
    """Positions in `lengths` (tokens of each example, in epoch order), row by row."""
    if not packing:
        return [[i] for i in range(len(lengths))]
    rows: list[list[int]] = []
    room = -1  # tokens that the last row can still take; no row is open at the start
    for i, length in enumerate(lengths):
        if length <= room:
            rows[-1].append(i)
            room -= length
        else:
            rows.append([i])
            room = max_length - length
    return rows
