"""Group F of the fault catalogue: what has passed as agreement elsewhere must not here."""

from __future__ import annotations

import dataclasses
import math
from pathlib import Path

import pytest

from oracle.errors import TraceError
from oracle.tolerance import default_file
from oracle.trace import read_trace
from oracle.verdict import error_verdict, judge

from .conftest import Judge, pair
from .synthetic import NAMES, Documents, documents, read, write


def both(legs: tuple[Documents, Documents], step: int | None, column: str, value: object) -> None:
    for made in legs:
        for row in made["steps"] if step is None else [made["steps"][step]]:
            row[column] = value


def test_a_clean_pair_agrees(judged: Judge) -> None:
    verdict = judged(*pair())
    assert (verdict.verdict, verdict.exit_code, verdict.reasons) == ("AGREE", 0, ())
    assert verdict.first is None
    assert {p.status for p in verdict.phases if p.phase != "forward"} == {"agree"}
    assert {p.agreement for p in verdict.phases if p.phase != "forward"} == {1.0}
    assert verdict.summary["num_steps"] == 8
    assert verdict.floor is not None


@pytest.mark.parametrize(
    ("column", "value", "sentence"),
    [
        ("grad_norm", 0.0, "torch is dead: its gradient norm is 0 at every step"),
        ("loss", 8.3, "torch is dead: its loss never moves"),
        ("param_norm", 10.0, "torch is dead: its parameters never change"),
    ],
)
def test_f01_two_dead_legs(judged: Judge, column: str, value: float, sentence: str) -> None:
    legs = pair()
    both(legs, None, column, value)
    verdict = judged(*legs)
    assert verdict.verdict == "INCONCLUSIVE"
    assert sentence in verdict.reasons
    assert sentence.replace("torch", "jax") in verdict.reasons


def test_parameters_that_stand_still_at_a_rate_of_0_are_not_dead(judged: Judge) -> None:
    legs = pair()
    both(legs, None, "param_norm", 10.0)
    both(legs, None, "lr", 0.0)
    assert judged(*legs).verdict == "AGREE"


def test_f02_the_same_code_on_both_sides(judged: Judge) -> None:
    a, b = pair()
    b["header"]["provenance"]["code_sha256"] = a["header"]["provenance"]["code_sha256"]
    verdict = judged(a, b)
    assert verdict.verdict == "INCONCLUSIVE"
    assert "both legs ran the same code" in verdict.reasons[0]
    assert judged(a, b, purpose="self").verdict == "AGREE"


def test_f03_unequal_step_counts(judged: Judge) -> None:
    a, b = pair()
    a["steps"] = a["steps"][:7]
    assert judged(a, b).verdict == "DIVERGED"


def test_f03_both_legs_short_of_the_run(judged: Judge) -> None:
    a, b = pair()
    for made in (a, b):
        made["steps"] = made["steps"][:6]
        made["tensors"] = [row for row in made["tensors"] if row["step"] < 6]
    verdict = judged(a, b)
    assert verdict.verdict == "INCONCLUSIVE"
    assert "the run has 8 steps and both legs recorded 6" in verdict.reasons


def test_f03_too_few_steps(judged: Judge) -> None:
    verdict = judged(*pair(num_steps=1))
    assert verdict.verdict == "INCONCLUSIVE"
    assert any("1 steps are too few" in reason for reason in verdict.reasons)


@pytest.mark.parametrize("column", ["grad_norm", "clip_factor", "loss", "param_norm"])
def test_f04_a_channel_missing_on_one_side(tmp_path: Path, column: str) -> None:

    import polars as pl

    a, b = (read(tmp_path / made["header"]["nonce"], made) for made in pair())
    cut = dataclasses.replace(b, steps=b.steps.with_columns(pl.lit(None, pl.Float64).alias(column)))
    verdict = judge(a, cut, purpose="cross", names=NAMES, tolerances=None, floor=None, run=None)
    assert verdict.verdict != "AGREE"
    assert f"jax has steps without {column}, which is required" in verdict.reasons


def test_f04_tensors_recorded_on_one_side_only(judged: Judge) -> None:
    a, b = pair()
    b["tensors"] = [row for row in b["tensors"] if row["kind"] != "update"]
    verdict = judged(a, b)
    assert verdict.verdict == "INCONCLUSIVE"
    assert verdict.reasons == (
        "jax lacks 18 rows of tensors/ that S-21 asks for, first update of "
        "model.embed_tokens.weight at step 0",
    )


def test_f05_nan_on_both_sides_at_the_same_step(judged: Judge) -> None:
    legs = pair()
    both(legs, 5, "loss", math.nan)
    verdict = judged(*legs)
    assert verdict.verdict == "INCONCLUSIVE"
    assert any("not finite in both legs" in reason for reason in verdict.reasons)
    legs[1]["steps"][2]["loss"] *= 1.1
    assert judged(*legs).verdict == "DIVERGED", "what parted before the NaN still counts"


ABSURD = [
    ("cap = 1e-06", "cap = 1.0"),
    ("cap = 1e-06", "cap = inf"),
    ("step0 = 1e-13", "step0 = 0.5"),
    ("minimum_ulps = 8", "minimum_ulps = 1e300"),
    ("guard = 1e-3", "guard = 1e9"),
]


@pytest.mark.parametrize(("old", "new"), ABSURD)
def test_f06_a_rule_that_passes_everything(
    judged: Judge, tmp_path: Path, old: str, new: str
) -> None:
    path = tmp_path / "wide.toml"
    path.write_text(default_file("float64").read_text().replace(old, new, 1))
    verdict = judged(*pair(), tolerances=path)
    assert verdict.verdict == "INCONCLUSIVE"
    assert any("must stay under 0.1" in reason for reason in verdict.reasons)


def test_f06_a_file_that_compares_nothing(judged: Judge, tmp_path: Path) -> None:
    path = tmp_path / "empty.toml"
    path.write_text(default_file("float64").read_text().split("[rule.")[0])
    verdict = judged(*pair(), tolerances=path)
    assert verdict.verdict == "INCONCLUSIVE"
    assert any(reason.endswith("no rule for steps.loss") for reason in verdict.reasons)


def test_f06_one_rule_missing(judged: Judge, tmp_path: Path) -> None:
    whole = default_file("float64").read_text()
    start = whole.index('[rule."steps.grad_norm"]')
    end = whole.index('[rule."steps.clip_factor"]')
    path = tmp_path / "short.toml"
    path.write_text(whole[:start] + whole[end:])
    assert judged(*pair(), tolerances=path).verdict == "INCONCLUSIVE"


def test_f06_tolerances_of_another_precision_are_an_error(judged: Judge) -> None:
    verdict = judged(*pair(), tolerances=default_file("float32"))
    assert verdict.verdict == "ERROR"
    assert "is for float32 and the run is float64" in verdict.reasons[0]


def test_f07_a_trace_of_an_earlier_run_is_refused_by_its_nonce(tmp_path: Path) -> None:
    write(tmp_path / "old", documents())
    with pytest.raises(TraceError, match="nonce"):
        read_trace(tmp_path / "old", nonce="nonce-of-this-run")


def test_f08_no_overlap_in_steps(tmp_path: Path) -> None:
    a, b = (read(tmp_path / made["header"]["nonce"], made) for made in pair())
    a = dataclasses.replace(a, steps=a.steps.head(4))
    b = dataclasses.replace(b, steps=b.steps.tail(4))
    verdict = judge(a, b, purpose="cross", names=NAMES, tolerances=None, floor=None, run=None)
    assert (verdict.verdict, verdict.exit_code) == ("ERROR", 2)
    assert verdict.reasons == (
        "no step is in both traces: torch has steps 0 to 3, jax steps 4 to 7.",
    )


def test_f08_no_overlap_in_examples(judged: Judge) -> None:
    a, b = pair()
    for row in b["tokens"]:
        row["id"] += "-other"
    assert judged(a, b).verdict == "ERROR"


def test_f09_a_truncated_line_is_refused(tmp_path: Path) -> None:
    path = write(tmp_path / "cut", documents())
    steps = path / "steps.jsonl"
    steps.write_bytes(steps.read_bytes()[:-20])
    with pytest.raises(TraceError, match="cut"):
        read_trace(path)


def test_f10_a_trace_of_another_config(judged: Judge) -> None:
    a, b = pair()
    b["header"]["config_sha256"] = "e" * 64
    verdict = judged(a, b)
    assert (verdict.verdict, verdict.exit_code) == ("ERROR", 2)
    assert "config_sha256 is cccccccccccc in torch and eeeeeeeeeeee in jax" in verdict.reasons[0]


def test_f10_train_against_render_is_an_error(judged: Judge) -> None:
    assert judged(documents(), documents(stack="jax", mode="render")).verdict == "ERROR"


def test_f11_the_same_fault_in_both_legs_is_a_blind_spot_of_comparison(judged: Judge) -> None:
    """Two legs that make one mistake agree; only a golden vector of the clause sees it."""
    legs = pair()
    for made in legs:
        for row in made["tokens"]:
            row["mask"] = [1] * len(row["mask"])
    assert judged(*legs).verdict == "AGREE"


def test_an_error_names_each_leg_and_what_is_known(tmp_path: Path) -> None:
    from oracle.report.json import dumps

    a = read(tmp_path / "a", documents())
    verdict = error_verdict(
        reasons=["jax crashed at step 3."],
        names=NAMES,
        traces=(a, None),
        paths=("", "runs/x/jax"),
        errors=(None, "killed by SIGKILL"),
    )
    dumps(verdict)
    assert verdict.exit_code == 2
    assert verdict.headline == "could not be judged: jax crashed at step 3."
    assert (verdict.legs[0].stack, verdict.legs[1].error) == ("torch", "killed by SIGKILL")
    assert verdict.config["precision"] == "float64"


def test_a_render_is_judged_on_its_examples_alone(judged: Judge) -> None:
    legs = pair(mode="render")
    verdict = judged(*legs, floor=None)
    assert (verdict.verdict, verdict.mode) == ("AGREE", "render")
    assert verdict.summary["num_examples"] == 20
    row = legs[1]["tokens"][2]
    row["mask"] = [1] * len(row["mask"])
    assert judged(*legs, floor=None).verdict == "DIVERGED"
