import hashlib
import struct
from itertools import pairwise

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from tests.reference.batches import IGNORED, Encoded, epoch_batches
from tests.reference.order import epoch_order
from tests.reference.rows import fill_rows

LENGTHS = st.lists(st.integers(1, 9), min_size=1, max_size=25)


@given(LENGTHS, st.booleans())
def test_rows_hold_every_example_once_in_order(lengths: list[int], packing: bool) -> None:
    rows = fill_rows(lengths, max_length=9, packing=packing)
    assert [i for row in rows for i in row] == list(range(len(lengths)))
    assert all(sum(lengths[i] for i in row) <= 9 for row in rows)
    if packing:  # the first example of a row had no room in the row before
        for before, row in pairwise(rows):
            assert sum(lengths[i] for i in before) + lengths[row[0]] > 9


@given(LENGTHS, st.integers(1, 3), st.integers(1, 3), st.integers(1, 5), st.booleans())
def test_every_token_is_in_the_batches_once(
    lengths: list[int], size: int, steps: int, multiple: int, left: bool
) -> None:
    start, examples = 1, []
    for length in lengths:
        ids = tuple(range(start, start + length))
        examples.append(Encoded(ids=ids, mask=(1,) * length))
        start += length
    batches = epoch_batches(
        [[example] for example in examples],
        micro_batch_size=size,
        accumulation_steps=steps,
        pad_id=0,
        padding_side="left" if left else "right",
        pad_multiple=multiple,
    )
    assert len(batches) == -(-len(lengths) // (size * steps))
    tokens = np.concatenate([b.input_ids[b.segments != 0] for b in batches])
    assert tokens.tolist() == list(range(1, start))
    for batch in batches:
        assert batch.input_ids.shape[2] % multiple == 0
        targets = batch.labels != IGNORED
        assert (batch.labels[targets] == batch.input_ids[targets]).all()
        assert not targets[..., 0].any()
        assert not targets[batch.positions == 0].any()
        assert batch.num_targets == batch.num_tokens - np.count_nonzero(
            (batch.positions == 0) & (batch.segments != 0)
        )


def test_the_batch_hash_is_hashlibs_on_packed_integers() -> None:
    example = Encoded(ids=(5, 6, 7), mask=(1, 1, 1))
    (batch,) = epoch_batches(
        [[example]],
        micro_batch_size=1,
        accumulation_steps=1,
        pad_id=0,
        padding_side="right",
        pad_multiple=4,
    )
    numbers = [5, 6, 7, 0, 1, 1, 1, 0, 0, 1, 2, 0, -100, 6, 7, -100]
    assert batch.sha256 == hashlib.sha256(struct.pack("<16i", *numbers)).hexdigest()


def test_the_order_is_that_of_the_shells_sha256sum() -> None:
    # printf '17:0:a' | sha256sum: 1ccb…, b 5a9f…, c 65d2…, d 653e…
    assert epoch_order(17, 0, ["a", "b", "c", "d"]) == ["a", "b", "d", "c"]


@given(st.permutations(["a", "b", "c", "é", "0:1"]), st.integers(0, 9))
def test_the_order_forgets_the_order_of_the_file(ids: list[str], epoch: int) -> None:
    assert epoch_order(5, epoch, ids) == epoch_order(5, epoch, sorted(ids))
