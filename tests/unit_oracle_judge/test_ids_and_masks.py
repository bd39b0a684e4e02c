"""Ids and masks: the first phase, the token, and the hint (A04 to A17, A22, A25)."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from oracle.hints_tokens import ids_hint, mask_hint
from oracle.side import Side

from .conftest import Judge, pair
from .synthetic import row_of

CONTROL = {0: "<|endoftext|>", 1: "<|im_start|>", 2: "<|im_end|>", 3: "<s>"}
NAME = "train-003"


def make(text: str, ids: list[int], name: str, mask: Any = None, before: int | None = None) -> Side:
    return Side(
        name=name,
        text=text,
        ids=np.array(ids, dtype=np.int64),
        mask=np.array(mask if mask is not None else [0] * len(ids), dtype=np.int8),
        num_before=len(ids) if before is None else before,
        control=CONTROL,
    )


X = [3, 1, 50, 51, 2, 60, 1, 52, 53, 54, 2, 60]
IDS = {
    "A04": (X, [3, *X], "jax has a second beginning-of-text token (<s>)"),
    "bos in front": (X[1:], X, "jax has <s> in front"),
    "A06": (X[:-1], X[:-2], "jax lacks the last token (<|im_end|>): a missing end token"),
    "A03 in ids": (X[:-1], [*X[:-1], 2], "jax has <|im_end|> twice at the end"),
    "A16": ([1, 20, 30], [1, 31], "the ids part right after <|im_start|>: white space"),
    "typed": ([40, 1, 41], [40, 60, 61, 62, 41], "jax encodes 1 control tokens of the text as"),
}


@pytest.mark.parametrize("fault", IDS)
def test_ids_hint(fault: str) -> None:
    a, b, hint = IDS[fault]
    assert (ids_hint(make("t", a, "torch"), make("t", b, "jax")) or "").startswith(hint)
    assert ids_hint(make("t", b, "jax"), make("t", a, "torch")) == ids_hint(
        make("t", a, "torch"), make("t", b, "jax")
    ), "swapping the legs names the same leg"


def test_text_that_is_not_normalised_is_named_when_ids_differ() -> None:
    text = "fie\u0300vre"
    assert (ids_hint(make(text, [5, 6], "torch"), make(text, [7], "jax")) or "").startswith(
        "the text is not in NFC"
    )


@pytest.mark.parametrize(
    ("kept", "hint"),
    [
        (6, "jax cuts on the left, torch on the right: cut on the other side"),
        (4, "the legs keep different ends: one cuts on the other side"),
    ],
)
def test_cut_on_the_other_side(kept: int, hint: str) -> None:
    whole = list(range(20, 30))
    right = make("t", whole[:kept], "torch", before=10)
    left = make("t", whole[-kept:], "jax", before=10)
    assert ids_hint(right, left) == ids_hint(left, right) == hint


def test_another_max_length_is_named() -> None:
    a, b = make("t", X[:6], "torch", before=12), make("t", X[:4], "jax", before=12)
    assert ids_hint(a, b) == "jax keeps 4 tokens of the same, torch 6"


ANSWERS = [0, 0, 0, 1, 1, 0, 0, 0, 1, 1, 1, 0]
MASK_IDS = [1, 50, 51, 52, 2, 60, 1, 61, 53, 54, 2, 60]
MASKS = {
    "A07": ([1] * 12, "jax supervises everything"),
    "A08": ([0, 0, 0, 1, 1, 0, 1, 1, 1, 1, 1, 0], "jax supervises the generation prompt, 2 tokens"),
    "A09": (ANSWERS[-3:] + ANSWERS[:-3], "the mask of jax is that of torch rolled right by 3"),
    "A10": ([0] * 8 + [1, 1, 1, 0], "jax trains only the last turn"),
    "A11": ([0, 0, 0, 0, 1, 0, 0, 0, 1, 1, 1, 0], "jax loses the first answer token of the first"),
    "A11 every": ([0, 0, 0, 0, 1, 0, 0, 0, 0, 1, 1, 0], "jax loses the first answer token of ev"),
    "A12": ([0, 0, 0, 1, 0, 0, 0, 0, 1, 1, 0, 0], "jax always ignores <|im_end|>"),
    "A22": ([0] * 12, "jax has no targets at all"),
    "right by one": ([0, *ANSWERS[:-1]], "the mask of jax is that of torch shifted right by one"),
    "left by one": ([*ANSWERS[1:], 0], "the mask of torch is that of jax shifted right by one"),
    "newline": ([0, 0, 0, 1, 1, 1, 0, 0, 1, 1, 1, 1], "jax supervises 1 tokens after the end of a"),
}  # fmt: skip


@pytest.mark.parametrize("fault", MASKS)
def test_mask_hint(fault: str) -> None:
    mask, hint = MASKS[fault]
    a, b = make("t", MASK_IDS, "torch", ANSWERS), make("t", MASK_IDS, "jax", mask)
    assert (mask_hint(a, b) or "").startswith(hint)
    assert mask_hint(b, a) == mask_hint(a, b)


def test_prefix_length_mask_of_a_rewriting_template_is_found_in_mask(judged: Judge) -> None:
    a, b = pair()
    mask = row_of(b, NAME)["mask"]
    place = mask.index(1) + 2
    mask[place], mask[-2] = 0, 0
    first = judged(a, b).first
    assert first is not None
    assert (first.phase, first.position, first.clause) == ("mask", place, "S-06")
    assert first.a.startswith("target")
    assert first.b.startswith("ignored")


def test_ids_position_is_the_first_that_differs_and_the_diff_is_aligned(judged: Judge) -> None:
    a, b = pair()
    row = row_of(b, NAME)
    size = len(row["ids"])
    row["ids"].insert(4, 77)
    row["mask"].insert(4, 0)
    row["num_tokens_before_truncation"] += 1
    verdict = judged(a, b)
    assert verdict.first is not None
    assert (verdict.first.phase, verdict.first.position) == ("ids", 4)
    assert verdict.first.diff == (
        {"op": "equal", "a": [0, 4], "b": [0, 4]},
        {"op": "insert", "a": [4, 4], "b": [4, 5]},
        {"op": "equal", "a": [4, size], "b": [5, size + 1]},
    )
    assert [(c.phase, c.because) for c in verdict.consequences] == [("mask", "ids")]


@pytest.mark.parametrize("field", ["num_tokens_before_truncation", "typed_control_tokens"])
def test_a_count_that_differs_alone_is_a_divergence_of_ids(judged: Judge, field: str) -> None:
    a, b = pair()
    row_of(b, NAME)[field] += 3
    first = judged(a, b).first
    assert first is not None
    assert (first.phase, first.field) == ("ids", f"tokens.{field}")
    assert int(first.b) == int(first.a) + 3


def test_different_faults_in_masks_are_listed_apart(judged: Judge) -> None:
    a, b = pair()
    everything, nothing = row_of(b, "train-001"), row_of(b, "train-002")
    everything["mask"] = [1] * len(everything["mask"])
    nothing["mask"] = [0] * len(nothing["mask"])
    hints = {d.hint for d in judged(a, b).divergences}
    assert hints == {"jax supervises everything", "jax has no targets at all"}
