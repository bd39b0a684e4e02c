"""Order of an epoch, rows, and the arrays of a step (S-08, S-09, S-10, S-11).

A micro-batches of a step, B rows of a micro-batch, T positions of a row. Arrays are NumPy int32
and (A, B, T); nothing here is random.
"""

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol

import numpy as np
import numpy.typing as npt

from stacks.torch_stack.config import Config
from stacks.torch_stack.encode import IntArray, MaskArray, Tokens

IGNORED = -100  # the label of a position that is no target


Row = Sequence[Tokens]  # the examples of a row, in order; empty for a filler row


@dataclass(frozen=True, kw_only=True)
class Shape:
    """How rows become a step."""

    accumulation_steps: int  # A
    micro_batch_size: int  # B
    pad_id: int
    padding_side: Literal["left", "right"]
    pad_multiple: int  # tokens

    @property
    def num_rows(self) -> int:
        """Rows of a step."""
        return self.accumulation_steps * self.micro_batch_size


@dataclass(frozen=True, kw_only=True)
class Batch:
    """The arrays of a step, each (A, B, T) int32, and the ids of its examples in row order."""

    examples: tuple[str, ...]
    input_ids: IntArray
    segments: IntArray
    positions: IntArray
    labels: IntArray

    @property
    def num_tokens(self) -> int:
        """Positions that are not padding."""
        return int(np.count_nonzero(self.segments))

    @property
    def num_targets(self) -> int:
        """Labels that are not ignored."""
        return int(np.count_nonzero(self.labels != IGNORED))

    def sha256(self) -> str:
        """The batch hash (S-10)."""
        digest = hashlib.sha256()
        for array in (self.input_ids, self.segments, self.positions, self.labels):
            digest.update(np.ascontiguousarray(array, "<i4").data)
        return digest.hexdigest()


def epoch_order(ids: Sequence[str], seed: int, epoch: int) -> list[int]:
    """Indices of the examples in the order of an epoch (S-08)."""
    keys = [hashlib.sha256(f"{seed}:{epoch}:{one}".encode()).digest() for one in ids]
    return sorted(range(len(ids)), key=keys.__getitem__)


def fill_rows(lengths: Sequence[int], max_length: int, packing: bool) -> list[list[int]]:
    """Rows of an epoch: positions in `lengths`, which is in epoch order (S-09)."""
    rows: list[list[int]] = []
    room = 0
    for position, length in enumerate(lengths):
        if packing and rows and length <= room:
            rows[-1].append(position)
        else:
            rows.append([position])
            room = max_length
        room -= length
    return rows


def build_batch(rows: Sequence[Row], shape: Shape) -> Batch:
    """At most A·B rows → the arrays of a step; missing rows are filler (S-10, S-11)."""
    longest = max((sum(len(one.ids) for one in row) for row in rows), default=0)
    num_positions = max(1, -(-longest // shape.pad_multiple)) * shape.pad_multiple
    size = (shape.num_rows, num_positions)
    input_ids = np.full(size, shape.pad_id, np.int32)
    segments, positions = np.zeros(size, np.int32), np.zeros(size, np.int32)
    targets = np.zeros(size, np.int8)
    for k, row in enumerate(rows):
        length = sum(len(one.ids) for one in row)
        start = num_positions - length if shape.padding_side == "left" else 0
        for segment, one in enumerate(row, start=1):
            end = start + len(one.ids)
            input_ids[k, start:end] = one.ids
            segments[k, start:end] = segment
            positions[k, start:end] = np.arange(end - start)
            targets[k, start:end] = one.mask
            start = end
    labels = label(input_ids, segments, targets)
    a, b = shape.accumulation_steps, shape.micro_batch_size
    return Batch(
        examples=tuple(one.id for row in rows for one in row),
        input_ids=input_ids.reshape(a, b, num_positions),
        segments=segments.reshape(a, b, num_positions),
        positions=positions.reshape(a, b, num_positions),
        labels=labels.reshape(a, b, num_positions),
    )


def label(input_ids: IntArray, segments: IntArray, targets: MaskArray) -> IntArray:
    """S-11: a target whose neighbour before it is of the same segment; all arrays (rows, T)."""
    is_label: npt.NDArray[np.bool_] = np.zeros(input_ids.shape, bool)
    is_label[:, 1:] = (
        (targets[:, 1:] == 1) & (segments[:, 1:] == segments[:, :-1]) & (segments[:, 1:] != 0)
    )
    return np.where(is_label, input_ids, np.int32(IGNORED)).astype(np.int32)


class Lazy(Sequence[Tokens]):
    """Examples that are encoded when they are asked for, and are known by id before that."""

    def __init__(self, ids: list[str], encode: Callable[[int], Tokens]) -> None:
        self.ids = ids
        self._encode = encode
        self._known: dict[int, Tokens] = {}

    def __len__(self) -> int:
        return len(self.ids)

    def __getitem__(self, index: Any) -> Any:
        if index not in self._known:
            self._known[index] = self._encode(index)
        return self._known[index]

    @property
    def num_encoded(self) -> int:
        """How many were asked for."""
        return len(self._known)


class Stream(Protocol):
    """Batches one after another, and the position of the next one in the data."""

    @property
    def epoch(self) -> int:
        """Epoch of the next step."""

    @property
    def row(self) -> int:
        """Rows of that epoch already taken."""

    def __next__(self) -> Batch:
        """The next step's batch."""


class BatchStream:
    """Batches of the training split without end, from a position in the data (S-08 to S-11).

    `epoch` and `row` are the position of the next step: rows of that epoch already taken. They
    are what a snapshot keeps and what a resumed run starts from (S-23).
    """

    def __init__(
        self, examples: Sequence[Tokens], config: Config, shape: Shape, epoch: int = 0, row: int = 0
    ) -> None:
        self._examples = examples
        self._ids = examples.ids if isinstance(examples, Lazy) else [one.id for one in examples]
        self._seed = config.seed
        self._max_length, self._packing = config.data.max_length, config.data.packing
        self.shape = shape
        self.epoch, self.row = epoch, row
        self._rows = self._epoch_rows(epoch)

    @property
    def steps_per_epoch(self) -> int:
        """Of the epoch of the next step."""
        return -(-len(self._rows) // self.shape.num_rows)

    def _epoch_rows(self, epoch: int) -> list[list[int]]:
        order = epoch_order(self._ids, self._seed, epoch)
        # Only packing asks how long an example is; lazy ones are not encoded for nothing
        lengths = [len(self._examples[index].ids) if self._packing else 0 for index in order]
        rows = fill_rows(lengths, self._max_length, self._packing)
        return [[order[position] for position in row] for row in rows]

    def __next__(self) -> Batch:
        taken = self._rows[self.row : self.row + self.shape.num_rows]
        batch = build_batch([[self._examples[index] for index in row] for row in taken], self.shape)
        self.row += len(taken)
        if self.row == len(self._rows):
            self.epoch, self.row = self.epoch + 1, 0
            self._rows = self._epoch_rows(self.epoch)
        return batch
