"""A policy that cannot be meant is refused in one sentence, before any run is looked at."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from oracle.errors import ConfigError
from oracle.gate.policy import load_policy
from tests.unit_oracle_gate.case import TODAY, Case

MASK = {"phase": "mask", "at_least": 0.9, "reason": "known"}
BAD: dict[str, tuple[dict[str, Any], str]] = {
    "unknown key": ({"treshold": 1}, "unknown key 'treshold'"),
    "unknown run": ({"run": "other"}, "bears the name of its config"),
    "unknown mode": ({"mode": "eval"}, "mode"),
    "no config": ({"config": "../inputs/none.toml"}, "does not exist"),
    "one stack twice": ({"stacks": ["jax", "jax"]}, "compared with itself"),
    "limit 0": ({"max_relative_loss_difference": 0.0}, "more than 0"),
    "negative limit": ({"max_relative_loss_difference": -1e-9}, "more than 0"),
    "infinite limit": ({"max_relative_loss_difference": float("inf")}, "less than 0.1"),
    "limit is no number": ({"max_mean_relative_loss_difference": float("nan")}, "is nan"),
    "absurd limit": ({"max_relative_loss_difference": 0.5}, "less than 0.1"),
    "mean over largest": ({"max_mean_relative_loss_difference": 1e-6}, "could not fail"),
    "no steps": ({"min_steps": 0}, "at least 1"),
    "no examples": ({"min_examples": 0}, "at least 1"),
    "more steps than made": ({"min_steps": 9}, "no run could pass"),
    "no limit at all": ({"max_relative_loss_difference": None}, "mode train needs"),
    "tolerances missing": ({"tolerances": "none.toml"}, "cannot be read"),
    "render with steps": (
        {"mode": "render", "min_steps": 3},
        "mode render, which has no min_steps",
    ),
    "share 0": ({"agreement": [MASK | {"at_least": 0.0}]}, "more than 0"),
    "share over 1": ({"agreement": [MASK | {"at_least": 1.5}]}, "at most 1"),
    "share nan": ({"agreement": [MASK | {"at_least": float("nan")}]}, "is nan"),
    "share without reason": (
        {"agreement": [{"phase": "mask", "at_least": 0.9}]},
        "lacks key 'reason'",
    ),
    "share with blank reason": ({"agreement": [MASK | {"reason": "  "}]}, "reason is blank"),
    "unknown phase": ({"agreement": [MASK | {"phase": "masks"}]}, "should be one of"),
    "phase twice": ({"agreement": [MASK, MASK]}, "names mask twice"),
    "waiver of an unknown run": ({"waiver": {"run": "other", "phase": "mask"}}, "not required"),
    "waiver of another mode": ({"waiver": {"phase": "mask", "mode": "render"}}, "not required"),
    "waiver without owner": ({"waiver": {"phase": "mask", "owner": None}}, "lacks key 'owner'"),
    "waiver of nobody": ({"waiver": {"phase": "mask", "owner": " "}}, "owner is blank"),
    "waiver without reason": ({"waiver": {"phase": "mask", "reason": None}}, "lacks key 'reason'"),
    "waiver without end": ({"waiver": {"phase": "mask", "expires": None}}, "lacks key 'expires'"),
    "waiver for ever": (
        {"waiver": {"phase": "mask", "expires": TODAY + timedelta(days=100)}},
        "longest_waiver_days",
    ),
    "waiver until no day": ({"waiver": {"phase": "mask", "expires": "2026-02-30"}}, "no day"),
    "waiver of nothing": ({"waiver": {}}, "a phase or a threshold"),
    "waiver of an unknown phase": ({"waiver": {"phase": "looks"}}, "should be one of"),
    "waiver with an unknown key": (
        {"waiver": {"phase": "mask", "until": 1}},
        "unknown key 'until'",
    ),
    "waiver of echo as a whole": ({"waiver": {"phase": "echo"}}, "name the field"),
    "threshold waived without bound": (
        {"waiver": {"threshold": "max_relative_loss_difference"}},
        "lacks up_to",
    ),
    "steps waived": ({"waiver": {"threshold": "min_steps", "up_to": 0.01}}, "should be one of"),
    "policy of another version": ({"top": {"policy_version": "2"}}, "policy_version"),
    "nothing required": ({"top": {"required": []}}, "at least 1"),
}


@pytest.mark.parametrize("what", BAD)
def test_a_policy_that_cannot_be_meant_is_refused(what: str, case: Case) -> None:
    changes, words = BAD[what]
    with pytest.raises(ConfigError, match=words) as caught:
        case.load(**changes)
    assert "\n" not in str(caught.value)
    assert "test.toml" in str(caught.value) or "none.toml" in str(caught.value)


def test_a_bad_policy_ends_with_2_and_no_line(case: Case) -> None:
    case.run()
    ended = case.gate(min_steps=0)
    assert (ended.returncode, ended.stdout) == (2, "")
    assert ended.stderr.startswith("oracle: ")
    assert ended.stderr.count("\n") == 1


def test_a_run_is_required_once(case: Case) -> None:
    path = case.policy()
    text = path.read_text()
    path.write_text(text + text[text.index("[[required]]") :])
    with pytest.raises(ConfigError, match="required twice"):
        load_policy(path, today=TODAY)


def test_a_tolerance_file_that_everything_passes_is_refused(case: Case) -> None:
    from tests.unit_oracle_gate.case import TOLERANCES

    weak = case.folder / "weak.toml"
    weak.write_text(TOLERANCES.read_text().replace("cap = 1e-06", "cap = 0.5", 1))
    with pytest.raises(ConfigError, match="must stay under"):
        case.load(tolerances=str(weak))


def test_what_is_no_toml_is_refused(case: Case) -> None:
    path = case.policy()
    path.write_text("[[required]\n")
    with pytest.raises(ConfigError, match="test.toml:1 is not TOML"):
        load_policy(path, today=TODAY)
