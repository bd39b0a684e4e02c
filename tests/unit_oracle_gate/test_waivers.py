"""What a waiver covers, what it never covers, and that one which covers nothing fails."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from oracle.gate.evidence import Commit
from oracle.gate.judgement import judge_gate
from oracle.gate.search import newest_runs
from tests.unit_oracle_gate.case import (
    COMMIT,
    NUM_STEPS,
    TODAY,
    Case,
    lose_a_target,
    lose_targets_of_two,
    move_loss,
)
from tests.unit_oracle_judge.synthetic import Documents


def test_a_waived_divergence_passes_and_shows(case: Case) -> None:
    case.run(lose_a_target)
    ended = case.gate(waiver={"phase": "mask", "example": "edge-001"})
    assert ended.returncode == 0
    assert f"1 waived, until {TODAY + timedelta(days=30)} at the latest" in ended.stdout
    assert "waived by A. Owner" in ended.stderr
    assert "tiny DIVERGED 8 steps" in ended.stdout


@pytest.mark.parametrize(
    "pattern",
    [
        {"phase": "text"},
        {"phase": "mask", "example": "edge-002"},
        {"phase": "mask", "field": "tokens.ids"},
        {"phase": "loss"},
    ],
)
def test_a_waiver_of_another_place_covers_nothing_and_is_unused(
    case: Case, pattern: dict[str, Any]
) -> None:
    case.run(lose_a_target)
    ended = case.gate(waiver=pattern)
    assert ended.returncode == 1
    assert "mask agrees on 19 of 20" in ended.stdout
    assert "of A. Owner is unused" in ended.stderr


def test_an_unused_waiver_fails_a_run_that_agrees(case: Case) -> None:
    case.run()
    ended = case.gate(waiver={"phase": "mask"})
    assert ended.returncode == 1
    assert "waiver tiny mask of A. Owner is unused" in ended.stdout


def test_a_waiver_holds_on_its_last_day_and_fails_after_it(case: Case) -> None:
    case.run(lose_a_target)
    gates = {}
    for days in (29, 30, 31):
        today = TODAY + timedelta(days=days)
        policy = case.load(waiver={"phase": "mask"})
        commit = Commit(sha=COMMIT)
        found = newest_runs(policy, case.out, commit)
        judged = judge_gate(policy, found, commit, today=today)
        gates[days] = judged.gate
    assert gates == {29: "PASS", 30: "PASS", 31: "FAIL"}
    assert judged.failures == (
        f"waiver tiny mask of A. Owner expired on {policy.waivers[0].expires}",
    )


def test_an_expired_waiver_fails_even_where_nothing_falls_short(case: Case) -> None:
    case.run()
    ended = case.gate(waiver={"phase": "mask", "expires": TODAY - timedelta(days=1)})
    assert ended.returncode == 1
    assert "expired on" in ended.stdout


def test_a_waiver_covers_at_most_what_it_says(case: Case) -> None:
    case.run(lose_targets_of_two)
    assert case.gate(waiver={"phase": "mask", "at_most": 2}).returncode == 0
    assert case.gate(waiver={"phase": "mask", "at_most": 1}).returncode == 1


def test_a_waiver_of_one_example_does_not_cover_its_like(case: Case) -> None:
    """The verdict lists the first of a kind and counts the others: they may be anything."""
    case.run(lose_targets_of_two)
    assert case.gate(waiver={"phase": "mask", "example": "edge-001"}).returncode == 1


def test_what_follows_is_covered_only_when_the_waiver_says_so(case: Case) -> None:
    """A loss that parts leaves all later steps unjudged: its waiver must own that."""
    case.run(move_loss(5, 1e-9))
    free = {"max_relative_loss_difference": 1e-8, "max_mean_relative_loss_difference": 1e-8}
    ended = case.gate(waiver={"phase": "loss"}, **free)
    assert ended.returncode == 1
    assert "was not judged to the end" in ended.stdout
    assert case.gate(waiver={"phase": "loss", "consequences": True}, **free).returncode == 0
    ended = case.gate(waiver={"phase": "loss", "consequences": True})
    assert ended.returncode == 1
    assert "largest relative loss difference: 1e-09, limit 1e-12" in ended.stderr


def test_a_loss_limit_is_waived_up_to_a_number(case: Case) -> None:
    case.run(move_loss(5, 3e-15))
    tight = {"max_relative_loss_difference": 1e-15, "max_mean_relative_loss_difference": 1e-15}
    waiver = {"threshold": "max_relative_loss_difference"}
    assert case.gate(**tight).returncode == 1
    assert case.gate(waiver=waiver | {"up_to": 4e-15}, **tight).returncode == 0
    assert case.gate(waiver=waiver | {"up_to": 2e-15}, **tight).returncode == 1


def test_a_number_that_is_finite_in_one_leg_only_is_beyond_waivers(case: Case) -> None:
    def not_a_number(made: Documents) -> None:
        made["steps"][5]["loss"] = float("nan")

    case.run(not_a_number)
    ended = case.gate(waiver={"phase": "loss", "consequences": True})
    assert ended.returncode == 1
    assert "loss agrees on 5 of 6 steps" in ended.stdout


def test_what_could_not_be_judged_is_beyond_waivers(case: Case) -> None:
    case.run(floor=False)
    ended = case.gate(waiver={"phase": "loss", "consequences": True})
    assert ended.returncode == 3
    assert "unused" not in ended.stdout + ended.stderr  # nobody can know


def test_a_missing_run_is_beyond_waivers(case: Case) -> None:
    case.out.mkdir()
    assert case.gate(waiver={"phase": "loss", "consequences": True}).returncode == 2


def test_legs_of_the_same_code_are_beyond_waivers(case: Case) -> None:
    """The one thing in provenance that must differ between two stacks."""

    def same_code(made: Documents) -> None:
        from tests.unit_oracle_judge.synthetic import documents

        clean = documents(NUM_STEPS, stack="torch")
        made["header"]["provenance"]["code_sha256"] = clean["header"]["provenance"]["code_sha256"]

    case.run(same_code)
    waiver = {"phase": "echo", "field": "header.provenance.code_sha256"}
    ended = case.gate(waiver=waiver)
    assert ended.returncode == 3
    assert "both legs ran the same code" in ended.stdout


def test_a_fact_of_echo_is_waived_by_its_field(case: Case) -> None:
    def other_fact(made: Documents) -> None:
        made["header"]["facts"]["pad_id"] = 3

    case.run(other_fact)
    assert case.gate().returncode == 1
    field = "header.facts.pad_id"
    assert case.gate(waiver={"phase": "echo", "field": field}).returncode == 0
    assert case.gate(waiver={"phase": "echo", "field": "header.facts.seed"}).returncode == 1
