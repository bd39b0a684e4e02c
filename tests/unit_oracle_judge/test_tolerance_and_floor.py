"""Rules and floors: arithmetic by hand, running maxima, files that are refused, provenance."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from oracle.contract import Verdict
from oracle.errors import ConfigError
from oracle.floor import Floor, choose_floor, find_floor, read_floor, rising, write_floor
from oracle.report.words import remedy
from oracle.tolerance import Rule, allowed, default_file, load_tolerances, ulp

from .conftest import Judge, pair
from .synthetic import Documents

LEG: dict[str, Any] = {
    "code_sha256": "a" * 64,
    "versions": {"numpy": "2.4.6", "torch": "2.13.0"},
    "python": "3.11.0",
    "machine": {"system": "Linux", "cores": 2},
    "device": "cpu",
    "files": {"train": ["d" * 64]},
}


def rule(**changes: Any) -> Rule:
    values: dict[str, Any] = {
        "field": "steps.loss", "multiple": 10.0, "cap": 1e-6, "minimum_ulps": 8, "step0": 1e-13,
        "needs_floor": True, "reason": "r", "provenance": "p",
    }  # fmt: skip
    return Rule(**values | changes)


def limits(made: Rule, floor: list[float] | None, steps: list[int], scale: float = 1.0) -> Any:
    return allowed(
        made,
        steps=np.array(steps),
        scale=np.full(len(steps), scale),
        floor=None if floor is None else np.array(floor),
        precision="float64",
        trajectory=True,
    )


@pytest.mark.parametrize(
    ("value", "precision", "unit"),
    [
        (1.0, "float64", 2.0**-52),
        (2.0, "float64", 2.0**-51),
        (1.999, "float64", 2.0**-52),
        (1.0, "float32", 2.0**-23),
        (3.0, "float32", 2.0**-22),
    ],
)
def test_a_unit_in_the_last_place(value: float, precision: str, unit: float) -> None:
    assert ulp(np.array([value]), precision)[0] == unit


def test_allowed_is_a_multiple_of_the_floor_and_of_no_less_than_eight_units() -> None:
    found = limits(rule(), [0.0, 1e-15, 1e-12, 1e-7, 1.1e-7, math.inf, math.nan], list(range(7)))
    eight = 8 * 2.0**-52
    assert found[:4].tolist() == pytest.approx([10 * eight, 10 * eight, 1e-11, 1e-6])
    assert np.isnan(found[4:]).all(), "over the cap, without bound, or never measured"


def test_units_are_relative_to_the_value() -> None:
    assert limits(rule(), [0.0], [1], scale=1.999)[0] == pytest.approx(80 * 2.0**-52 / 1.999)


def test_without_a_floor_only_step_0_is_judged() -> None:
    found = limits(rule(), None, [0, 1, 2])
    assert found[0] == 1e-13
    assert np.isnan(found[1:]).all()


def test_a_rule_without_need_of_a_floor_judges_every_step() -> None:
    found = limits(rule(needs_floor=False), None, [0, 9], scale=2.0)
    assert found.tolist() == [8 * 2.0**-51 / 2.0] * 2


@pytest.mark.parametrize("precision", ["float64", "float32"])
def test_the_files_of_the_repository_have_a_rule_for_every_field(precision: str) -> None:
    assert load_tolerances(default_file(precision)).weaknesses() == []


BROKEN = [
    ("minimum_steps = 2", "", "lacks minimum_steps"),
    ("minimum_steps = 2", "minimum_steps = 2\nextra = 1", "unknown extra"),
    ("multiple = 10.0", 'multiple = "ten"', "should be a float"),
    ("multiple = 10.0", "multiple = -1.0", "must be at least 0"),
    ("multiple = 10.0", "multiple = nan", "must be at least 0"),
    ('precision = "float64"', 'precision = "float16"', "known: float64, float32"),
    ('[rule."steps.loss"]', '[rule."steps.lost"]', "not a numeric field"),
    ("[run]", "[run", "cannot be read as a tolerance file"),
    ("[run]", "[ran]", "lacks run"),
]


@pytest.mark.parametrize(("old", "new", "sentence"), BROKEN)
def test_a_malformed_tolerance_file_is_refused(
    tmp_path: Path, old: str, new: str, sentence: str
) -> None:
    path = tmp_path / "t.toml"
    path.write_text(default_file("float64").read_text().replace(old, new, 1))
    with pytest.raises(ConfigError, match=sentence):
        load_tolerances(path)


def test_a_rule_without_a_reason_is_refused(tmp_path: Path) -> None:
    text = default_file("float64").read_text()
    start = text.index('reason = "One forward')
    path = tmp_path / "t.toml"
    path.write_text(text[:start] + 'reason = " "' + text[text.index("\n", start) :])
    with pytest.raises(ConfigError, match="empty reason"):
        load_tolerances(path)


def test_rising_keeps_the_steps_at_which_the_running_maximum_rises() -> None:
    steps = np.array([0, 1, 2, 3, 4, 5])
    values = np.array([0.0, 2e-16, 1e-16, 5e-16, 5e-16, 4e-16])
    assert rising(steps, values) == [[1, 2e-16], [3, 5e-16]]


def test_rising_takes_the_largest_of_several_variants_and_tensors_at_a_step() -> None:
    steps, values = np.array([0, 1, 0, 1]), np.array([1.0, 2.0, 3.0, 1.0])
    assert rising(steps, values) == [[0, 3.0]]
    assert rising(np.array([2, 2]), np.array([1.0, 4.0])) == [[2, 4.0]]


def test_what_is_not_finite_is_a_floor_without_bound() -> None:
    assert rising(np.array([0, 1]), np.array([1.0, math.nan])) == [[0, 1.0], [1, math.inf]]


def floor(**rises: Any) -> Floor:
    return Floor(file="f.json", sha256="0", provenance={}, num_steps=10, rises=rises)


def test_a_floor_is_the_maximum_over_stacks_and_holds_until_it_rises_again() -> None:
    made = floor(torch={"steps.loss": [[1, 2e-16], [5, 9e-16]]}, jax={"steps.loss": [[3, 4e-16]]})
    found = made.at("steps.loss", np.array([0, 1, 2, 3, 4, 5, 9]))
    assert found.tolist() == [0.0, 2e-16, 2e-16, 4e-16, 4e-16, 9e-16, 9e-16]


def test_a_floor_says_nothing_beyond_its_steps_or_of_other_fields() -> None:
    made = floor(torch={"steps.loss": [[1, 2e-16]]})
    assert np.isnan(made.at("steps.loss", np.array([10]))[0])
    assert np.isnan(made.at("steps.grad_norm", np.array([0]))[0])


def stored(folder: Path, config: str = "c" * 64, **legs: Any) -> Path:
    return write_floor(
        folder,
        name="demo",
        provenance={"config_sha256": config, "legs": legs},
        num_steps=10,
        rises={stack: {"steps.loss": [[2, 1e-15], [3, math.inf]]} for stack in legs},
        contributions={},
    )


def test_a_floor_is_read_back_as_it_was_written(tmp_path: Path) -> None:
    read = read_floor(stored(tmp_path, torch=LEG))
    assert read.at("steps.loss", np.array([1, 2, 3])).tolist() == [0.0, 1e-15, math.inf]
    assert read.num_steps == 10


def test_an_edited_floor_is_refused(tmp_path: Path) -> None:
    path = stored(tmp_path, torch=LEG)
    path.write_text(path.read_text().replace("1e-15", "1e-05"))
    with pytest.raises(ConfigError, match="was edited"):
        read_floor(path)


@pytest.mark.parametrize("text", ["", "[]", "{}"])
def test_what_is_no_floor_is_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "demo-0.json"
    path.write_text(text)
    with pytest.raises(ConfigError):
        read_floor(path)


def find(folder: Path, config: str = "c" * 64, **legs: Any) -> tuple[Path | None, str | None]:
    return find_floor(folder, config_sha256=config, legs=legs)


def test_a_floor_is_found_again(tmp_path: Path) -> None:
    path = stored(tmp_path, torch=LEG, jax=LEG)
    assert find(tmp_path, torch=LEG, jax=LEG) == (path, None)


def test_a_floor_of_another_config_is_not_found(tmp_path: Path) -> None:
    stored(tmp_path, torch=LEG)
    path, reason = find(tmp_path, config="e" * 64, torch=LEG)
    assert path is None
    assert "oracle calibrate CONFIG" in (reason or "")


OTHER = [
    (
        {"code_sha256": "b" * 64},
        "code_sha256 of torch was aaaaaaaaaaaa when it was measured and is bbbbbbbbbbbb now; "
        "measure it again with `oracle calibrate CONFIG`",
    ),
    ({"versions": {"numpy": "2.4.6", "torch": "3"}}, "versions.torch of torch was 2.13.0 when it"),
    ({"machine": {"system": "Linux", "cores": 8}}, "machine.cores of torch was 2 when it was"),
    ({"device": "cuda"}, "device of torch was cpu when it was measured and is cuda now"),
    ({"python": "3.12.0"}, "python of torch was 3.11.0 when it was measured and is 3.12.0 now"),
    ({"files": {"train": ["e" * 64]}}, "files.train of torch was "),
]


@pytest.mark.parametrize(("change", "sentence"), OTHER)
def test_a_floor_is_refused_with_the_field_that_differs(
    tmp_path: Path, change: dict[str, Any], sentence: str
) -> None:
    stored(tmp_path, torch=LEG, jax=LEG)
    path, reason = find(tmp_path, torch=LEG | change, jax=LEG | change)
    assert path is None
    assert sentence in (reason or "")


def test_a_leg_that_changed_is_left_out_and_the_other_keeps_its_floor(tmp_path: Path) -> None:
    path = stored(tmp_path, torch=LEG, jax=LEG)
    assert find(tmp_path, torch=LEG | {"code_sha256": "b" * 64}, jax=LEG) == (path, None)
    whole = stored(tmp_path, torch=LEG | {"code_sha256": "b" * 64}, jax=LEG)
    assert find(tmp_path, torch=LEG | {"code_sha256": "b" * 64}, jax=LEG) == (whole, None)


def header_of(stack: str, mode: str = "train") -> dict[str, Any]:
    """A header that `leg_provenance` reads back as LEG."""
    provenance = {key: value for key, value in LEG.items() if key != "files"}
    return {
        "mode": mode,
        "config_sha256": "c" * 64,
        "provenance": {**provenance, "stack": stack},
        "facts": {"files": LEG["files"]},
    }


def test_auto_takes_the_stored_floor_in_a_cross_comparison_of_trained_legs_only(
    tmp_path: Path,
) -> None:
    path = stored(tmp_path, torch=LEG, jax=LEG)
    trained = [header_of("torch"), header_of("jax")]
    rendered = [header_of("torch", "render"), header_of("jax", "render")]
    assert choose_floor("auto", tmp_path, trained, purpose="cross") == (path, None)
    assert choose_floor("auto", tmp_path, rendered, purpose="cross") == (None, None)
    assert choose_floor("auto", tmp_path, trained, purpose="self") == (None, None)
    assert choose_floor("none", tmp_path, trained, purpose="cross") == (None, None)
    assert choose_floor("a.json", tmp_path, trained, purpose="self") == (Path("a.json"), None)


def test_auto_says_why_a_stored_floor_does_not_hold(tmp_path: Path) -> None:
    stored(tmp_path, torch=LEG | {"python": "3.10.0"})
    path, why = choose_floor("auto", tmp_path, [header_of("torch")] * 2, purpose="cross")
    assert path is None
    assert "python of torch was 3.10.0" in (why or "")


ADVICE = "oracle calibrate CONFIG"


def advised(verdict: Verdict) -> bool:
    told = [*verdict.reasons, *verdict.warnings, *(phase.reason or "" for phase in verdict.phases)]
    return any(ADVICE in text for text in told) or ADVICE in remedy(verdict)


def test_calibration_is_advised_where_a_floor_is_all_that_lacks(judged: Judge) -> None:
    verdict = judged(*pair(), floor=None)
    assert verdict.verdict == "INCONCLUSIVE"
    assert advised(verdict)


def kill(made: Documents) -> None:
    for step in made["steps"]:
        step["grad_norm"] = 0.0


def overflow(made: Documents) -> None:
    made["steps"][4]["loss"] = math.nan


@pytest.mark.parametrize("harm", [kill, overflow])
def test_calibration_is_not_advised_where_no_floor_can_help(
    judged: Judge, harm: Callable[[Documents], None]
) -> None:
    legs = pair()
    for made in legs:
        harm(made)
    verdict = judged(*legs, floor=None)
    assert verdict.verdict == "INCONCLUSIVE"
    assert any("no noise floor of this run" in reason for reason in verdict.reasons)
    assert not advised(verdict)


def test_calibration_is_not_advised_in_float32(judged: Judge) -> None:
    verdict = judged(*pair(precision="float32"), floor=None)
    assert verdict.verdict == "INCONCLUSIVE"
    assert not advised(verdict)
