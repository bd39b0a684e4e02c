import hashlib
from collections.abc import Callable

import numpy as np
import pytest

from stacks.jax_stack.batch import (
    Position,
    RowLayout,
    Tokens,
    TrainingData,
    epoch_order,
    eval_batches,
    fill_rows,
    make_batch,
)


def tokens(name: str, length: int, first: int = 1) -> Tokens:
    ids = np.arange(first, first + length, dtype=np.int32)
    return Tokens(id=name, ids=ids, mask=np.ones(length, dtype=np.int32))


def layout(side: str = "right", multiple: int = 4, a: int = 1, b: int = 2) -> RowLayout:
    return RowLayout(
        pad_id=0, padding_side=side, pad_multiple=multiple, micro_batch_size=b, accumulation_steps=a
    )


def test_order_is_by_the_hash_of_seed_epoch_and_id() -> None:
    ids = ["a", "b", "c", "d"]
    by_hash = sorted(ids, key=lambda name: hashlib.sha256(f"7:2:{name}".encode()).hexdigest())
    assert [ids[i] for i in epoch_order(7, 2, ids)] == by_hash
    assert epoch_order(7, 2, ids) != epoch_order(7, 3, ids)


def test_rows_join_while_they_fit_and_are_never_reopened() -> None:
    assert fill_rows([3, 2, 5, 1, 4, 6], 6, packing=True) == [[0, 1], [2, 3], [4], [5]]
    assert fill_rows([3, 2], 6, packing=False) == [[0], [1]]
    assert fill_rows([9, 1, 7], 6, packing=True) == [[0], [1], [2]]


def test_a_batch_by_hand_with_packing_and_a_filler_row() -> None:
    batch = make_batch([[tokens("a", 2), tokens("b", 3, 11)]], layout())
    assert batch.input_ids.tolist() == [[[1, 2, 11, 12, 13, 0, 0, 0], [0] * 8]]
    assert batch.segments.tolist() == [[[1, 1, 2, 2, 2, 0, 0, 0], [0] * 8]]
    assert batch.positions.tolist() == [[[0, 1, 0, 1, 2, 0, 0, 0], [0] * 8]]
    assert batch.labels.tolist() == [[[-100, 2, -100, 12, 13, -100, -100, -100], [-100] * 8]]
    assert (batch.num_tokens, batch.num_targets) == (5, 3)


def test_left_padding_moves_the_row_and_not_its_positions() -> None:
    batch = make_batch([[tokens("a", 3)], [tokens("b", 1)]], layout("left"))
    assert batch.input_ids.tolist() == [[[0, 1, 2, 3], [0, 0, 0, 1]]]
    assert batch.positions.tolist() == [[[0, 0, 1, 2], [0, 0, 0, 0]]]
    assert batch.labels.tolist() == [[[-100, -100, 2, 3], [-100] * 4]]


def test_row_k_is_in_micro_batch_k_over_b_and_all_have_one_t() -> None:
    batch = make_batch([[tokens(str(i), 1, i + 1)] for i in range(3)], layout(a=2))
    assert batch.input_ids[:, :, 0].tolist() == [[1, 2], [3, 0]]


def test_the_hash_is_of_little_endian_int32_in_the_order_of_the_clause() -> None:
    batch = make_batch([[tokens("a", 2)], [tokens("b", 2)]], layout(multiple=2))
    words = [1, 2, 1, 2, 1, 1, 1, 1, 0, 1, 0, 1, -100, 2, -100, 2]
    data = b"".join((word % 2**32).to_bytes(4, "little") for word in words)
    assert batch.sha256() == hashlib.sha256(data).hexdigest()


def data_of(num_examples: int) -> TrainingData:
    examples = [tokens(f"x{i}", 1 + i % 3) for i in range(num_examples)]
    return training_data(num_examples, examples.__getitem__, packing=False)


def training_data(
    num_examples: int, tokens_of: Callable[[int], Tokens], *, packing: bool
) -> TrainingData:
    ids = [f"x{i}" for i in range(num_examples)]
    return TrainingData(
        ids=ids, tokens_of=tokens_of, seed=1, max_length=8, packing=packing, layout=layout(a=2)
    )


@pytest.mark.parametrize(("packing", "limit"), [(False, 4), (True, 20)])
def test_only_examples_that_a_step_needs_are_asked_for(packing: bool, limit: int) -> None:
    asked = set()

    def tokens_of(i: int) -> Tokens:
        asked.add(f"x{i}")
        return tokens(f"x{i}", 1 + i % 3)

    step = next(training_data(300, tokens_of, packing=packing).steps(Position(epoch=0, row=0)))
    assert set(step.examples) <= asked
    assert len(asked) <= limit


def test_an_epoch_takes_every_example_once_and_no_step_spans_two() -> None:
    steps = data_of(10).steps(Position(epoch=0, row=0))
    first = [next(steps) for _ in range(3)]
    assert [step.epoch for step in first] == [0, 0, 0]
    assert sorted(name for step in first for name in step.examples) == sorted(
        f"x{i}" for i in range(10)
    )
    assert len(first[2].examples) == 2
    assert first[2].following == Position(epoch=1, row=0)
    assert next(steps).epoch == 1
    assert data_of(10).steps_of(0) == 3


def test_steps_from_a_position_are_those_that_follow_it() -> None:
    steps = data_of(10).steps(Position(epoch=0, row=0))
    whole = [next(steps) for _ in range(8)]
    resumed = data_of(10).steps(whole[3].following)
    for step in whole[4:]:
        other = next(resumed)
        assert (step.epoch, step.examples) == (other.epoch, other.examples)
        assert step.batch.sha256() == other.batch.sha256()


def test_evaluation_batches_are_in_file_order_each_with_its_own_t() -> None:
    examples = [tokens("a", 5), tokens("b", 1), tokens("c", 2)]
    batches = list(eval_batches(examples, layout()))
    assert [batch.labels.shape for batch in batches] == [(1, 2, 8), (1, 2, 4)]
    assert batches[1].num_tokens == 2
