"""The three splits of a run: read, prepared, recorded, kept where needed (S-02 to S-07, S-24)."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from .batch import Tokens
from .config import LoadedConfig
from .errors import BadInput
from .examples import ConversationReader
from .prepare import LoadedInputs, prepare_split
from .trace import Trace

SPLITS = ("train", "eval", "edge")


@dataclass(frozen=True, kw_only=True)
class Splits:
    """What reading the data gave.

    Attributes:
        kept: split -> the examples that were kept, in file order.
        num_examples: split -> how many it has.
        hashes: split -> the hash of each of its files.
    """

    kept: dict[str, list[Tokens]]
    num_examples: dict[str, int]
    hashes: dict[str, list[str]]


def read_splits(
    config: LoadedConfig,
    inputs: LoadedInputs,
    trace: Trace,
    limits: dict[str, int | None],
    check: Callable[[], None],
) -> Splits:
    """Reads every example of every split and records it.

    Args:
        limits: split -> how many of its first examples are kept (None: all, not named: none).
        check: called after every example; raises when the leg was told to stop.

    Raises:
        BadInput: the data breaks a clause.
    """
    reader = ConversationReader()
    kept: dict[str, list[Tokens]] = {}
    num_examples, hashes = {}, {}
    for split in SPLITS:
        paths = [config.resolve(path) for path in getattr(config.run.data, split)]
        reader.hashes.clear()
        limit = limits.get(split, 0)
        examples: list[Tokens] = []
        count = 0
        for example in prepare_split(reader, paths, inputs.preparer):
            trace.add_tokens(split, count, example)
            if limit is None or count < limit:
                ids, mask = (
                    np.asarray(values, dtype=np.int32) for values in (example.ids, example.mask)
                )
                examples.append(Tokens(id=example.id, ids=ids, mask=mask))
            count += 1
            check()
        if not count:
            names = ", ".join(map(str, paths))
            raise BadInput(f"{names}: the split {split} needs at least one example (S-02); add one")
        kept[split], num_examples[split], hashes[split] = examples, count, list(reader.hashes)
    trace.close_tokens()
    return Splits(kept=kept, num_examples=num_examples, hashes=hashes)
