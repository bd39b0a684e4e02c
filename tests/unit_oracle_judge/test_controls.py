"""A stack against itself under another config: what means the same is no difference (G05, G09)."""

from __future__ import annotations

from typing import Any

import pytest

from .conftest import Judge
from .synthetic import Documents, documents

OTHER_CONFIG = "d" * 64


def plain_and_varied(config: str = OTHER_CONFIG) -> tuple[Documents, Documents]:
    plain, varied = documents(), documents()
    varied["header"]["config_sha256"] = config
    return plain, varied


def cut(made: Documents, micro: int, rows: int, more_positions: int = 0) -> None:
    """Cut the rows of each step into `micro` times `rows`."""
    for step in made["steps"]:
        length = step["batch_shape"][2]
        step["batch_shape"] = [micro, rows, length + more_positions]


def test_the_same_rows_in_other_micro_batches_are_the_same(judged: Judge) -> None:
    plain, varied = plain_and_varied()
    assert plain["steps"][0]["batch_shape"][:2] == [2, 2]
    cut(varied, 1, 4)
    verdict = judged(plain, varied, purpose="self", floor=None)
    assert verdict.verdict == "AGREE", verdict.reasons
    batch = next(phase for phase in verdict.phases if phase.phase == "batch")
    assert (batch.num_compared, batch.num_agreeing) == (8, 8)


@pytest.mark.parametrize(("micro", "rows", "more"), [(1, 5, 0), (1, 4, 8), (2, 2, 8)])
def test_other_rows_or_another_length_are_not(
    judged: Judge, micro: int, rows: int, more: int
) -> None:
    plain, varied = plain_and_varied()
    cut(varied, micro, rows, more)
    first = judged(plain, varied, purpose="self", floor=None).first
    assert first is not None
    assert (first.phase, first.field, first.num_like_it) == ("batch", "steps.batch_shape", 7)


def test_other_bytes_in_the_same_rows_are_not(judged: Judge) -> None:
    plain, varied = plain_and_varied()
    cut(varied, 1, 4)
    varied["steps"][3]["batch_sha256"] = "e" * 64
    first = judged(plain, varied, purpose="self", floor=None).first
    assert first is not None
    assert (first.field, first.step) == ("steps.batch_sha256", 3)


def test_under_one_config_other_micro_batches_are_a_fault(judged: Judge) -> None:
    plain, varied = plain_and_varied(documents()["header"]["config_sha256"])
    cut(varied, 1, 4)
    first = judged(plain, varied, purpose="self", floor=None).first
    assert first is not None
    assert first.field == "steps.batch_shape"


def in_two_files(made: Documents, name: str = "train") -> None:
    made["header"]["facts"]["files"][name] = ["1" * 64, "2" * 64]


def test_the_same_examples_in_other_files_are_the_same(judged: Judge) -> None:
    plain, varied = plain_and_varied()
    in_two_files(varied)
    verdict = judged(plain, varied, purpose="self", floor=None)
    assert verdict.verdict == "AGREE", verdict.reasons


def change_a_text(made: Documents) -> None:
    made["tokens"][0]["text"] += "!"


def change_the_template(made: Documents) -> None:
    made["header"]["facts"]["files"]["template"] = "3" * 64


@pytest.mark.parametrize(
    ("change", "field"),
    [(change_a_text, "tokens.text"), (change_the_template, "header.facts.files.template")],
)
def test_what_the_files_say_is_still_compared(judged: Judge, change: Any, field: str) -> None:
    plain, varied = plain_and_varied()
    in_two_files(varied)
    change(varied)
    verdict = judged(plain, varied, purpose="self", floor=None)
    assert verdict.first is not None
    assert verdict.first.field == field


def test_under_one_config_other_files_are_a_fault(judged: Judge) -> None:
    plain, varied = plain_and_varied(documents()["header"]["config_sha256"])
    in_two_files(varied)
    first = judged(plain, varied, purpose="self", floor=None).first
    assert first is not None
    assert first.field == "header.facts.files.train"
