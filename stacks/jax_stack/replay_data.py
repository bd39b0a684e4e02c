"""The data of a replay: its own batches, rendered only where a step needs them, or another leg's
(S-29).
"""

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from .batch import Position, StepData, Tokens, TrainingData
from .config import LoadedConfig
from .errors import BadInput
from .examples import ConversationReader, Example
from .exchange import TakenBatches
from .prepare import Preparer
from .splits import SPLITS, Splits


class LazyExamples:
    """The training split, each example rendered when it is asked for first."""

    def __init__(self, examples: Sequence[Example], preparer: Preparer) -> None:
        self._examples, self._preparer = examples, preparer
        self.rendered: dict[int, Tokens] = {}

    def tokens_of(self, i: int) -> Tokens:
        """Example i."""
        if i not in self.rendered:
            example = self._examples[i]
            made = self._preparer.prepare(
                example.id, example.messages, f"{example.file}:{example.line}"
            )
            ids, mask = (np.asarray(values, dtype=np.int32) for values in (made.ids, made.mask))
            self.rendered[i] = Tokens(id=example.id, ids=ids, mask=mask)
        return self.rendered[i]


@dataclass(kw_only=True)
class StepSource:
    """The data of steps: those of --batches where it has them, else the leg's own.

    Attributes:
        made: (position, step) -> the leg's own data, shared by the states that are replayed.
    """

    data: TrainingData
    taken: TakenBatches | None
    made: dict[tuple[Position, int], StepData] = field(default_factory=dict)

    def is_taken(self, step: int) -> bool:
        """Whether the batch of a step is another leg's."""
        return self.taken is not None and step in self.taken.steps

    def steps(self, position: Position, first: int, last: int) -> Iterator[StepData]:
        """The data of the steps first..last, the first of which begins at `position`.

        The ids of a batch that was taken are not known: it has none. Where all are taken nothing is
        rendered, and the epoch is that of the state.
        """
        if all(map(self.is_taken, range(first, last + 1))):
            for step in range(first, last + 1):
                yield self._take(step, position.epoch, position)
            return
        plans = self.data.plans(position)
        for step in range(first, last + 1):
            plan = next(plans)
            if self.is_taken(step):
                yield self._take(step, plan.epoch, plan.following)
                continue
            key = (plan.following, step)
            if key not in self.made:
                self.made[key] = self.data.make(plan)
            yield self.made[key]

    def _take(self, step: int, epoch: int, following: Position) -> StepData:
        assert self.taken is not None
        batch = self.taken.batch(step)
        return StepData(epoch=epoch, examples=[], batch=batch, following=following)


@dataclass(frozen=True, kw_only=True)
class ReplayExamples:
    """The training split as read, and the hashes of the files of all splits."""

    ids: list[str]
    examples: LazyExamples
    hashes: dict[str, list[str]]

    def splits(self) -> Splits:
        """What was rendered so far, as the facts of a header want it."""
        counts = {"train": len(self.examples.rendered), "eval": 0, "edge": 0}
        return Splits(kept={}, num_examples=counts, hashes=self.hashes)


def read_examples(config: LoadedConfig, preparer: Preparer) -> ReplayExamples:
    """Reads the training split and renders nothing; of the other splits only the bytes are hashed.

    Raises:
        BadInput: a file cannot be read, or a line of the training split breaks S-02.
    """
    paths = {
        split: [config.resolve(path) for path in getattr(config.run.data, split)]
        for split in SPLITS
    }
    reader = ConversationReader()
    examples = list(reader.read(paths["train"]))
    others = {split: [_sha256(path) for path in paths[split]] for split in ("eval", "edge")}
    return ReplayExamples(
        ids=[example.id for example in examples],
        examples=LazyExamples(examples, preparer),
        hashes={"train": list(reader.hashes), **others},
    )


def _sha256(path: Path) -> str:
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise BadInput(
            f"{path}: the data file cannot be read ({error.strerror}); check the config"
        ) from error
