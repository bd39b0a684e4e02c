from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from tests.reference.schedule import learning_rate

KINDS = st.sampled_from(["constant", "linear", "cosine"])


def rates(kind: str, warmup: int, steps: int, ratio: float) -> list[float]:
    return [
        float(
            learning_rate(
                kind,
                rate=1.0,
                warmup_steps=warmup,
                num_steps=steps,
                min_ratio=ratio,
                update=t,
            )
        )
        for t in range(steps)
    ]


@given(KINDS, st.integers(0, 20), st.integers(1, 60), st.floats(0, 1))
def test_peak_and_floor_stand_where_the_clause_says(
    kind: str, warmup: int, more: int, ratio: float
) -> None:
    steps = warmup + more
    lr = rates(kind, warmup, steps, ratio)
    assert lr[warmup] == 1.0
    if kind != "constant" and steps - 1 > warmup:
        assert abs(lr[-1] - ratio) < 1e-15
    assert all(a < b for a, b in pairwise(lr[: warmup + 1]))
    assert all(a >= b for a, b in pairwise(lr[warmup:]))


@given(st.integers(2, 60), st.floats(0, 1))
def test_cosine_and_linear_are_symmetric_about_their_middle(steps: int, ratio: float) -> None:
    for kind in ("linear", "cosine"):
        lr = rates(kind, 0, steps, ratio)
        for early, late in zip(lr, reversed(lr), strict=True):
            assert abs(early + late - (1 + ratio)) < 1e-14
