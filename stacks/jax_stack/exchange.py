"""What a replay hands out, and what it takes from another leg in place of its own (S-29).

A micro-batches, B rows, T positions
"""

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np

from .batch import Batch
from .errors import BadInput
from .model import Params
from .safetensors import TensorIndex, open_tensors, write_tensors
from .trace import to_json, write_whole

ARRAYS = ("input_ids", "segments", "positions", "labels")


@dataclass(frozen=True, kw_only=True)
class TakenBatches:
    """The file of --batches; a batch is read when its step is made."""

    file: TensorIndex
    steps: frozenset[int]
    vocab_size: int

    def batch(self, step: int) -> Batch:
        """The batch of a step that the file holds.

        Raises:
            BadInput: an id is not one of the model's.
        """
        arrays = {name: self.file.read(f"{step}/{name}") for name in ARRAYS}
        for name, lowest in (("input_ids", 0), ("labels", -100)):
            values = arrays[name]
            if values.size and not lowest <= values.min() <= values.max() < self.vocab_size:
                raise BadInput(
                    f"{self.file.path}: {step}/{name} is not within {lowest}..{self.vocab_size} "
                    "(S-29); take the export of a leg of this config"
                )
        return Batch(**arrays)


def open_batches(
    path: Path, accumulation_steps: int, micro_batch_size: int, vocab_size: int
) -> TakenBatches:
    """The header of --batches.

    Raises:
        BadInput: the file is cut, or its arrays are not those of steps of this config.
    """
    file = open_tensors(path, ("I32",))
    steps = set()
    for name, entry in file.entries.items():
        step, _, array = name.partition("/")
        if not step.isdecimal() or array not in ARRAYS:
            raise BadInput(f"{path}: {name} is not an array of a step (S-29), such as 7/labels")
        steps.add(int(step))
        first = file.entries.get(f"{step}/labels")
        if first is None or entry.shape != first.shape or len(entry.shape) != 3:
            raise BadInput(f"{path}: the arrays of step {step} have one shape (A, B, T) (S-29)")
        if entry.shape[:2] != (accumulation_steps, micro_batch_size):
            raise BadInput(
                f"{path}: step {step} has {list(entry.shape[:2])} micro-batches and rows, the "
                f"config {[accumulation_steps, micro_batch_size]} (S-29); take the export of a leg "
                "of this config"
            )
    for name in (f"{number}/{array}" for number in steps for array in ARRAYS):
        if name not in file.entries:
            raise BadInput(f"{path}: {name} is missing (S-29); export the batches again")
    return TakenBatches(file=file, steps=frozenset(steps), vocab_size=vocab_size)


def read_rates(path: Path) -> dict[int, float]:
    """Step -> learning rate, from --rates.

    Raises:
        BadInput: the file is not `{"lr": {"s": number}}`.
    """
    try:
        rates = json.loads(path.read_bytes())["lr"]
        found = {int(step): float(rate) for step, rate in rates.items() if step.isdecimal()}
    except OSError as error:
        raise BadInput(
            f"{path}: the rates cannot be read ({error.strerror}); check --rates"
        ) from error
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise BadInput(f'{path}: rates are {{"lr": {{"step": number}}}} (S-29)') from error
    if len(found) != len(rates) or not all(map(math.isfinite, found.values())):
        raise BadInput(f"{path}: rates are finite numbers by step, counted from 0 (S-29)")
    return found


def read_gradients(path: Path, shapes: Mapping[str, tuple[int, ...]], dtype: np.dtype) -> Params:
    """Name -> gradient on the device, from --gradients.

    Args:
        shapes: of the trainable tensors.
        dtype: of gradients.

    Raises:
        BadInput: the file is cut, or of another set of tensors, shape or dtype.
    """
    file = open_tensors(path)
    wanted = {f"grad/{name}" for name in shapes}
    for name in sorted(wanted ^ file.entries.keys()):
        raise BadInput(
            f"{path}: {name} is {'' if name in file.entries else 'not '}in the file and "
            f"{'' if name in wanted else 'not '}trained (S-29); take the export of a leg of this "
            "config"
        )
    for name, shape in shapes.items():
        entry = file.entries[f"grad/{name}"]
        if entry.shape != shape or entry.dtype != dtype:
            raise BadInput(
                f"{path}: grad/{name} is {entry.dtype.name} of shape {list(entry.shape)}, the run "
                f"has {dtype.name} of {list(shape)} (S-29); take the export of a leg of this config"
            )
    return {name: jnp.array(file.read(f"grad/{name}"), copy=True) for name in shapes}


def write_batches(path: Path, batches: Mapping[int, Batch]) -> None:
    """Writes `batches.safetensors`."""
    tensors = {
        f"{step}/{name}": getattr(batch, name) for step, batch in batches.items() for name in ARRAYS
    }
    write_tensors(path, tensors, {})


def write_rates(path: Path, rates: Mapping[int, float]) -> None:
    """Writes `rates.json`."""
    table = {"lr": {str(step): rate for step, rate in rates.items()}}
    write_whole(path, (to_json(table) + "\n").encode())


def write_named(path: Path, prefix: str, tensors: Mapping[str, Any]) -> None:
    """Writes tensors under `prefix` and their names."""
    write_tensors(path, {prefix + name: values for name, values in tensors.items()}, {})
