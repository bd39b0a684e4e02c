"""Deep traces: the values of S-28 at one step, and their statistics.

    A micro-batches, B rows, T positions

Taps come from a compiled program of their own, which runs the `forward` of the step on what the
step is about to use: the step's own program is the one that every other step has, so recording
cannot change a bit of it. One micro-batch is in memory at a time, and a tap only until it has been
summarised.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, UInt32

from .loss import token_loss
from .model import LanguageModel, Params, forward
from .numerics import NUM_BUCKETS, sketch_key, sketch_signs
from .precision import Precision
from .step import StepArrays

TOKEN_LOSS = "token_loss"


@jax.jit
def _summarise_part(
    values: Float[Array, "B T *width"],
    segments: Int[Array, "B T"],
    key: UInt32[Array, ""],
    start: UInt32[Array, ""],
) -> Float[Array, " 67"]:
    """Sum of squares, sum, largest magnitude and sketch of one micro-batch, whose first entry has
    the index `start` in the tap; padding counts as 0. The buckets begin at that of the first entry.
    """
    is_real = (segments != 0).reshape(*segments.shape, *[1] * (values.ndim - 2))
    flat = jnp.where(is_real, values, 0).reshape(-1).astype(jnp.float64)
    signs = sketch_signs(jnp.arange(flat.size, dtype=jnp.uint32) + start, key)
    signed = jnp.pad(flat * signs, (0, -flat.size % NUM_BUCKETS))
    sketch = jnp.sum(signed.reshape(-1, NUM_BUCKETS), axis=0)
    scalars = jnp.stack([jnp.sum(jnp.square(flat)), jnp.sum(flat), jnp.max(jnp.abs(flat))])
    return jnp.concatenate([scalars, sketch])


@dataclass(kw_only=True)
class TapStatistics:
    """Statistics of one tap (S-21), gathered over its micro-batches."""

    name: str
    shape: tuple[int, ...]  # (A, B, T) and, but for token_loss, a width
    squares: float = 0.0
    total: float = 0.0
    max_abs: float = 0.0
    sketch: np.ndarray = field(default_factory=lambda: np.zeros(NUM_BUCKETS))

    def add(self, number: int, values: Array, segments: Int[Array, "B T"]) -> None:
        """Adds micro-batch `number`."""
        start = number * values.size
        key = np.uint32(sketch_key(self.name))
        part = np.asarray(_summarise_part(values, segments, key, np.uint32(start % 2**32)))
        self.squares += float(part[0])
        self.total += float(part[1])
        self.max_abs = float(np.maximum(self.max_abs, part[2]))  # NaN stays
        self.sketch = self.sketch + np.roll(part[3:], start % NUM_BUCKETS)

    def row(self) -> dict[str, Any]:
        """The row of the table `deep`, but for the step."""
        num_entries = int(np.prod(self.shape))
        return {
            "tap": self.name,
            "shape": list(self.shape),
            "norm": float(np.sqrt(self.squares)),
            "mean": self.total / num_entries,
            "max_abs": self.max_abs,
            "sketch": self.sketch.tolist(),
        }


@dataclass(frozen=True, kw_only=True)
class DeepTrace:
    """The rows of one step in data-flow order, and token_loss itself."""

    rows: list[dict[str, Any]]
    token_loss: Float[np.ndarray, "A B T"]


@dataclass(frozen=True, kw_only=True)
class TapRecorder:
    """Records the taps of a model.

    Attributes:
        programs: shape (B, T) -> names of the taps, in data-flow order, and the compiled program.
    """

    model: LanguageModel
    attention: str
    precision: Precision
    programs: dict[tuple[int, ...], tuple[list[str], Any]] = field(default_factory=dict)

    def record(self, params: Params, arrays: StepArrays) -> DeepTrace:
        """The taps of the step that is about to be made from all `params` with `arrays`."""
        num_micro = arrays.labels.shape[0]
        statistics: dict[str, TapStatistics] = {}
        losses = []
        for number in range(num_micro):
            micro = StepArrays(*(array[number] for array in arrays))
            for name, values in self._taps_of(params, micro):
                shape = (num_micro, *values.shape)
                tap = statistics.setdefault(name, TapStatistics(name=name, shape=shape))
                tap.add(number, values, micro.segments)
                if name == TOKEN_LOSS:
                    losses.append(np.asarray(values))
        rows = [tap.row() for tap in statistics.values()]
        return DeepTrace(rows=rows, token_loss=np.stack(losses))

    def _taps_of(self, params: Params, micro: StepArrays) -> Iterator[tuple[str, Array]]:
        """(name, value) of each tap of a micro-batch; each is freed when the next is asked for."""
        shape = micro.labels.shape
        if shape not in self.programs:
            self.programs[shape] = self._compile(params, micro)
        names, call = self.programs[shape]
        values = list(reversed(call(params, micro)))
        for name in names:
            yield name, values.pop()

    def _compile(self, params: Params, micro: StepArrays) -> tuple[list[str], Any]:
        names: list[str] = []

        def taps_of(params: Params, micro: StepArrays) -> tuple[Array, ...]:
            taps: Params = {}
            logits = forward(
                self.model,
                params,
                micro.input_ids,
                micro.segments,
                micro.positions,
                self.attention,
                self.precision,
                taps,
            )
            taps[TOKEN_LOSS] = token_loss(logits, micro.labels)
            names.extend(taps)
            return tuple(taps.values())

        call = jax.jit(taps_of).lower(params, micro).compile()
        return names, call
