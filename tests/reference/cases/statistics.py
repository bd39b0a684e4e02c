"""Cases of S-21. Signs of the first entries of `w` (first bytes of its hash 50e721e4), by shell:

i   i·0x9E3779B1 ^ k   ^>>16     ·0x85EBCA6B   ^>>13     ·0xC2B2AE35   ^>>16     sign
0   50e721e4           50e77103  bca99a41      bcac7f0d  7f1b23b1      7f1b5caa  +
1   ced05855           ced09685  4d0adb97      4d08b3c1  1b2c64f5      1b2c7fd9  +
2   6c89d286           6c89be0f  504f4645      504dc43f  ad4a730b      ad4ade41  -
3   8a414cf7           8a41c6b6  a75baa12      a75e90cf  7aeeacdb      7aeed635  +
"""

from typing import Any

from tests.reference.case import Case, Clause, computed, hand
from tests.reference.cases.loss import wave


def _hand(name: str, values: Any, norm: float, mean: float, top: float, head: list[float]) -> Case:
    expected = {
        "norm": norm,
        "mean": mean,
        "max_abs": top,
        "sketch": head + [0.0] * (64 - len(head)),
    }
    return hand(name, "statistics", {"name": "w", "values": values}, expected, 1e-15)


def _case(name: str, tensor: str, values: Any, *, rtol: float = 2e-15, atol: float = 0.0) -> Case:
    given = {"name": tensor, "values": values}
    return computed(name, "statistics", given, rtol=rtol, atol=atol)


CASES = [
    _hand("no entries", [], 0.0, 0.0, 0.0, []),
    _hand("no entries in two dimensions", [[], []], 0.0, 0.0, 0.0, []),
    _hand("a scalar", -2.5, 2.5, -2.5, 2.5, [-2.5]),
    _hand("one zero", [0.0], 0.0, 0.0, 0.0, [0.0]),
    _hand("signs of four entries", [1.0, 2.0, 4.0, -10.0], 11.0, -0.75, 10.0, [1, 2, -4, -10]),
    _hand("row-major", [[1.0, 2.0], [4.0, -10.0]], 11.0, -0.75, 10.0, [1, 2, -4, -10]),
    _hand("largest magnitude is negative", [0.0, 0.0, -3.0], 3.0, -1.0, 3.0, [0, 0, 3]),
    _case("all zero", "model.norm.weight", [0.0] * 70),
    _case("exactly 64 entries", "w", wave(64)),
    _case("65 entries wrap into the first bucket", "w", wave(65)),
    _case("a matrix", "model.layers.0.mlp.up_proj.weight", wave(24, 17, seed=3)),
    _case(
        "its transpose has another sketch",
        "model.layers.0.mlp.up_proj.weight",
        [list(row) for row in zip(*wave(24, 17, seed=3), strict=True)],
    ),
    _case("the name chooses the signs", "model.layers.1.mlp.up_proj.weight", wave(24, 17, seed=3)),
    _case("three dimensions", "x", wave(5, 6, 7, seed=4)),
    _case("a name that is not ASCII", "gewicht_\u00e4\U0001f9e0", wave(40, seed=5)),
    _case("a thousand entries", "lm_head.weight", wave(1000, seed=6)),
    _case("thirds", "w", [((i * 37) % 101 - 50) / 3 for i in range(200)], rtol=1e-14, atol=1e-14),
    _case("very small entries", "w", wave(130, scale=1e-30, seed=7), rtol=1e-14, atol=1e-43),
]

CLAUSE = Clause(
    clause="S-21",
    note=(
        "Values are multiples of 1/1024, so sums are exact in any order and only the root rounds:"
        " 2e-15. Where values are not dyadic, bucket sums cancel: atol is a unit in the last place"
        " of the largest entry, times the few entries of a bucket."
    ),
    cases=CASES,
)
