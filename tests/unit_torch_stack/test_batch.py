"""Order, rows and arrays on cases small enough to write out (S-08 to S-11)."""

import hashlib
import struct
from pathlib import Path

import numpy as np
import pytest

from stacks.torch_stack.batch import Batch, BatchStream, Shape, build_batch, epoch_order, fill_rows
from stacks.torch_stack.config import Config, load_config
from stacks.torch_stack.encode import Tokens

from .conftest import Run


def tokens(name: str, ids: list[int], mask: list[int] | None = None) -> Tokens:
    chosen = [1] * len(ids) if mask is None else mask
    return Tokens(id=name, ids=np.array(ids, np.int32), mask=np.array(chosen, np.int8))


def shape(**changes: object) -> Shape:
    values = {
        "accumulation_steps": 1,
        "micro_batch_size": 2,
        "pad_id": 9,
        "padding_side": "right",
        "pad_multiple": 4,
    }
    return Shape(**{**values, **changes})  # type: ignore[arg-type]


def test_order_is_by_hash_of_seed_epoch_and_id() -> None:
    ids = ["a", "b", "ü", "10", "1"]
    for epoch in range(3):
        keys = {one: hashlib.sha256(f"7:{epoch}:{one}".encode()).hexdigest() for one in ids}
        assert [ids[i] for i in epoch_order(ids, 7, epoch)] == sorted(ids, key=keys.__getitem__)


def test_rows_are_filled_in_order_and_never_reopened() -> None:
    assert fill_rows([3, 4, 5, 3, 2, 8], 8, True) == [[0, 1], [2, 3], [4], [5]]
    assert fill_rows([3, 4], 8, False) == [[0], [1]]
    assert fill_rows([], 8, True) == []


def test_arrays_of_a_packed_step_with_right_padding() -> None:
    rows = [[tokens("a", [1, 2, 3], [0, 1, 1]), tokens("b", [4, 5])], [tokens("c", [6])]]
    batch = build_batch(rows, shape())
    assert batch.examples == ("a", "b", "c")
    assert batch.input_ids.tolist() == [[[1, 2, 3, 4, 5, 9, 9, 9], [6, 9, 9, 9, 9, 9, 9, 9]]]
    assert batch.segments.tolist() == [[[1, 1, 1, 2, 2, 0, 0, 0], [1, 0, 0, 0, 0, 0, 0, 0]]]
    assert batch.positions.tolist() == [[[0, 1, 2, 0, 1, 0, 0, 0], [0] * 8]]
    x = -100
    assert batch.labels.tolist() == [[[x, 2, 3, x, 5, x, x, x], [x] * 8]]
    assert (batch.num_tokens, batch.num_targets) == (6, 3)


def test_arrays_with_left_padding() -> None:
    batch = build_batch([[tokens("a", [1, 2]), tokens("b", [3])]], shape(padding_side="left"))
    assert batch.input_ids.tolist() == [[[9, 1, 2, 3], [9, 9, 9, 9]]]
    assert batch.segments.tolist() == [[[0, 1, 1, 2], [0, 0, 0, 0]]]
    assert batch.positions.tolist() == [[[0, 0, 1, 0], [0, 0, 0, 0]]]
    assert batch.labels.tolist() == [[[-100, -100, 2, -100], [-100] * 4]]


def test_all_micro_batches_have_the_width_of_the_longest_row() -> None:
    rows = [[tokens("a", [1])], [tokens("b", [2] * 5)], [tokens("c", [3])]]
    batch = build_batch(rows, shape(accumulation_steps=2, pad_multiple=1))
    assert batch.input_ids.shape == (2, 2, 5)
    assert batch.segments[1].tolist() == [[1, 0, 0, 0, 0], [0] * 5]  # row 3 is filler


def test_the_hash_is_of_little_endian_integers() -> None:
    batch = build_batch([[tokens("a", [1, 258])]], shape(micro_batch_size=1, pad_multiple=2))
    values = (1, 258, 1, 1, 0, 1, -100, 258)
    assert batch.sha256() == hashlib.sha256(struct.pack("<8i", *values)).hexdigest()


@pytest.fixture
def config(small_run: Run) -> Config:
    path: Path = small_run()
    return load_config(path, path.parent)


def taken(stream: BatchStream, count: int) -> list[Batch]:
    return [next(stream) for _ in range(count)]


def test_an_epoch_holds_every_example_once_and_steps_do_not_span_epochs(config: Config) -> None:
    examples = [tokens(str(number), [1, 2]) for number in range(5)]
    stream = BatchStream(examples, config, shape())
    assert stream.steps_per_epoch == 3
    first, second = taken(stream, 3), taken(stream, 3)
    for batches, epoch in ((first, 0), (second, 1)):
        ids = [one for batch in batches for one in batch.examples]
        assert ids == [str(index) for index in epoch_order(list("01234"), config.seed, epoch)]
        assert [len(batch.examples) for batch in batches] == [2, 2, 1]
    assert (stream.epoch, stream.row) == (2, 0)


def test_a_stream_goes_on_from_its_position(config: Config) -> None:
    examples = [tokens(str(number), [1] * (number + 1)) for number in range(5)]
    whole = taken(BatchStream(examples, config, shape()), 8)
    stream = BatchStream(examples, config, shape())
    for number in range(8):
        resumed = BatchStream(examples, config, shape(), stream.epoch, stream.row)
        hashes = [batch.sha256() for batch in taken(resumed, 8 - number)]
        assert hashes == [batch.sha256() for batch in whole[number:]]
        next(stream)
