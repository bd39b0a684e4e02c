"""Numeric phases: the first place, its numbers worked by hand, ratios, and what follows."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from oracle.hints import lr_hint, ratio_hint

from .conftest import Judge, pair
from .synthetic import NAMES, Documents

FIELDS = [
    ("loss", "loss", "S-14"),
    ("grad_norm", "grad_norm", "S-15"),
    ("clip_factor", "clip", "S-16"),
    ("lr", "lr", "S-17"),
    ("param_norm", "params", "S-18"),
]


@pytest.mark.parametrize(("column", "phase", "clause"), FIELDS)
@pytest.mark.parametrize("step", [0, 5])
def test_one_number_is_found_at_its_step(
    judged: Judge, column: str, phase: str, clause: str, step: int
) -> None:
    a, b = pair()
    b["steps"][step][column] *= 1 + 1e-9
    verdict = judged(a, b)
    assert verdict.verdict == "DIVERGED"
    assert [(d.phase, d.step, d.field, d.clause) for d in verdict.divergences] == [
        (phase, step, f"steps.{column}", clause)
    ]
    first = verdict.divergences[0]
    assert first.absolute == pytest.approx(1e-9 * a["steps"][step][column], rel=1e-6)
    assert (float(first.a), float(first.b)) == (a["steps"][step][column], b["steps"][step][column])


def test_numbers_of_a_divergence_are_those_worked_by_hand(judged: Judge) -> None:
    a, b = pair()
    a["steps"][4]["loss"], b["steps"][4]["loss"] = 2.0, 2.0 + 4096 * 2.0**-51
    first = judged(a, b).first
    assert first is not None
    assert first.absolute == 4096 * 2.0**-51
    assert first.ulps == 4096
    assert first.relative == first.absolute / b["steps"][4]["loss"]
    # Ten times eight units in the last place of 2.
    assert first.allowed == pytest.approx(80 * 2.0**-51 / 2.0)
    assert first.rule == "configs/tolerances/float64.toml: steps.loss: 10 x floor, at most 1e-06"


@pytest.mark.parametrize(("ulps", "verdict"), [(79, "AGREE"), (81, "DIVERGED")])
def test_no_floor_is_under_eight_units_in_the_last_place(
    judged: Judge, ulps: int, verdict: str
) -> None:
    a, b = pair()
    loss = a["steps"][3]["loss"]
    b["steps"][3]["loss"] = loss + ulps * float(np.spacing(loss))
    assert judged(a, b, floor=0.0).verdict == verdict


@pytest.mark.parametrize(("factor", "verdict"), [(9.9, "AGREE"), (10.1, "DIVERGED")])
def test_ten_times_the_floor_passes_and_more_does_not(
    judged: Judge, factor: float, verdict: str
) -> None:
    a, b = pair()
    b["steps"][3]["grad_norm"] *= 1 - factor * 1e-10
    assert judged(a, b, floor=1e-10).verdict == verdict


def test_the_first_numeric_divergence_explains_what_comes_after_it(judged: Judge) -> None:
    a, b = pair()
    b["steps"][2]["loss"] *= 1.1
    for step in b["steps"][3:]:
        for column in ("loss", "grad_norm", "clip_factor", "param_norm"):
            step[column] *= 1.2
    verdict = judged(a, b)
    assert [(d.phase, d.step) for d in verdict.divergences] == [("loss", 2)]
    assert [(c.phase, c.because, c.first_step, c.num) for c in verdict.consequences] == [
        ("loss", "loss", 3, 5),
        ("grad_norm", "loss", 3, 5),
        ("clip", "loss", 3, 5),
        ("params", "loss", 3, 5),
    ]
    by_phase = {p.phase: p for p in verdict.phases}
    assert (by_phase["loss"].num_compared, by_phase["loss"].num_agreeing) == (3, 2)
    assert by_phase["grad_norm"].status == "consequence"
    assert by_phase["lr"].status == "agree"


def test_lr_is_never_explained_by_the_loss(judged: Judge) -> None:
    a, b = pair()
    b["steps"][1]["loss"] *= 1.1
    b["steps"][6]["lr"] *= 1.1
    verdict = judged(a, b)
    assert [(d.phase, d.step) for d in verdict.divergences] == [("loss", 1), ("lr", 6)]


def test_lr_explains_updates_and_later_losses(judged: Judge) -> None:
    a, b = pair()
    b["steps"][4]["lr"] *= 1.1
    for row in b["tensors"]:
        if row["kind"] in ("update", "param") and row["step"] >= 4:
            row["norm"] *= 1.1
    b["steps"][5]["loss"] *= 1.1
    verdict = judged(a, b)
    assert [d.phase for d in verdict.divergences] == ["lr"]
    assert {(c.phase, c.because) for c in verdict.consequences} == {
        ("loss", "lr"),
        ("update", "lr"),
        ("params", "lr"),
    }


def test_independent_faults_are_all_listed_in_causal_order(judged: Judge) -> None:
    a, b = pair()
    b["steps"][5]["lr"] *= 2
    b["steps"][0]["loss"] *= 2
    b["header"]["facts"]["pad_id"] = 2
    edge = b["tokens"][-1]
    edge["mask"] = [1] * len(edge["mask"])
    verdict = judged(a, b)
    assert [d.phase for d in verdict.divergences] == ["echo", "mask", "loss", "lr"]
    assert [d.id for d in verdict.divergences] == ["d1", "d2", "d3", "d4"]
    assert verdict.first == verdict.divergences[0]


def test_a_tie_at_one_step_goes_to_the_earlier_phase(judged: Judge) -> None:
    a, b = pair()
    for column in ("param_norm", "clip_factor", "grad_norm"):
        b["steps"][0][column] *= 1.5
    verdict = judged(a, b)
    assert [d.phase for d in verdict.divergences] == ["grad_norm"]
    assert {c.phase for c in verdict.consequences} == {"clip", "params"}


@pytest.mark.parametrize("odd", [0, 1])
def test_nan_on_one_side_is_a_divergence_of_its_own_kind(judged: Judge, odd: int) -> None:
    legs = pair()
    legs[odd]["steps"][3]["loss"] = math.nan
    first = judged(*legs).first
    assert first is not None
    assert (first.phase, first.step, first.relative) == ("loss", 3, None)
    assert first.hint == f"only {NAMES[odd]} is not finite"


def test_eval_of_other_targets_is_a_divergence_of_eval(judged: Judge) -> None:
    a, b = pair()
    b["steps"][-1]["eval_targets"] += 1
    first = judged(a, b).first
    assert first is not None
    assert (first.phase, first.field, first.step) == ("eval", "steps.eval_targets", 7)


def test_eval_on_one_side_only_is_a_divergence(judged: Judge) -> None:
    a, b = pair()
    b["steps"][3]["eval_loss"], b["steps"][3]["eval_targets"] = 2.0, 9
    assert [(d.phase, d.step) for d in judged(a, b).divergences] == [("eval", 3), ("eval", 3)]


def test_mask_of_an_eval_example_explains_the_eval_loss_and_no_training_loss(
    judged: Judge,
) -> None:
    a, b = pair()
    row = next(row for row in b["tokens"] if row["split"] == "eval")
    row["mask"] = [1] * len(row["mask"])
    b["steps"][-1]["eval_loss"] *= 1.1
    b["steps"][2]["loss"] *= 1.1
    verdict = judged(a, b)
    assert [d.phase for d in verdict.divergences] == ["mask", "loss"]
    assert ("eval", "mask") in {(c.phase, c.because) for c in verdict.consequences}


def tensor(made: Documents, step: int, kind: str, name: str) -> dict[str, Any]:
    return next(
        row
        for row in made["tensors"]
        if (row["step"], row["kind"], row["name"]) == (step, kind, name)
    )


@pytest.mark.parametrize(
    ("kind", "phase"),
    [
        ("grad", "grad"),
        ("m", "moments"),
        ("v", "moments"),
        ("update", "update"),
        ("param", "params"),
    ],
)
def test_one_bucket_of_one_sketch_is_found_at_its_tensor(
    judged: Judge, kind: str, phase: str
) -> None:
    a, b = pair()
    name = "model.layers.2.mlp.up_proj.weight"
    tensor(b, 4, kind, name)["sketch"][17] += 1e-3
    verdict = judged(a, b)
    assert [(d.phase, d.step, d.tensor) for d in verdict.divergences] == [(phase, 4, name)]
    assert verdict.divergences[0].absolute == pytest.approx(1e-3)


def test_a_permuted_tensor_of_equal_norm_is_found(judged: Judge) -> None:
    a, b = pair()
    row = tensor(b, 0, "grad", "model.norm.weight")
    row["sketch"] = row["sketch"][::-1]
    first = judged(a, b).first
    assert first is not None
    assert (first.phase, first.tensor) == ("grad", "model.norm.weight")
    assert first.a == first.b, "the norms are equal"
    assert (first.relative or 0) > 0.5


def test_noise_in_a_tensor_that_is_zero_in_exact_arithmetic_passes(judged: Judge) -> None:
    a, b = pair()
    name = "model.layers.0.self_attn.k_proj.bias"
    for made, sign in ((a, 1), (b, -1)):
        row = tensor(made, 0, "grad", name)
        row["sketch"] = [sign * 1e-18] * 64
        row["norm"] = 8e-18
    assert judged(a, b).verdict == "AGREE"


def test_a_small_tensor_that_is_wrong_is_found_all_the_same(judged: Judge) -> None:
    a, b = pair()
    for made, size in ((a, 1e-6), (b, 2e-6)):
        row = tensor(made, 0, "grad", "model.norm.weight")
        row["sketch"], row["norm"] = [size / 8] * 64, size
    first = judged(a, b).first
    assert first is not None
    assert first.tensor == "model.norm.weight"


def test_every_gradient_times_the_accumulation_steps_is_named(judged: Judge) -> None:
    a, b = pair()
    for row in b["tensors"]:
        if row["kind"] == "grad":
            row["norm"] *= 2
            row["sketch"] = [2 * value for value in row["sketch"]]
    first = judged(a, b).first
    assert first is not None
    assert (first.phase, first.step, first.num_like_it) == ("grad", 0, 5)
    assert first.hint is not None
    assert first.hint.startswith("6 of 6 tensors part, most ")
    assert first.hint.endswith("jax is torch times the accumulation steps (2)")


QUANTITIES = {"the accumulation steps": 4.0, "the rows of the step": 32.0}


@pytest.mark.parametrize(
    ("a", "b", "hint"),
    [
        (2.0, 8.0, "jax is torch times the accumulation steps (4)"),
        (8.0, 2.0, "torch is jax times the accumulation steps (4)"),
        (2.0, 4.0, "jax is torch times the square root of the accumulation steps (2)"),
        (3.0, 96.0, "jax is torch times the rows of the step (32)"),
        (3.0, 9.0, "jax is the square of torch"),
        (0.7, -0.7, "the same value with the other sign"),
        (2.0, 8.1, None),
        (0.0, 1.0, None),
        (math.nan, 1.0, None),
    ],
)
def test_ratio_hint(a: float, b: float, hint: str | None) -> None:
    assert ratio_hint(a, b, NAMES, QUANTITIES) == hint


RATES = [1e-3, 2e-3, 3e-3, 2.5e-3, 2e-3, 1.5e-3, 1e-3, 5e-4]


@pytest.mark.parametrize(
    ("place", "rates", "hint"),
    [
        (0, [*RATES[1:], 0.0], "jax is one step ahead: its rate is the next one of torch"),
        (1, [1e-3, *RATES[:-1]], "jax is one step behind: its rate is the previous one of torch"),
        (0, [0.0, *RATES[1:]], "jax begins its warm-up at 0"),
        (1, [*RATES[::2], 0, 0, 0, 0], "the schedule of jax moves 2 steps a step"),
        (3, [*RATES[:3], 1.0, *RATES[4:]], None),
    ],
)
def test_lr_hint(place: int, rates: list[float], hint: str | None) -> None:
    assert lr_hint(place, RATES, rates, NAMES, accumulation=2) == hint


def test_clipping_switched_off_is_named(judged: Judge) -> None:
    a, b = pair()
    assert a["steps"][0]["clip_factor"] < 1
    b["steps"][0]["clip_factor"] = 1.0
    first = judged(a, b).first
    assert first is not None
    assert (first.phase, first.hint) == ("clip", "jax does not clip")


def test_lr_near_the_end_of_a_cosine_is_judged_by_the_largest_rate(judged: Judge) -> None:
    a, b = pair()
    peak = max(step["lr"] for step in a["steps"])
    a["steps"][-1]["lr"], b["steps"][-1]["lr"] = 1e-9, 1e-9 + 4 * float(np.spacing(peak))
    assert judged(a, b).verdict == "AGREE"
    b["steps"][-1]["lr"] = 1e-9 + 16 * float(np.spacing(peak))
    assert judged(a, b).verdict == "DIVERGED"


def test_without_a_floor_step_0_is_judged_and_the_rest_is_inconclusive(judged: Judge) -> None:
    a, b = pair()
    verdict = judged(a, b, floor=None)
    assert verdict.verdict == "INCONCLUSIVE"
    assert "no noise floor of this run" in verdict.reasons[0]
    by_phase = {p.phase: p for p in verdict.phases}
    assert (by_phase["loss"].status, by_phase["loss"].num_compared) == ("not_judged", 1)
    assert (by_phase["lr"].status, by_phase["lr"].num_compared) == ("agree", 8)
    b["steps"][0]["loss"] *= 1 + 1e-10
    assert judged(a, b, floor=None).verdict == "DIVERGED"


def test_where_the_floor_reaches_the_cap_nothing_is_judged(judged: Judge) -> None:
    a, b = pair()
    b["steps"][5]["loss"] *= 1 + 1e-7
    verdict = judged(a, b, floor=1e-2)
    assert verdict.verdict == "INCONCLUSIVE"
    assert any("the noise floor reaches the cap" in reason for reason in verdict.reasons)


def test_float32_is_judged_on_exact_phases_and_step_0_even_with_a_floor(judged: Judge) -> None:
    a, b = pair(precision="float32")
    b["steps"][3]["loss"] *= 1.01
    verdict = judged(a, b, floor=1e-9)
    assert verdict.verdict == "INCONCLUSIVE"
    assert any("anchored runs do not exist yet" in reason for reason in verdict.reasons)
    b["steps"][0]["loss"] *= 1.001
    assert judged(a, b, floor=1e-9).first is not None


@pytest.mark.parametrize(("leg", "name"), [(0, "torch"), (1, "jax")])
def test_a_tensor_row_of_one_side_names_the_side_that_has_none(
    judged: Judge, leg: int, name: str
) -> None:
    legs = pair()
    gone = next(r for r in legs[leg]["tensors"] if r["kind"] == "grad" and r["step"] == 4)
    legs[leg]["tensors"].remove(gone)
    first = judged(*legs).first
    assert first is not None
    assert first.hint == f"{name} has no row of this tensor at this step"
    assert (first.a, first.b)[leg] == "absent"


def test_a_tensor_norm_that_is_not_a_number_is_shown_as_such(judged: Judge) -> None:
    a, b = pair()
    next(r for r in b["tensors"] if r["kind"] == "grad" and r["step"] == 4)["norm"] = math.nan
    first = judged(a, b).first
    assert first is not None
    assert (first.b, first.hint) == ("norm nan", "only jax is not finite")


@pytest.mark.parametrize("size", [1e-300, 1e-160, 1e160, 1e300])
@pytest.mark.parametrize(("factor", "verdict"), [(1 + 1e-15, "AGREE"), (1 + 1e-9, "DIVERGED")])
@pytest.mark.filterwarnings("error")
def test_tensors_whose_squares_leave_float64_are_judged_as_any_other(
    judged: Judge, size: float, factor: float, verdict: str
) -> None:
    legs = pair()
    for made, own in zip(legs, (1.0, factor), strict=True):
        for row in made["tensors"]:
            if row["kind"] == "update":
                row["norm"] *= size * own
                row["sketch"] = [value * size * own for value in row["sketch"]]
    found = judged(*legs)
    assert (found.verdict, found.first and found.first.field) == (
        verdict,
        None if verdict == "AGREE" else "tensors.update",
    )
