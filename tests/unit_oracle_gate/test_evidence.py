"""A run that was edited after its verdict never makes a green gate, whatever was edited."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.unit_oracle_gate.case import Case, lose_a_target, move_loss
from tests.unit_oracle_judge.synthetic import documents


def edit(path: Path, **changes: Any) -> None:
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


def test_a_verdict_that_was_painted_green_is_told(case: Case) -> None:
    green = json.loads((case.run() / "verdict.json").read_text())
    path = case.run(lose_a_target)
    own = {"run": path.name, "legs": json.loads((path / "verdict.json").read_text())["legs"]}
    (path / "verdict.json").write_text(json.dumps(green | own))
    ended = case.gate()
    assert ended.returncode == 2
    assert 'verdict.json says "AGREE" for verdict and its traces give "DIVERGED"' in ended.stdout


@pytest.mark.parametrize(
    ("dotted", "value"),
    [
        (("summary", "max_relative_loss_difference"), 1e-3),
        (("summary", "num_steps"), 9),
        (("phases", 4, "num_agreeing"), 7),
        (("reasons",), ["nothing"]),
    ],
)
def test_an_edited_number_is_told(case: Case, dotted: tuple[Any, ...], value: Any) -> None:
    path = case.run() / "verdict.json"
    document = json.loads(path.read_text())
    place = document
    for key in dotted[:-1]:
        place = place[key]
    place[dotted[-1]] = value
    path.write_text(json.dumps(document))
    ended = case.gate()
    assert ended.returncode == 2
    assert "it was edited" in ended.stdout


def test_a_last_digit_of_another_machine_is_no_edit(case: Case) -> None:
    path = case.run(move_loss(5, 3e-15)) / "verdict.json"
    document = json.loads(path.read_text())
    document["summary"]["mean_relative_loss_difference"] *= 1 + 1e-12
    path.write_text(json.dumps(document))
    assert case.gate().returncode == 0


def test_an_edited_step_is_told(case: Case) -> None:
    path = case.run() / "jax" / "steps.jsonl"
    path.write_text(path.read_text().replace('"step": 3', '"step": 4', 1))
    ended = case.gate()
    assert ended.returncode == 2
    assert "steps.jsonl has the hash" in ended.stdout


def test_an_edited_trace_with_a_footer_that_holds_is_told(case: Case) -> None:
    """The faulty leg is exchanged for a clean one of another run, footer and nonce included."""
    from tests.unit_oracle_judge.synthetic import write

    path = case.run(lose_a_target)
    made = documents(8, stack="jax")
    made["header"]["config_sha256"] = json.loads((path / "run.json").read_text())["config_sha256"]
    (path / "jax").rename(path / "before")
    write(path / "jax", made)
    ended = case.gate()
    assert ended.returncode == 2
    assert "edited after its verdict" in ended.stdout


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"run": "other"}, "the run of verdict.json is 'other'"),
        ({"contract": "0"}, "the contract of verdict.json is '0'"),
        ({"purpose": "self"}, "the purpose of verdict.json is 'self'"),
        ({"mode": "render"}, "the mode of verdict.json is 'render'"),
        ({"exit_code": 1}, "it was edited"),
        ({"verdict": "FINE"}, "verdict"),
    ],
)
def test_a_verdict_of_something_else_is_told(
    case: Case, changes: dict[str, Any], words: str
) -> None:
    edit(case.run() / "verdict.json", **changes)
    ended = case.gate()
    assert ended.returncode == 2
    assert words in ended.stdout
    assert ended.stdout.count("\n") == 1


@pytest.mark.parametrize("content", ["", "{", "[]", '{"verdict": "AGREE"}'])
def test_a_verdict_that_is_none_is_told(case: Case, content: str) -> None:
    (case.run() / "verdict.json").write_text(content)
    assert case.gate().returncode == 2


def test_a_missing_verdict_or_footer_is_told(case: Case) -> None:
    (case.run() / "verdict.json").unlink()
    assert "was never judged" in case.gate().stdout
    (case.run() / "jax" / "done.json").unlink()
    ended = case.gate()
    assert ended.returncode == 2
    assert "has no done.json" in ended.stdout


def test_a_manifest_that_cannot_be_read_hides_no_run(case: Case) -> None:
    path = case.run()
    broken = case.out / "tiny-broken"
    broken.mkdir()
    (broken / "run.json").write_text("{")
    assert case.gate().returncode == 0
    (path / "run.json").write_text("{")
    ended = case.gate()
    assert ended.returncode == 2
    assert "2 run directories cannot be read" in ended.stdout


def test_another_nonce_in_the_manifest_is_told(case: Case) -> None:
    path = case.run() / "run.json"
    path.write_text(path.read_text().replace("nonce-jax", "nonce-other"))
    ended = case.gate()
    assert ended.returncode == 2
    assert "of another run" in ended.stdout


def test_a_moved_folder_of_runs_still_passes(case: Case) -> None:
    """A pipeline hands runs from job to job: the floor is found beside them."""
    case.run()
    moved = case.folder / "moved"
    case.out.rename(moved)
    case.out = moved
    ended = case.gate()
    assert ended.returncode == 0
    assert ended.stderr == ""


def test_without_judging_again_the_traces_must_be_those_of_the_verdict(case: Case) -> None:
    path = case.run()
    assert case.gate("--no-rejudge").returncode == 0
    footer = json.loads((path / "jax" / "done.json").read_text())
    (path / "jax" / "done.json").write_text(json.dumps(footer, indent=1))
    ended = case.gate("--no-rejudge")
    assert ended.returncode == 2
    assert "edited after its verdict" in ended.stdout
