"""Whoever loosens a rule is seen: in the line, until somebody acknowledges it by name."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from pathlib import Path

import pytest

from oracle.errors import ConfigError
from oracle.gate.acknowledge import acknowledge, unseen
from oracle.gate.rules import Value, changes, flat_values
from tests.unit_oracle_gate.case import TODAY, TOLERANCES, Case
from tests.unit_oracle_run.command import oracle

RULES = TOLERANCES.read_text("utf-8")
POLICY = """
unacknowledged = "fail"
longest_waiver_days = 90
[[required]]
run = "demo"
mode = "train"
min_steps = 60
max_relative_loss_difference = 1e-12
[[required.agreement]]
phase = "text"
at_least = 0.99
reason = "old"
[[waiver]]
run = "demo"
phase = "mask"
at_most = 3
expires = 2026-03-01
owner = "x"
"""


def directions(was: str, now: str) -> Mapping[str, str]:
    return {change.rule: change.direction for change in changes(flat_values(was), flat_values(now))}


@pytest.mark.parametrize(
    ("find", "put", "rule", "direction"),
    [
        ("multiple = 10.0", "multiple = 100.0", "rule.steps.loss.multiple", "loosened"),
        ("cap = 1e-06", "cap = 1e-07", "rule.steps.loss.cap", "tightened"),
        ("minimum_ulps = 8", "minimum_ulps = 9", "rule.steps.loss.minimum_ulps", "loosened"),
        ("step0 = 1e-13", "step0 = 1e-12", "rule.steps.loss.step0", "loosened"),
        ("needs_floor = true", "needs_floor = false", "rule.steps.loss.needs_floor", "changed"),
        ("minimum_steps = 2", "minimum_steps = 1", "run.minimum_steps", "loosened"),
        ("trajectory = true", "trajectory = false", "run.trajectory", "loosened"),
        ("guard = 1e-3", "guard = 1e-2", "tensors.guard", "loosened"),
    ],
)
def test_the_direction_of_a_tolerance(find: str, put: str, rule: str, direction: str) -> None:
    now = RULES.replace(find, put, 1)
    assert directions(RULES, now) == {rule: direction}
    back = {"loosened": "tightened", "tightened": "loosened", "changed": "changed"}
    assert directions(now, RULES) == {rule: back[direction]}


@pytest.mark.parametrize(
    ("find", "put", "rule"),
    [
        ("min_steps = 60", "min_steps = 6", "required.demo/train.min_steps"),
        ("1e-12", "1e-9", "required.demo/train.max_relative_loss_difference"),
        ("at_least = 0.99", "at_least = 0.9", "required.demo/train.agreement.text.at_least"),
        ("at_most = 3", "at_most = 4", "waiver.demo/mask.at_most"),
        ("at_most = 3\n", "", "waiver.demo/mask.at_most"),
        ("at_most = 3", "at_most = 3\nconsequences = true", "waiver.demo/mask.consequences"),
        ("2026-03-01", "2026-04-01", "waiver.demo/mask.expires"),
        ('"fail"', '"show"', "unacknowledged"),
        ("longest_waiver_days = 90", "longest_waiver_days = 91", "longest_waiver_days"),
    ],
)
def test_what_loosens_a_policy(find: str, put: str, rule: str) -> None:
    now = POLICY.replace(find, put, 1)
    assert directions(POLICY, now) == {rule: "loosened"}
    assert directions(now, POLICY) == {rule: "tightened"}


def test_rows_that_come_and_go() -> None:
    without_waiver = POLICY[: POLICY.index("[[waiver]]")]
    assert directions(without_waiver, POLICY) == {"waiver.demo/mask": "loosened"}
    assert directions(POLICY, without_waiver) == {"waiver.demo/mask": "tightened"}
    without_share = POLICY.replace(
        '[[required.agreement]]\nphase = "text"\nat_least = 0.99\nreason = "old"\n', ""
    )
    row = "required.demo/train.agreement.text"
    assert directions(without_share, POLICY) == {row: "loosened"}
    head = POLICY[: POLICY.index("[[required]]")]
    assert directions(POLICY, head)["required.demo/train"] == "loosened"
    rule = RULES[RULES.index('[rule."steps.eval_loss"]') :]
    assert directions(RULES, RULES.replace(rule, "")) == {"rule.steps.eval_loss": "loosened"}


def test_words_and_order_loosen_nothing() -> None:
    assert not directions(POLICY, POLICY.replace('"old"', '"new"').replace('"x"', '"y"'))
    values: Mapping[str, Value] = flat_values(RULES)
    assert not any("reason" in key or "provenance" in key for key in values)


@pytest.fixture
def rules(case: Case) -> Path:
    """A tolerance file of the policy's own, acknowledged as it is, the policy too."""
    path = case.folder / "gates" / "float64.toml"
    path.parent.mkdir()
    path.write_text(RULES)
    policy = case.policy(tolerances=path.name)
    for file in (path, policy):
        acknowledge(file, path.parent, by="B. Reviewer", reason="read", on=TODAY)
    return path


def test_acknowledged_rules_do_not_show(case: Case, rules: Path) -> None:
    case.run()
    ended = case.gate(tolerances=rules.name)
    assert ended.returncode == 0
    assert "acknowledged" not in ended.stdout


def test_a_loosened_rule_shows_until_it_is_acknowledged(case: Case, rules: Path) -> None:
    rules.write_text(RULES.replace("multiple = 10.0", "multiple = 100.0", 1))
    case.run()
    words = (
        "rules changed since acknowledged: gates/float64.toml loosened steps.loss multiple 10 → 100"
    )
    ended = case.gate(tolerances=rules.name)
    assert ended.returncode == 0
    assert words in ended.stdout
    made = acknowledge(rules, rules.parent, by="C. Reviewer", reason="10k steps", on=TODAY)
    assert [change.rule for change in made] == ["rule.steps.loss.multiple"]
    assert "acknowledged" not in case.gate(tolerances=rules.name).stdout


def test_a_new_waiver_shows(case: Case, rules: Path) -> None:
    from tests.unit_oracle_gate.case import lose_a_target

    case.run(lose_a_target)
    ended = case.gate(tolerances=rules.name, waiver={"phase": "mask"})
    assert ended.returncode == 0
    assert "gates/test.toml loosened waiver.tiny/mask (added)" in ended.stdout


def test_a_policy_can_ask_for_acknowledgement(case: Case, rules: Path) -> None:
    case.run()
    ended = case.gate(tolerances=rules.name, top={"unacknowledged": "fail"})
    assert ended.returncode == 1
    assert "rules are not acknowledged as they are" in ended.stdout
    acknowledge(case.folder / "gates" / "test.toml", rules.parent, by="B", reason="r", on=TODAY)
    assert case.gate(tolerances=rules.name, top={"unacknowledged": "fail"}).returncode == 0


def test_other_words_are_said_to_be_words(rules: Path) -> None:
    rules.write_text(f"# read again\n{RULES}")
    assert [entry.sentence for entry in unseen([rules], rules.parent)] == [
        "gates/float64.toml changed in words only"
    ]


def test_the_command_writes_who_when_and_why(case: Case) -> None:
    policy = case.policy()
    argv = ["acknowledge", str(policy), "--by", "B. Reviewer", "--reason", "first reading"]
    ended = oracle(*argv)
    assert (ended.returncode, ended.stdout) == (0, "gates/test.toml acknowledged by B. Reviewer\n")
    entry = tomllib.loads((policy.parent / "acknowledged.toml").read_text())["acknowledged"][0]
    assert (entry["file"], entry["by"], entry["reason"]) == (
        "test.toml",
        "B. Reviewer",
        "first reading",
    )
    assert entry["values"]["required.tiny/train.min_steps"] == 8


def test_nobody_acknowledges_for_nothing(case: Case) -> None:
    policy = case.policy()
    for by, reason in ((" ", "why"), ("who", "")):
        ended = oracle("acknowledge", str(policy), "--by", by, "--reason", reason)
        assert ended.returncode == 2
        assert "is blank" in ended.stderr
    assert not (policy.parent / "acknowledged.toml").exists()


def test_what_cannot_be_used_is_not_acknowledged(case: Case) -> None:
    policy = case.policy(min_steps=0)
    ended = oracle("acknowledge", str(policy), "--by", "B", "--reason", "r")
    assert ended.returncode == 2


@pytest.mark.parametrize(
    "content", ["[other]\n", "[[acknowledged]]\nfile = 'x'\n", "acknowledged = 3\n", "[["]
)
def test_a_broken_file_of_acknowledgements_never_makes_a_green_gate(
    case: Case, content: str
) -> None:
    case.run()
    policy = case.policy()
    (policy.parent / "acknowledged.toml").write_text(content)
    ended = case.again(policy)
    assert ended.returncode == 2
    assert ended.stdout == ""
    with pytest.raises(ConfigError):
        acknowledge(policy, policy.parent, by="B", reason="r", on=TODAY)
