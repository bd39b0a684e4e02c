"""What one leg hands another in a replay: batches, rates, gradients (S-29).

A micro-batches, B rows, T positions. Everything that is read is checked against this run first:
a file of another run must not look like a divergence.
"""

import json
import math
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from stacks.torch_stack.batch import IGNORED, Batch, Stream
from stacks.torch_stack.documents import write_json
from stacks.torch_stack.errors import BadInput
from stacks.torch_stack.precision import dtype_name
from stacks.torch_stack.snapshot import check_tensors
from stacks.torch_stack.train import Trainer

ARRAYS = ("input_ids", "segments", "positions", "labels")


class GivenStream:
    """Another leg's batches from step `n` on, the leg's own where it gave none."""

    def __init__(
        self, own: Stream | None, given: Mapping[int, Batch], n: int, position: Stream
    ) -> None:
        self._own, self._given, self._next, self._position = own, given, n, position
        self.taken: dict[int, Batch] = {}  # by step

    @property
    def epoch(self) -> int:
        """Of the next step; without data of its own, that of the state."""
        return self._position.epoch

    @property
    def row(self) -> int:
        """Of the next step; without data of its own, that of the state."""
        return self._position.row

    def __next__(self) -> Batch:
        own = None if self._own is None else next(self._own)
        batch = self._given.get(self._next, own)
        assert batch is not None, f"no batch for step {self._next}"
        if own is not None and batch is not own:
            batch = Batch(examples=own.examples, **{name: getattr(batch, name) for name in ARRAYS})
        self.taken[self._next] = batch
        self._next += 1
        return batch


def write_batches(path: Path, batches: Mapping[int, Batch]) -> None:
    """`{s}/input_ids` and its like of every step, int32 (A, B, T)."""
    _save(
        path,
        {
            f"{step}/{name}": torch.from_numpy(np.ascontiguousarray(getattr(batch, name)))
            for step, batch in batches.items()
            for name in ARRAYS
        },
    )


def write_rates(path: Path, rates: Mapping[int, float]) -> None:
    """`{"lr": {"s": number}}`."""
    write_json(path, {"lr": {str(step): rate for step, rate in rates.items()}})


def write_gradients(path: Path, grads: Mapping[str, Tensor]) -> None:
    """`grad/{name}`, in the dtype of gradients."""
    _save(path, {f"grad/{name}": one for name, one in grads.items()})


def write_token_loss(path: Path, token_loss: Tensor) -> None:
    """`token_loss`, (A, B, T)."""
    _save(path, {"token_loss": token_loss})


def _save(path: Path, tensors: Mapping[str, Tensor]) -> None:
    from safetensors.torch import save_file

    save_file({name: one.detach().cpu().contiguous() for name, one in tensors.items()}, path)


def _open(path: Path, option: str) -> Any:
    from safetensors import SafetensorError, safe_open

    try:
        return safe_open(path, framework="pt")
    except (SafetensorError, OSError) as error:
        raise BadInput(
            f"S-29: {option} {path} is missing, cut or no safetensors; export it again"
        ) from error


def read_batches(path: Path, trainer: Trainer) -> dict[int, Batch]:
    """The batches that a file holds, by step, in the shape of this run."""
    file = _open(path, "--batches")
    return {step: _read_batch(path, file, step, trainer) for step in sorted(given_steps(path))}


def given_steps(path: Path) -> set[int]:
    """The steps of which a file holds batches."""
    steps = set()
    for name in _open(path, "--batches").keys():  # noqa: SIM118 - it is no mapping
        if (match := re.fullmatch(r"([0-9]{1,18})/(.+)", name)) is None or match[2] not in ARRAYS:
            raise BadInput(
                f"S-29: --batches {path} holds the tensor {name}, which is no array of a step; "
                "export it again"
            )
        steps.add(int(match[1]))
    return steps


def _read_batch(path: Path, file: Any, step: int, trainer: Trainer) -> Batch:
    def refuse(what: str) -> BadInput:
        return BadInput(
            f"S-29: --batches {path}, step {step}: {what}; export it from a run of this config"
        )

    try:
        found = {name: file.get_tensor(f"{step}/{name}").numpy() for name in ARRAYS}
    except Exception as error:
        raise refuse(f"not all of {', '.join(ARRAYS)} are there") from error
    shape = trainer.shape
    first = found["input_ids"].shape
    for name, array in found.items():
        if array.dtype != np.int32 or array.ndim != 3 or array.shape != first:
            raise refuse(f"{name} is {array.dtype} of shape {array.shape}, not int32 of {first}")
    if first[:2] != (shape.accumulation_steps, shape.micro_batch_size) or first[2] < 1:
        raise refuse(
            f"its arrays have the shape {first}, but this run has {shape.accumulation_steps} "
            f"micro-batches of {shape.micro_batch_size} rows"
        )
    labels = found["labels"]
    limits = {
        "input_ids": trainer.checkpoint.config.vocab_size,
        "positions": trainer.config.data.max_length,
        "segments": 2**31,
    }
    for name, limit in limits.items():
        low, high = int(found[name].min()), int(found[name].max())
        if low < 0 or high >= limit:
            raise refuse(f"{name} reach from {low} to {high}, but must lie in 0..{limit - 1}")
    is_label = labels != IGNORED
    if is_label[..., 0].any() or (is_label & (labels != found["input_ids"])).any():
        raise refuse("labels are not the tokens at their positions, or one is at position 0")
    return Batch(examples=(), **found)


def read_rates(path: Path) -> dict[int, float]:
    """Learning rates by step."""
    try:
        table = json.loads(path.read_text(encoding="utf-8"))["lr"]
        return {int(step): _number(rate) for step, rate in table.items()}
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise BadInput(
            f'S-29: --rates {path} is not a document {{"lr": {{step: number}}}}; export it again'
        ) from error


_NAMES = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}


def _number(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return _NAMES[value]  # type: ignore[index]
    return float(value)


def read_gradients(path: Path, trainer: Trainer) -> dict[str, Tensor]:
    """Gradients of every trainable tensor, by name."""
    file = _open(path, "--gradients")
    expected = {
        f"grad/{name}": (list(one.shape), dtype_name(trainer.precision.held))
        for name, one in trainer.trainable.items()
    }
    check_tensors("S-29: --gradients", path, file, expected)
    return {name: file.get_tensor(f"grad/{name}") for name in trainer.trainable}
