"""Examples to batches: the order of an epoch, rows, padding, labels (S-08 to S-11).

A micro-batches of a step, B rows of a micro-batch, T positions of a row
"""

import hashlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice

import numpy as np
from jaxtyping import Int32

IGNORED = -100  # a label that is no target


@dataclass(frozen=True, kw_only=True, slots=True)
class Tokens:
    """The ids and the mask of one example, as long as each other."""

    id: str
    ids: Int32[np.ndarray, " n"]
    mask: Int32[np.ndarray, " n"]


@dataclass(frozen=True, kw_only=True)
class RowLayout:
    """How rows become arrays (S-10)."""

    pad_id: int
    padding_side: str
    pad_multiple: int
    micro_batch_size: int  # B
    accumulation_steps: int  # A

    @property
    def rows_per_step(self) -> int:
        """A · B."""
        return self.accumulation_steps * self.micro_batch_size


@dataclass(frozen=True, kw_only=True)
class Batch:
    """The arrays of one step."""

    input_ids: Int32[np.ndarray, "A B T"]
    segments: Int32[np.ndarray, "A B T"]
    positions: Int32[np.ndarray, "A B T"]
    labels: Int32[np.ndarray, "A B T"]

    @property
    def num_targets(self) -> int:
        """How many labels are targets (S-11)."""
        return int(np.count_nonzero(self.labels != IGNORED))

    @property
    def num_tokens(self) -> int:
        """How many positions are not padding (S-11)."""
        return int(np.count_nonzero(self.segments))

    def sha256(self) -> str:
        """The batch hash (S-10)."""
        digest = hashlib.sha256()
        for array in (self.input_ids, self.segments, self.positions, self.labels):
            digest.update(np.ascontiguousarray(array, dtype="<i4").tobytes())
        return digest.hexdigest()


@dataclass(frozen=True, kw_only=True, order=True)
class Position:
    """A place in the data: `row` rows of `epoch` have been taken (S-23)."""

    epoch: int
    row: int


START = Position(epoch=0, row=0)


@dataclass(frozen=True, kw_only=True)
class StepData:
    """What a step trains on: the ids of its examples, row by row, and its batch."""

    epoch: int
    examples: list[str]
    batch: Batch
    following: Position  # of the next step


def epoch_order(seed: int, epoch: int, ids: Sequence[str]) -> list[int]:
    """Indices of `ids`, sorted by the hash of "{seed}:{epoch}:{id}" (S-08)."""
    keys = [hashlib.sha256(f"{seed}:{epoch}:{id}".encode()).digest() for id in ids]
    return sorted(range(len(ids)), key=keys.__getitem__)


def fill_rows(lengths: Sequence[int], max_length: int, packing: bool) -> list[list[int]]:
    """Positions in `lengths`, grouped into rows; an earlier row is never reopened (S-09)."""
    return list(packed_rows(lengths, max_length)) if packing else [[i] for i in range(len(lengths))]


def packed_rows(lengths: Iterable[int], max_length: int) -> Iterator[list[int]]:
    """The rows of a packed epoch; a length is asked for when the row before it is still open."""
    row: list[int] = []
    num_tokens = 0
    for i, length in enumerate(lengths):
        if row and num_tokens + length > max_length:
            yield row
            row, num_tokens = [], 0
        row.append(i)
        num_tokens += length
    if row:
        yield row


@dataclass(kw_only=True)
class EpochRows:
    """The rows of an epoch, made only as far as they are asked for."""

    source: Iterator[list[int]]
    made: list[list[int]] = field(default_factory=list)

    def reach(self, row: int) -> bool:
        """Whether the epoch has a row of this number."""
        self.made.extend(islice(self.source, max(0, row + 1 - len(self.made))))
        return row < len(self.made)

    def __getitem__(self, place: slice) -> list[list[int]]:
        self.reach(place.stop - 1)
        return self.made[place]

    def __len__(self) -> int:
        self.made.extend(self.source)
        return len(self.made)


def make_batch(rows: Sequence[Sequence[Tokens]], layout: RowLayout) -> Batch:
    """The arrays of a step from at most A · B rows; the rest are filler rows (S-10)."""
    longest = max(sum(len(tokens.ids) for tokens in row) for row in rows)
    length = -(-longest // layout.pad_multiple) * layout.pad_multiple  # T
    shape = (layout.rows_per_step, length)
    input_ids = np.full(shape, layout.pad_id, dtype=np.int32)
    segments, positions, mask = (np.zeros(shape, dtype=np.int32) for _ in range(3))
    for k, row in enumerate(rows):
        start = (
            0 if layout.padding_side == "right" else length - sum(len(tokens.ids) for tokens in row)
        )
        for segment, tokens in enumerate(row, start=1):
            place = slice(start, start + len(tokens.ids))
            input_ids[k, place], mask[k, place] = tokens.ids, tokens.mask
            segments[k, place], positions[k, place] = (
                segment,
                np.arange(len(tokens.ids), dtype=np.int32),
            )
            start = place.stop
    final = (layout.accumulation_steps, layout.micro_batch_size, length)
    labels = make_labels(input_ids, segments, mask)
    return Batch(
        input_ids=input_ids.reshape(final),
        segments=segments.reshape(final),
        positions=positions.reshape(final),
        labels=labels.reshape(final),
    )


def make_labels(
    input_ids: Int32[np.ndarray, "R T"],
    segments: Int32[np.ndarray, "R T"],
    mask: Int32[np.ndarray, "R T"],
) -> Int32[np.ndarray, "R T"]:
    """`input_ids` where a token is a target, else -100; the first of a segment never is (S-11)."""
    labels = np.full_like(input_ids, IGNORED)
    is_target = (mask[:, 1:] == 1) & (segments[:, 1:] == segments[:, :-1]) & (segments[:, 1:] != 0)
    labels[:, 1:] = np.where(is_target, input_ids[:, 1:], IGNORED)
    return labels


@dataclass(frozen=True, kw_only=True)
class StepPlan:
    """Which rows a step takes, as indices of examples; nothing of them is needed to say so, unless
    rows are packed.
    """

    epoch: int
    rows: list[list[int]]
    following: Position  # of the next step


@dataclass(frozen=True, kw_only=True)
class TrainingData:
    """The training split as an endless sequence of steps (S-08 to S-10).

    Attributes:
        ids: of all examples, in file order.
        tokens_of: index -> example; called when a step, or packing, needs it.
    """

    ids: Sequence[str]
    tokens_of: Callable[[int], Tokens]
    seed: int
    max_length: int
    packing: bool
    layout: RowLayout

    def rows_of(self, epoch: int) -> EpochRows:
        """The rows of an epoch, as indices of examples."""
        order = epoch_order(self.seed, epoch, self.ids)
        if not self.packing:
            return EpochRows(source=([i] for i in order))
        lengths = (len(self.tokens_of(i).ids) for i in order)
        packed = packed_rows(lengths, self.max_length)
        return EpochRows(source=([order[i] for i in row] for row in packed))

    def steps_of(self, epoch: int) -> int:
        """Steps of an epoch: ceil(rows / (A · B))."""
        return -(-len(self.rows_of(epoch)) // self.layout.rows_per_step)

    def plans(self, position: Position) -> Iterator[StepPlan]:
        """The rows of the steps from `position` on; never ends."""
        epoch, row = position.epoch, position.row
        while True:
            rows = self.rows_of(epoch)
            while rows.reach(row):
                taken = rows[row : row + self.layout.rows_per_step]
                row += self.layout.rows_per_step
                following = (
                    Position(epoch=epoch, row=row)
                    if rows.reach(row)
                    else Position(epoch=epoch + 1, row=0)
                )
                yield StepPlan(epoch=epoch, rows=taken, following=following)
            epoch, row = epoch + 1, 0

    def make(self, plan: StepPlan) -> StepData:
        """The batch of a step."""
        return StepData(
            epoch=plan.epoch,
            examples=[self.ids[i] for indices in plan.rows for i in indices],
            batch=make_batch(
                [[self.tokens_of(i) for i in indices] for indices in plan.rows], self.layout
            ),
            following=plan.following,
        )

    def steps(self, position: Position) -> Iterator[StepData]:
        """The steps from `position` on; never ends."""
        return map(self.make, self.plans(position))


def eval_batches(examples: Sequence[Tokens], layout: RowLayout) -> Iterator[Batch]:
    """Unpacked batches (1, B, T) in file order, each with a T of its own (S-20)."""
    for start in range(0, len(examples), layout.rows_per_step):
        yield make_batch(
            [[tokens] for tokens in examples[start : start + layout.rows_per_step]], layout
        )
