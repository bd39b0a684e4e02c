"""Order and batches: A18 to A26, unequal steps, and what explains a batch."""

from __future__ import annotations

import math

import pytest

from .conftest import Judge, pair
from .synthetic import ROWS, Documents, count_again, order, row_of


def train_ids(made: Documents) -> list[str]:
    return [row["id"] for row in made["tokens"] if row["split"] == "train"]


def reorder(made: Documents, taken: dict[int, list[str]]) -> None:
    for step, examples in taken.items():
        made["steps"][step]["examples"] = examples
        made["steps"][step]["batch_sha256"] = f"{step:064x}"


def test_same_order_every_epoch(judged: Judge) -> None:
    a, b = pair()
    reorder(b, {step: b["steps"][step - 4]["examples"] for step in range(4, 8)})
    verdict = judged(a, b)
    assert verdict.first is not None
    assert (verdict.first.phase, verdict.first.step, verdict.first.field) == (
        "order",
        4,
        "steps.examples",
    )
    assert verdict.first.hint == "jax has the same order as in epoch 0"
    assert verdict.first.num_like_it == 3
    assert (verdict.consequences[0].phase, verdict.consequences[0].because) == ("batch", "order")
    assert len(verdict.divergences) == 1


@pytest.mark.parametrize("other", [0, 8, 42])
def test_order_of_another_seed(judged: Judge, other: int) -> None:
    a, b = pair()
    ids = train_ids(b)
    for step in range(8):
        epoch, place = divmod(step, 4)
        taken = order(ids, other, epoch)[place * ROWS : (place + 1) * ROWS]
        reorder(b, {step: taken})
    first = judged(a, b).first
    assert first is not None
    assert (first.phase, first.step) == ("order", 0)
    assert first.hint == f"jax has the order of another seed ({other})"


def test_order_of_no_seed_names_the_leg_that_leaves_the_clause(judged: Judge) -> None:
    a, b = pair()
    ids = sorted(train_ids(b))
    reorder(b, {step: ids[(step % 4) * ROWS : (step % 4 + 1) * ROWS] for step in range(8)})
    first = judged(a, b).first
    assert first is not None
    assert first.hint == "jax does not follow the order of S-08"


def test_ids_repeated_at_the_end_of_the_epoch(judged: Judge) -> None:
    a, b = pair()
    last = b["steps"][3]["examples"]
    assert len(last) == 2, "14 examples in rows of 4 leave 2 for the last step"
    reorder(b, {3: last + b["steps"][0]["examples"][:2]})
    first = judged(a, b).first
    assert first is not None
    assert (first.phase, first.step) == ("order", 3)
    assert first.hint == "jax repeats ids to fill the last batch of the epoch"


def test_last_partial_batch_dropped(judged: Judge) -> None:
    a, b = pair()
    b["header"]["facts"]["steps_per_epoch"] = 3
    ids = train_ids(b)
    for step in range(3, 8):
        epoch, place = divmod(step, 3)
        b["steps"][step]["epoch"] = epoch
        reorder(b, {step: order(ids, 7, epoch)[place * ROWS : (place + 1) * ROWS]})
    verdict = judged(a, b)
    assert [(d.phase, d.field) for d in verdict.divergences] == [
        ("order", "header.facts.steps_per_epoch")
    ]
    assert verdict.divergences[0].hint == "jax drops the last partial batch"


def test_last_partial_batch_dropped_is_seen_in_the_steps_alone(judged: Judge) -> None:
    a, b = pair()
    ids = train_ids(b)
    for step in range(3, 8):
        epoch, place = divmod(step, 3)
        b["steps"][step]["epoch"] = epoch
        reorder(b, {step: order(ids, 7, epoch)[place * ROWS : (place + 1) * ROWS]})
    first = judged(a, b).first
    assert first is not None
    assert (first.phase, first.step) == ("order", 3)
    assert first.hint == "jax drops the last partial batch"


def test_same_ids_on_every_rank(judged: Judge) -> None:
    a, b = pair()
    half = b["steps"][0]["examples"][:2]
    reorder(b, {0: half + half})
    first = judged(a, b).first
    assert first is not None
    assert first.hint == "jax takes the same example more than once in a step"


def test_last_line_of_the_file_lost(judged: Judge) -> None:
    a, b = pair()
    b["tokens"] = [row for row in b["tokens"] if row["id"] != "train-013"]
    count_again(b)
    b["header"]["facts"]["steps_per_epoch"] = math.ceil(13 / ROWS)
    for step in b["steps"]:
        step["examples"] = [name for name in step["examples"] if name != "train-013"]
    verdict = judged(a, b)
    assert [(d.phase, d.field, d.example) for d in verdict.divergences] == [
        ("order", "tokens.id", "train-013")
    ]
    first = verdict.divergences[0]
    assert (first.a, first.b) == ("present", "absent")
    assert first.hint == "jax lost the last line of the train data: a last line without a newline"


def test_an_edge_example_of_one_leg_only_is_a_divergence(judged: Judge) -> None:
    a, b = pair()
    a["tokens"] = [row for row in a["tokens"] if row["id"] != "edge-001"]
    count_again(a)
    first = judged(a, b).first
    assert first is not None
    assert (first.phase, first.example, first.a) == ("order", "edge-001", "absent")
    assert first.hint == "torch lost examples of the edge split"


def test_a_lost_edge_example_does_not_explain_the_order_of_training(judged: Judge) -> None:
    a, b = pair()
    b["tokens"] = [row for row in b["tokens"] if row["id"] != "edge-002"]
    count_again(b)
    reorder(b, {2: b["steps"][2]["examples"][::-1]})
    assert [(d.field, d.example) for d in judged(a, b).divergences] == [
        ("tokens.id", "edge-002"),
        ("steps.examples", a["steps"][2]["examples"][0]),
    ]


def test_unequal_step_counts_diverge(judged: Judge) -> None:
    a, b = pair()
    b["steps"] = b["steps"][:6]
    verdict = judged(a, b)
    assert verdict.verdict == "DIVERGED"
    assert verdict.first is not None
    assert (verdict.first.field, verdict.first.step) == ("steps.step", 6)
    assert (verdict.first.a, verdict.first.b) == ("8 steps", "6 steps")


def test_a_batch_of_equal_rows_and_other_bytes_is_a_divergence_of_batch(judged: Judge) -> None:
    a, b = pair()
    b["steps"][2]["batch_sha256"] = "e" * 64
    b["steps"][2]["loss"] *= 1.5
    verdict = judged(a, b)
    assert verdict.first is not None
    assert (verdict.first.phase, verdict.first.step) == ("batch", 2)
    assert (verdict.first.hint or "").startswith("same shape and counts")
    assert [(c.phase, c.because) for c in verdict.consequences] == [("loss", "batch")]


def test_a_batch_flattened_to_one_row_is_named(judged: Judge) -> None:
    a, b = pair()
    for step in b["steps"]:
        step["batch_shape"] = [2, 1, 256]
    first = judged(a, b).first
    assert first is not None
    assert (first.phase, first.field) == ("batch", "steps.batch_shape")
    assert (first.hint or "").startswith("the same number of positions in another shape")


def test_a_batch_is_explained_by_the_mask_of_one_of_its_examples(judged: Judge) -> None:
    a, b = pair()
    name = b["steps"][1]["examples"][0]
    row = row_of(b, name)
    row["mask"] = [1] * len(row["mask"])
    for step in b["steps"]:
        if name in step["examples"]:
            step["batch_sha256"], step["num_targets"] = "e" * 64, step["num_targets"] + 9
            step["loss"] += 0.25
    verdict = judged(a, b)
    assert [d.phase for d in verdict.divergences] == ["mask"]
    found = {(c.phase, c.because, c.first_step) for c in verdict.consequences}
    assert {("batch", "mask", 1), ("loss", "mask", 1)} <= found


def test_another_seed_in_the_facts_explains_the_order(judged: Judge) -> None:
    a, b = pair()
    b["header"]["facts"]["seed"] = 8
    reorder(b, {0: b["steps"][0]["examples"][::-1]})
    verdict = judged(a, b)
    assert [(d.phase, d.field) for d in verdict.divergences] == [("echo", "header.facts.seed")]
    assert ("order", "echo") in {(c.phase, c.because) for c in verdict.consequences}
