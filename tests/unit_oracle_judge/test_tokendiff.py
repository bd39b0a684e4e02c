"""Aligned differences: they cover both sides, are minimal, and stay bounded."""

from __future__ import annotations

import time

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from oracle.tokendiff import MAX_RANGES, codepoints, diff, mask_diff

IDS = st.lists(st.integers(0, 3), max_size=14)


def longest_common(a: list[int], b: list[int]) -> int:
    table = [[0] * (len(b) + 1) for _ in range(len(a) + 1)]
    for i, x in enumerate(a):
        for j, y in enumerate(b):
            longer = max(table[i][j + 1], table[i + 1][j])
            table[i + 1][j + 1] = table[i][j] + 1 if x == y else longer
    return table[-1][-1]


@given(IDS, IDS)
@settings(deadline=None)
def test_ranges_cover_both_sides_and_keep_the_longest_common_part(
    a: list[int], b: list[int]
) -> None:
    x = y = equal = 0
    for entry in diff(np.array(a, dtype=int), np.array(b, dtype=int)):
        assert (entry["a"][0], entry["b"][0]) == (x, y)
        x, y = entry["a"][1], entry["b"][1]
        part_a, part_b = a[entry["a"][0] : x], b[entry["b"][0] : y]
        assert (part_a == part_b) == (entry["op"] == "equal")
        assert (not part_a) == (entry["op"] == "insert")
        assert (not part_b) == (entry["op"] == "delete")
        equal += len(part_a) if entry["op"] == "equal" else 0
    assert (x, y) == (len(a), len(b))
    assert equal == longest_common(a, b)


def test_a_token_in_front_is_one_insertion() -> None:
    a = np.arange(500)
    assert diff(a, np.concatenate([[7], a])) == (
        {"op": "insert", "a": [0, 0], "b": [0, 1]},
        {"op": "equal", "a": [0, 500], "b": [1, 501]},
    )


def test_long_sequences_without_anything_in_common_are_one_replacement() -> None:
    rng = np.random.default_rng(0)
    a, b = rng.integers(0, 40_000, 30_000), rng.integers(0, 40_000, 30_000)
    start = time.perf_counter()
    ranges = diff(a, b)
    assert time.perf_counter() - start < 5
    assert len(ranges) <= 3
    assert any(entry["op"] == "replace" for entry in ranges)


def test_the_number_of_ranges_is_bounded() -> None:
    a = np.zeros(1000, dtype=int)
    b = a.copy()
    b[::10] = 1
    ranges = mask_diff(a, b)
    assert len(ranges) == MAX_RANGES
    assert ranges[-1]["a"][1] == 1000


def test_characters_are_code_points() -> None:
    assert codepoints("a😀é").tolist() == [97, 0x1F600, 0xE9]
