"""Everything that a run config names, checked before a leg starts, and its sizes.

Shapes: E examples, B rows of a micro-batch, A micro-batches of a step.
"""

from __future__ import annotations

import difflib
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from oracle.checkpoint import Checkpoint, read_checkpoint
from oracle.config import SPLITS, RunConfig
from oracle.conversations import ExampleIds, SplitSize, check_file
from oracle.errors import DataError
from oracle.template import check_template
from oracle.tokenizer import TokenizerSize, check_token, read_tokenizer


@dataclass(frozen=True, kw_only=True)
class Inputs:
    """A run config whose files were checked. `splits` gives files and sizes by split."""

    config: RunConfig
    splits: Mapping[str, tuple[tuple[Path, SplitSize], ...]]
    num_generation_blocks: int
    tokenizer: TokenizerSize
    checkpoint: Checkpoint

    def num_examples(self, split: str) -> int:
        """Examples of a split."""
        return sum(size.num_examples for _, size in self.splits[split])

    @property
    def rows_per_step(self) -> int:
        """A·B: rows of a step (S-10)."""
        train = self.config.values["train"]
        return int(train["accumulation_steps"] * train["micro_batch_size"])

    @property
    def steps_per_epoch(self) -> int | None:
        """Steps of an epoch (S-10); None with packing, when the rows depend on the tokens."""
        if self.config.values["data"]["packing"]:
            return None
        return math.ceil(self.num_examples("train") / self.rows_per_step)

    @property
    def num_trainable_parameters(self) -> int:
        """Entries of the parameters that no entry of `optimizer.frozen` freezes (S-18)."""
        frozen = tuple(self.config.values["optimizer"]["frozen"])
        shapes = self.checkpoint.shapes
        return sum(math.prod(s) for name, s in shapes.items() if not name.startswith(frozen))


def check_inputs(config: RunConfig, *, weights: bool = True) -> Inputs:
    """Check every file that the config names; raises DataError at the first fault.

    Cheap files first, so that a wrong template is not told after a minute of data. A render needs
    no `weights`: of the checkpoint, `config.json` alone is read then.
    """
    data = config.values["data"]
    num_blocks = check_template(config.file(data["template"]), mask=data["mask"])
    tokenizer = read_tokenizer(config.file(data["tokenizer"]))
    for field in ("bos_token", "eos_token", "pad_token"):
        if data[field]:
            check_token(tokenizer, f"{config.path}: data.{field}", data[field])
    folder = config.file(config.values["model"]["checkpoint"])
    checkpoint = read_checkpoint(folder, weights=weights)
    _check_frozen(config, checkpoint)
    vocab_size = checkpoint.config["vocab_size"]
    if tokenizer.largest_id >= vocab_size:
        raise DataError(
            f"tokenizer {tokenizer.path} produces ids up to {tokenizer.largest_id} and the model "
            f"in {checkpoint.folder} has vocab_size {vocab_size} (S-05)."
        )
    ids = ExampleIds()
    splits: dict[str, list[tuple[Path, SplitSize]]] = {split: [] for split in SPLITS}
    for split, name in config.data_files():
        path = config.file(name)
        splits[split].append((path, check_file(path, split, ids)))
    return Inputs(
        config=config,
        splits={split: tuple(files) for split, files in splits.items()},
        num_generation_blocks=num_blocks,
        tokenizer=tokenizer,
        checkpoint=checkpoint,
    )


def _check_frozen(config: RunConfig, checkpoint: Checkpoint) -> None:
    names = checkpoint.shapes
    for prefix in config.values["optimizer"]["frozen"]:
        if not any(name.startswith(prefix) for name in names):
            near = difflib.get_close_matches(prefix, names, n=1) or [next(iter(names))]
            raise DataError(
                f"{config.path}: optimizer.frozen holds {prefix!r}, and no parameter of "
                f"{checkpoint.folder} begins with it (S-18); a name there is {near[0]}."
            )
