"""The values inside one step: hooks on the model, statistics as they pass by (S-28).

A micro-batches, B rows, T positions, W width of a tap, V vocabulary. Hooks read what the training
step itself computes; only what it leaves out (logits of positions that predict nothing,
micro-batches without a label) is computed beside it, without gradient. No tap is kept whole.
"""

import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from stacks.torch_stack.batch import IGNORED, Batch
from stacks.torch_stack.loss import token_losses
from stacks.torch_stack.model import CausalLM
from stacks.torch_stack.numerics import NUM_BUCKETS, Statistics, signs

_CHUNK_ENTRIES = 1 << 18


class Running:
    """Statistics of a tensor that comes in parts (S-21)."""

    def __init__(self, name: str, device: torch.device) -> None:
        self._name, self._device = name, device
        self._sums = torch.zeros(2, dtype=torch.float64, device=device)  # of squares, of values
        self._max_abs = torch.zeros((), dtype=torch.float64, device=device)
        self._sketch = torch.zeros(NUM_BUCKETS, dtype=torch.float64, device=device)

    def add(self, part: Tensor, first: int) -> None:
        """Take in a part whose entries follow one another in the whole from index `first`."""
        flat = part.reshape(-1)
        for start in range(0, flat.numel(), _CHUNK_ENTRIES):
            values = flat[start : start + _CHUNK_ENTRIES].double()
            self._max_abs = torch.maximum(self._max_abs, values.abs().max())
            self._sums += torch.stack([values.square().sum(), values.sum()])
            at = first + start
            entries = signs(self._name, values.numel(), at)
            signed = values * torch.from_numpy(entries).to(self._device)
            before, after = at % NUM_BUCKETS, -(at + values.numel()) % NUM_BUCKETS
            rows = torch.nn.functional.pad(signed, (before, after)).view(-1, NUM_BUCKETS)
            self._sketch += rows.sum(0)

    def statistics(self, num_entries: int) -> Statistics:
        """Of the whole, which has `num_entries`."""
        squares, total = self._sums.tolist()
        return Statistics(
            norm=math.sqrt(squares) if squares >= 0 else math.nan,
            mean=total / num_entries,
            max_abs=float(self._max_abs),
            sketch=self._sketch.cpu().numpy().astype(np.float64),
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class TapRow:
    """A row of `deep/`."""

    step: int
    tap: str
    shape: tuple[int, ...]
    statistics: Statistics


def tap_names(num_layers: int) -> list[str]:
    """Every tap, in data-flow order."""
    inner = (
        *("input_norm", "q", "k", "v", "q_rope", "k_rope", "attention", "attention_out"),
        *("middle", "post_norm", "gate", "up", "act", "down", "out"),
    )
    layers = [f"layers.{number}.{name}" for number in range(num_layers) for name in inner]
    return ["embed", *layers, "norm", "logits", "token_loss"]


class Taps:
    """Watches the forward passes of one step."""

    def __init__(self) -> None:
        self._running: dict[str, Running] = {}
        self._widths: dict[str, int] = {}
        self.token_loss = torch.zeros(0)  # (A, B, T) after the step

    @contextmanager
    def observe(
        self, model: CausalLM, batch: Batch, device: torch.device, compiled: bool = False
    ) -> Iterator[None]:
        """Inside it the step calls the model for each micro-batch that has a label, in order.

        A `compiled` step is left alone, since hooks would be compiled into it: the taps are those
        of the same model called beside it.
        """
        self._model, self._device, self._shape = model, device, batch.labels.shape
        has_label = (batch.labels != IGNORED).any(axis=(1, 2))
        self._coming = has_label.nonzero()[0].tolist()
        others = (~has_label).nonzero()[0].tolist()
        self._arrays = {
            name: torch.from_numpy(getattr(batch, name)).to(device)
            for name in ("input_ids", "segments", "positions", "labels")
        }
        self.token_loss = torch.zeros(self._shape, dtype=model.precision.wide)
        if compiled:
            yield
            with self._hooks():
                self._run(self._coming + others)
        else:
            with self._hooks():
                yield
                self._run(others)

    def _run(self, parts: list[int]) -> None:
        """Micro-batches that the step does not show."""
        self._coming = list(parts)
        with torch.no_grad():
            for a in parts:
                names = ("input_ids", "segments", "positions")
                self._model.hidden(*(self._arrays[name][a] for name in names))

    @contextmanager
    def _hooks(self) -> Iterator[None]:
        handles = []

        def before(module: Any, name: str) -> None:
            handles.append(
                module.register_forward_pre_hook(lambda _, given: self._add(name, given[0]))
            )

        def after(module: Any, name: str) -> None:
            handles.append(module.register_forward_hook(lambda _, __, out: self._add(name, out)))

        layers: Any = self._model.model.layers
        handles.append(layers[0].register_forward_pre_hook(self._begin))
        before(layers[0], "embed")
        for number, layer in enumerate(layers):
            at, attention = f"layers.{number}.", layer.self_attn
            after(layer.input_layernorm, at + "input_norm")
            for name in ("q", "k", "v"):
                after(getattr(attention, f"{name}_proj"), at + name)
            after(attention.q_rope, at + "q_rope")
            after(attention.k_rope, at + "k_rope")
            before(attention.o_proj, at + "attention")
            after(attention.o_proj, at + "attention_out")
            before(layer.post_attention_layernorm, at + "middle")
            after(layer.post_attention_layernorm, at + "post_norm")
            after(layer.mlp.gate_proj, at + "gate")
            after(layer.mlp.up_proj, at + "up")
            before(layer.mlp.down_proj, at + "act")
            after(layer.mlp.down_proj, at + "down")
            after(layer, at + "out")
        handles.append(layers[-1].register_forward_hook(self._finish))
        try:
            yield
        finally:
            for handle in handles:
                handle.remove()

    def _begin(self, *_: object) -> None:
        self._part = self._coming.pop(0)

    @torch.no_grad()
    def _finish(self, _: object, __: object, hidden: Tensor) -> None:
        """From the last layer on, a row at a time: logits are large."""
        labels, a = self._arrays["labels"], self._part
        for b, row in enumerate(hidden.detach()):  # (T, D)
            logits = self._model.logits_of(row)
            self._add("norm", self._model.model.norm(row), b)
            self._add("logits", logits, b)
            losses = token_losses(logits[None], labels[a, b][None].long())[0]
            self.token_loss[a, b] = losses.cpu()
            self._add("token_loss", losses[:, None], b)

    @torch.no_grad()
    def _add(self, name: str, value: Tensor, row: int | None = None) -> None:
        """A value of this micro-batch, (B, T, W) or heads (B, H, T, K), or of one row, (T, W)."""
        value = value.detach()
        if value.dim() == 4:
            value = value.transpose(1, 2).flatten(2)
        segments = self._arrays["segments"][self._part]  # (B, T)
        is_padding = (segments if row is None else segments[row]) == 0
        width = self._widths.setdefault(name, value.shape[-1])
        if name not in self._running:
            self._running[name] = Running(name, self._device)
        _, b, t = self._shape
        first = (self._part * b + (row or 0)) * t * width
        # Filled, not multiplied: a NaN of the padding counts as 0 too
        self._running[name].add(value.masked_fill(is_padding[..., None], 0), first)

    def rows(self, step: int) -> list[TapRow]:
        """The rows of the table, in data-flow order."""
        found = []
        for name in tap_names(len(self._model.model.layers)):
            shape = (*self._shape, *((self._widths[name],) if name != "token_loss" else ()))
            statistics = self._running[name].statistics(math.prod(shape))
            found.append(TapRow(step=step, tap=name, shape=shape, statistics=statistics))
        return found
