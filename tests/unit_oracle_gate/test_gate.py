"""What passes and what does not, from run directory to line and exit code."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from oracle.document import violation
from tests.unit_oracle_gate.case import COMMIT, TOLERANCES, Case, lose_a_target, move_loss
from tests.unit_oracle_judge.synthetic import Documents

OTHER = "b" * 40


def test_a_run_that_agrees_passes_in_one_line(case: Case) -> None:
    case.run()
    ended = case.gate()
    assert ended.returncode == 0
    assert ended.stdout.count("\n") == 1
    assert ended.stdout.startswith("GATE PASS  tiny AGREE 8 steps · loss ≤ 0 · ")
    assert ended.stdout.endswith("· policy test.toml · commit aaaaaaa\n")


def test_a_divergence_fails_and_is_named(case: Case) -> None:
    case.run(lose_a_target)
    ended = case.gate()
    assert ended.returncode == 1
    assert "GATE FAIL  tiny: mask agrees on 19 of 20 examples, all needed" in ended.stdout


def test_a_threshold_under_1_lets_the_stated_share_pass(case: Case) -> None:
    case.run(lose_a_target)
    entry = {"phase": "mask", "reason": "one edge example is known"}
    assert case.gate(agreement=[entry | {"at_least": 0.95}]).returncode == 0
    assert case.gate(agreement=[entry | {"at_least": 0.951}]).returncode == 1


def test_steps_that_were_not_judged_are_no_agreement(case: Case) -> None:
    """A loss that parts at step 5 agrees on 5 of the 6 steps that were judged: 83 %."""
    case.run(move_loss(5, 1e-3))
    half = {"phase": "loss", "at_least": 0.5, "reason": "half is enough"}
    ended = case.gate(
        agreement=[half], max_relative_loss_difference=0.01, max_mean_relative_loss_difference=0.01
    )
    assert ended.returncode == 1
    assert "loss was not judged to the end" in ended.stdout + ended.stderr


def test_a_loss_over_its_limit_fails_though_its_rule_allows_it(case: Case) -> None:
    case.run(move_loss(5, 3e-13), floor=False)
    case.calibrate(1e-13)
    case.judge(next(case.out.glob("tiny-*")))
    assert case.gate(max_relative_loss_difference=4e-13).returncode == 0
    ended = case.gate(max_relative_loss_difference=2e-13)
    assert ended.returncode == 1
    assert "largest relative loss difference: 3e-13, limit 2e-13" in ended.stdout
    ended = case.gate(max_mean_relative_loss_difference=3e-14)  # the mean is 3e-13 / 8
    assert ended.returncode == 1
    assert "mean relative loss difference: 3.75e-14, limit 3e-14" in ended.stdout


def test_too_few_examples_fail(case: Case) -> None:
    case.run()
    ended = case.gate(min_examples=21)
    assert ended.returncode == 1
    assert "20 examples, 21 needed" in ended.stdout


def test_without_a_floor_it_is_inconclusive_and_never_passes(case: Case) -> None:
    case.run(floor=False)
    ended = case.gate()
    assert ended.returncode == 3
    assert "GATE INCONCLUSIVE  tiny could not be judged: no noise floor" in ended.stdout


def test_a_floor_measured_since_the_verdict_is_taken(case: Case) -> None:
    case.run(floor=False)
    case.calibrate()
    ended = case.gate()
    assert ended.returncode == 0
    assert "stored verdict INCONCLUSIVE, judged anew AGREE" in ended.stderr


def test_a_broken_rule_beats_what_could_not_be_judged(case: Case) -> None:
    case.run(lose_a_target, floor=False)
    assert case.gate().returncode == 1


def test_a_divergence_with_a_dead_leg_never_passes(case: Case) -> None:
    """The waived fault is covered, the dead leg is a reason and beyond every waiver."""

    def fault_and_death(made: Documents) -> None:
        lose_a_target(made)
        for row in made["steps"]:
            row["param_norm"] = 10.0

    case.run(fault_and_death)
    assert case.gate(waiver={"phase": "mask"}).returncode != 0


def test_no_run_is_an_error(case: Case) -> None:
    case.out.mkdir()
    ended = case.gate()
    assert ended.returncode == 2
    assert "GATE ERROR  tiny has no run of commit aaaaaaaaaaaa in" in ended.stdout


def test_the_newest_run_counts_not_the_best(case: Case) -> None:
    case.run()
    case.run(lose_a_target)
    assert case.gate().returncode == 1
    case.run()
    assert case.gate().returncode == 0


def test_a_run_of_another_commit_does_not_count(case: Case) -> None:
    path = case.run(commit=OTHER)
    ended = case.gate()
    assert ended.returncode == 2
    assert "1 of other commits" in ended.stdout
    ended = case.gate(path)
    assert ended.returncode == 2
    assert f"is of commit {OTHER[:12]} and {COMMIT[:12]} is gated" in ended.stdout


def test_uncommitted_changes_are_refused_unless_allowed(case: Case) -> None:
    case.run(commit=f"{COMMIT}+")
    ended = case.gate()
    assert ended.returncode == 2
    assert "uncommitted changes" in ended.stdout
    ended = case.gate("--allow-dirty")
    assert ended.returncode == 0
    assert ended.stdout.endswith("commit aaaaaaa+\n")


def test_a_run_outside_git_does_not_count(case: Case) -> None:
    path = case.run(commit=None)
    ended = case.gate(path)
    assert ended.returncode == 2
    assert "has no commit" in ended.stdout


def test_a_self_run_never_satisfies_a_gate(case: Case) -> None:
    path = case.run(stacks=("torch", "other"))
    ended = case.gate(path)
    assert ended.returncode == 2
    assert "it compared torch with other, not torch with jax" in ended.stderr


def test_an_edited_config_is_seen(case: Case) -> None:
    path = case.run()
    case.tiny.set("optimizer.learning_rate", 2e-3)
    ended = case.gate(path)
    assert ended.returncode == 2
    assert "the config was edited" in ended.stderr
    assert case.gate().returncode == 2


def test_a_render_satisfies_a_policy_of_renders_only(case: Case) -> None:
    case.run(mode="render")
    assert case.gate(mode="render").returncode == 0
    assert case.gate().returncode == 2
    case.run(lose_a_target, mode="render")
    assert case.gate(mode="render").returncode == 1


def test_two_runs_of_one_requirement_are_refused(case: Case) -> None:
    ended = case.gate(case.run(), case.run())
    assert ended.returncode == 2
    assert "name one" in ended.stderr


def test_an_unfinished_run_does_not_count(case: Case) -> None:
    path = case.run()
    manifest = json.loads((path / "run.json").read_text())
    (path / "run.json").write_text(json.dumps(manifest | {"status": "interrupted"}))
    ended = case.gate()
    assert ended.returncode == 2
    assert "is interrupted, not finished" in ended.stdout


def test_another_contract_does_not_count(case: Case) -> None:
    path = case.run()
    manifest = json.loads((path / "run.json").read_text())
    (path / "run.json").write_text(json.dumps(manifest | {"contract": "0"}))
    assert "follows contract 0" in case.gate().stdout


def test_rules_that_changed_since_the_verdict_judge_anew(case: Case) -> None:
    """A loss that the rules of the day let pass fails by stricter ones."""
    strict = case.folder / "strict.toml"
    strict.write_text(TOLERANCES.read_text().replace("multiple = 10.0", "multiple = 0.5", 1))
    case.run(move_loss(5, 3e-15))
    assert case.gate().returncode == 0
    ended = case.gate(tolerances=str(strict))
    assert ended.returncode == 1
    assert "stored verdict AGREE, judged anew DIVERGED" in ended.stderr
    ended = case.gate("--no-rejudge", tolerances=str(strict))
    assert ended.returncode == 2


def test_json_is_on_the_schema_and_says_the_same(case: Case) -> None:
    case.run(lose_a_target)
    ended = case.gate("--json")
    document = json.loads(ended.stdout)
    assert violation(document, "gate") is None
    assert (document["gate"], document["exit_code"], ended.returncode) == ("FAIL", 1, 1)
    assert document["required"][0]["agreement"]["mask"] == 19 / 20
    assert [entry["threshold"] for entry in document["required"][0]["shortfalls"]] == [
        "agreement.mask"
    ]
    case.out.rename(case.folder / "elsewhere")
    document = json.loads(case.gate("--json").stdout)
    assert violation(document, "gate") is None
    assert (document["gate"], document["required"][0]["id"]) == ("ERROR", None)


def test_the_commit_is_that_of_the_working_directory(
    case: Case, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from oracle.errors import OracleError
    from oracle.gate.command import gated_commit

    monkeypatch.chdir(tmp_path)
    with pytest.raises(OracleError, match="name one with --commit"):
        gated_commit(None, allow_dirty=False)
    git = ["git", "-c", "user.name=n", "-c", "user.email=e@example.org"]
    (tmp_path / "file").write_text("a")
    for command in (["init", "-q"], ["add", "file"], ["commit", "-q", "-m", "one"]):
        subprocess.run([*git, *command], cwd=tmp_path, check=True)
    head = subprocess.run(
        ["git", "rev-parse", "HEAD"], cwd=tmp_path, capture_output=True, text=True, check=True
    ).stdout.strip()
    assert gated_commit(None, allow_dirty=False).sha == head
    assert gated_commit(head[:8], allow_dirty=False).sha == head
    (tmp_path / "file").write_text("b")
    with pytest.raises(OracleError, match="uncommitted changes"):
        gated_commit(None, allow_dirty=False)
    assert gated_commit(None, allow_dirty=True).sha == head
    with pytest.raises(OracleError, match="is no commit"):
        gated_commit("no-such-branch", allow_dirty=False)


def test_a_run_whose_directory_is_gone_comes_from_the_store(case: Case) -> None:
    import shutil

    from oracle.runs import open_run
    from oracle.store import open_store

    path = case.run()
    open_store(case.out).record(open_run(path))
    shutil.rmtree(path)
    assert case.gate().returncode == 0
    shutil.rmtree(path, ignore_errors=True)
    assert case.gate(path.name[-4:]).returncode == 0
    assert case.gate("no-such-run").returncode == 2
