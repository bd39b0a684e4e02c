"""What is finite in neither leg is no agreement, and nothing after it is a difference (S-19)."""

from __future__ import annotations

import math
from typing import Any

import pytest

from .conftest import Judge, pair
from .synthetic import Documents


def put(made: Documents, step: int, **values: float) -> None:
    made["steps"][step].update(values)


def phase_of(verdict: Any, name: str) -> Any:
    return next(phase for phase in verdict.phases if phase.phase == name)


@pytest.mark.parametrize(
    ("a", "b"), [(math.inf, math.inf), (math.nan, math.inf), (-math.inf, math.inf)]
)
def test_after_an_overflow_in_both_legs_nothing_is_judged(
    judged: Judge, a: float, b: float
) -> None:
    legs = pair()
    put(legs[0], 2, param_norm=a)
    put(legs[1], 2, param_norm=b)
    # One stack goes on with nan, the other falls back to ln V: neither is wrong.
    put(legs[0], 3, loss=math.nan, grad_norm=math.nan)
    put(legs[1], 3, loss=math.log(4096), grad_norm=0.0)
    verdict = judged(*legs)
    assert verdict.verdict == "INCONCLUSIVE"
    assert (verdict.first, verdict.divergences, verdict.consequences) == (None, (), ())
    [reason] = [reason for reason in verdict.reasons if "not finite in both legs" in reason]
    assert "steps.param_norm from step 2 on" in reason
    loss = phase_of(verdict, "loss")
    assert (loss.status, loss.num_compared, loss.num_agreeing) == ("not_judged", 3, 3)
    assert loss.reason == "5 values follow from what is finite in neither leg at step 2"


def test_a_leg_that_alone_is_not_finite_parts_there(judged: Judge) -> None:
    legs = pair()
    put(legs[0], 3, loss=math.nan)
    verdict = judged(*legs)
    assert verdict.first is not None
    assert (verdict.first.phase, verdict.first.step) == ("loss", 3)
    assert verdict.first.hint == "only torch is not finite"


def test_what_parts_where_another_value_overflows_still_parts(judged: Judge) -> None:
    legs = pair()
    for made in legs:
        put(made, 2, param_norm=math.inf)
    put(legs[1], 2, loss=legs[1]["steps"][2]["loss"] * 1.1)  # loss comes before params
    verdict = judged(*legs)
    assert verdict.first is not None
    assert (verdict.first.phase, verdict.first.step) == ("loss", 2)


def test_one_tensor_that_parts_beside_one_that_overflows_parts(judged: Judge) -> None:
    legs = pair()
    for made in legs:
        row = next(r for r in made["tensors"] if (r["kind"], r["step"]) == ("param", 4))
        row["norm"] = math.inf
    rows = [r for r in legs[1]["tensors"] if (r["kind"], r["step"]) == ("param", 4)]
    rows[1]["norm"] *= 2
    rows[1]["sketch"] = [2 * value for value in rows[1]["sketch"]]
    verdict = judged(*legs)
    assert verdict.first is not None
    assert (verdict.first.phase, verdict.first.step, verdict.first.tensor) == (
        "params",
        4,
        rows[1]["name"],
    )
    assert phase_of(verdict, "loss").reason == "3 values follow from params, which parts at step 4"


def test_a_learning_rate_stands_beside_the_chain(judged: Judge) -> None:
    legs = pair()
    for made in legs:
        put(made, 2, loss=math.nan)
    put(legs[1], 5, lr=2 * legs[1]["steps"][5]["lr"])
    verdict = judged(*legs)
    assert verdict.first is not None
    assert (verdict.first.phase, verdict.first.step) == ("lr", 5)
