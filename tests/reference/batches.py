"""Batches (S-10) and labels (S-11): the arrays of every step of one epoch.

A micro-batches, B rows of a micro-batch, T positions of a row.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int32]

IGNORED = -100


@dataclass(frozen=True, kw_only=True)
class Encoded:
    """One example after truncation: token ids and its mask of the same length."""

    ids: tuple[int, ...]
    mask: tuple[int, ...]


@dataclass(frozen=True, kw_only=True)
class Batch:
    """The arrays of one step, each (A, B, T) int32."""

    input_ids: Ints
    segments: Ints
    positions: Ints
    labels: Ints

    @property
    def sha256(self) -> str:
        """The batch hash: the four arrays one after the other, little-endian, row-major."""
        digest = hashlib.sha256()
        for array in (self.input_ids, self.segments, self.positions, self.labels):
            digest.update(np.ascontiguousarray(array).astype("<i4").tobytes())
        return digest.hexdigest()

    @property
    def num_tokens(self) -> int:
        """Positions that are not padding."""
        return int(np.count_nonzero(self.segments))

    @property
    def num_targets(self) -> int:
        """Labels that are predicted."""
        return int(np.count_nonzero(self.labels != IGNORED))


Row = Sequence[Encoded]  # the examples of a row; none for a filler row


def make_labels(input_ids: Ints, segments: Ints, mask: Ints) -> Ints:
    """S-11 in the last axis: a target follows a position of its own segment."""
    labels = np.full_like(input_ids, IGNORED)
    inside = (segments[..., 1:] == segments[..., :-1]) & (segments[..., 1:] != 0)
    target = inside & (mask[..., 1:] == 1)
    labels[..., 1:] = np.where(target, input_ids[..., 1:], IGNORED)
    return labels


def make_batch(
    rows: Sequence[Row],
    *,
    shape: tuple[int, int],
    pad_id: int,
    padding_side: str,
    pad_multiple: int,
) -> Batch:
    """One step of at most A·B rows; `shape` is (A, B). Missing rows become filler rows."""
    num_micro, num_rows = shape
    longest = max((sum(len(example.ids) for example in row) for row in rows), default=0)
    width = -(-longest // pad_multiple) * pad_multiple
    flat = (num_micro * num_rows, width)
    input_ids = np.full(flat, pad_id, dtype=np.int32)
    segments, positions, mask = (np.zeros(flat, dtype=np.int32) for _ in range(3))
    for k, row in enumerate(rows):
        used = sum(len(example.ids) for example in row)
        start = 0 if padding_side == "right" else width - used
        for number, example in enumerate(row, start=1):
            stop = start + len(example.ids)
            input_ids[k, start:stop] = example.ids
            mask[k, start:stop] = example.mask
            segments[k, start:stop] = number
            positions[k, start:stop] = range(len(example.ids))
            start = stop
    labels = make_labels(input_ids, segments, mask)
    full = (num_micro, num_rows, width)
    return Batch(
        input_ids=input_ids.reshape(full),
        segments=segments.reshape(full),
        positions=positions.reshape(full),
        labels=labels.reshape(full),
    )


def epoch_batches(
    rows: Sequence[Row],
    *,
    micro_batch_size: int,
    accumulation_steps: int,
    pad_id: int,
    padding_side: str,
    pad_multiple: int,
) -> list[Batch]:
    """All steps of an epoch with these rows: ceil(rows / (A·B)) of them."""
    size = micro_batch_size * accumulation_steps
    return [
        make_batch(
            rows[first : first + size],
            shape=(accumulation_steps, micro_batch_size),
            pad_id=pad_id,
            padding_side=padding_side,
            pad_multiple=pad_multiple,
        )
        for first in range(0, len(rows), size)
    ]
