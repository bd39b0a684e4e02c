import shutil
from pathlib import Path

import pytest

from tests.reference import training
from tests.reference.make_vectors import FOLDER

RUNS = FOLDER / "runs" / "tiny"


def edited(tmp_path: Path, *changes: tuple[str, str], run: str = "right") -> Path:
    """A copy of the vectors' files, with a run config in which texts are replaced."""
    shutil.copytree(FOLDER, tmp_path / "vectors", ignore=shutil.ignore_patterns("S-*.json"))
    path = tmp_path / "vectors" / "runs" / "tiny" / f"{run}.toml"
    text = path.read_text(encoding="utf-8")
    for old, new in changes:
        assert old in text
        text = text.replace(old, new)
    path.write_text(text, encoding="utf-8")
    return path


def test_accumulation_does_not_change_the_run(tmp_path: Path) -> None:
    path = edited(
        tmp_path,
        ("micro_batch_size = 2", "micro_batch_size = 1"),
        ("accumulation_steps = 1", "accumulation_steps = 2"),
    )
    for one, two in zip(training.run(RUNS / "right.toml"), training.run(path), strict=True):
        assert one["examples"] == two["examples"]
        assert one["loss"] == pytest.approx(two["loss"], rel=1e-12)
        assert one["param_norm"] == pytest.approx(two["param_norm"], rel=1e-12)


def test_padding_changes_the_hash_and_not_the_numbers(tmp_path: Path) -> None:
    path = edited(tmp_path, ('padding_side = "right"', 'padding_side = "left"'))
    for one, two in zip(training.run(RUNS / "right.toml"), training.run(path), strict=True):
        assert one["batch_sha256"] != two["batch_sha256"]
        for key in ("loss", "grad_norm", "param_norm"):
            assert one[key] == pytest.approx(two[key], rel=1e-12)


def test_a_file_cut_in_two_is_the_same_data(tmp_path: Path) -> None:
    path = edited(tmp_path, ('"train.jsonl"', '"train-1.jsonl", "train-2.jsonl"'))
    assert training.run(path) == training.run(RUNS / "right.toml")


def test_a_small_rate_follows_the_gradient(tmp_path: Path) -> None:
    # one step of everything: the second loss falls by about rate · Σ|g| (AdamW's first update)
    path = edited(
        tmp_path,
        ("micro_batch_size = 2", "micro_batch_size = 9"),
        ("learning_rate = 0.01", "learning_rate = 1e-5"),
        ("warmup_steps = 2", "warmup_steps = 0"),
        ("weight_decay = 0.1", "weight_decay = 0"),
    )
    losses = [step["loss"] for step in training.run(path)]
    assert losses == sorted(losses, reverse=True)


def test_a_step_without_a_target_still_updates() -> None:
    steps = training.run(RUNS / "no-target.toml")
    (empty,) = [step for step in steps if step["num_targets"] == 0]
    assert empty["examples"] == ["t03"]
    assert (empty["loss"], empty["grad_norm"], empty["clip_factor"]) == (0.0, 0.0, 1.0)
    assert empty["param_norm"] != steps[empty["step"] - 1]["param_norm"]


def test_evaluation_is_due_on_multiples_and_at_the_end() -> None:
    due = [t for t in range(7) if training.is_evaluated(t, 7, 3)]
    assert due == [2, 5, 6]
    assert not any(training.is_evaluated(t, 7, 0) for t in range(7))
