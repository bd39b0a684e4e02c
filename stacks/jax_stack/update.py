"""Learning rate, clipping and AdamW as composed Optax transformations (S-16 to S-18).

Neither `optax.clip_by_global_norm` (which divides by max(norm, c)) nor `optax.adamw` is taken as it
is; the parts are, where they are what a clause says: `scale_by_adam` puts ε outside the root and
computes 1 - β^u in float64 (tests hold it to that), `add_decayed_weights` decays what a mask names.
"""

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float

from .config import OptimizerConfig, ScheduleConfig
from .errors import BadInput
from .model import Params
from .weights import EMBEDDING, HEAD

CLIP_EPSILON = 1e-6
OptState = Any  # of optax.chain


def learning_rates(schedule: ScheduleConfig, peak: float, num_steps: int) -> list[float]:
    """lr(t) for t in 0..N, in float64 (S-17)."""
    return [_learning_rate(schedule, peak, num_steps, t) for t in range(num_steps)]


def _learning_rate(schedule: ScheduleConfig, peak: float, num_steps: int, t: int) -> float:
    warmup, floor = schedule.warmup_steps, schedule.min_ratio
    if t < warmup:
        return peak * (t + 1) / (warmup + 1)
    denominator = num_steps - 1 - warmup
    progress = (t - warmup) / denominator if denominator else 0.0
    if schedule.kind == "constant":
        return peak
    if schedule.kind == "linear":
        return peak * (1 - (1 - floor) * progress)
    return peak * (floor + (1 - floor) * (1 + math.cos(math.pi * progress)) / 2)


def clip_factor(grad_norm: Float[Array, ""], clip_norm: float | str) -> Float[Array, ""]:
    """min(1, c / (grad_norm + 1e-6)), not finite when the norm is not; 1 when clipping is off
    (S-16).
    """
    if isinstance(clip_norm, str):
        return jnp.ones((), jnp.float64)
    factor = jnp.minimum(1.0, clip_norm / (grad_norm + CLIP_EPSILON))
    return jnp.where(jnp.isfinite(grad_norm), factor, jnp.nan)


def scale_by_factor() -> optax.GradientTransformationExtraArgs:
    """Multiplies every update by the argument `factor`, rounded once to the update's dtype."""

    def update(
        updates: Params, state: optax.EmptyState, params: Any = None, *, factor: Array, **_: Any
    ) -> Any:
        return jax.tree.map(lambda u: u * factor.astype(u.dtype), updates), state

    return optax.GradientTransformationExtraArgs(lambda _: optax.EmptyState(), update)


def descend() -> optax.GradientTransformationExtraArgs:
    """Multiplies every update by minus the argument `learning_rate`, rounded once to the update's
    dtype.
    """

    def update(
        updates: Params,
        state: optax.EmptyState,
        params: Any = None,
        *,
        learning_rate: Array,
        **_: Any,
    ) -> Any:
        return jax.tree.map(lambda u: -learning_rate.astype(u.dtype) * u, updates), state

    return optax.GradientTransformationExtraArgs(lambda _: optax.EmptyState(), update)


def is_trainable(name: str, frozen: tuple[str, ...]) -> bool:
    """Whether no entry of `optimizer.frozen` is a prefix of the name (S-18)."""
    return not name.startswith(frozen)


def check_frozen(names: Collection[str], frozen: tuple[str, ...]) -> None:
    """Refuses an entry of `optimizer.frozen` that begins no parameter's name (S-18)."""
    for prefix in frozen:
        if not any(name.startswith(prefix) for name in names):
            raise BadInput(
                f"`optimizer.frozen` names {prefix}, which begins no parameter's name (S-18); "
                "mend or remove the entry"
            )


def in_decay_scope(name: str, num_dimensions: int, decay: str) -> bool:
    """Whether a trainable tensor is in the decay scope (S-18)."""
    if decay == "matrices":
        return num_dimensions == 2
    if decay == "projections":
        return num_dimensions == 2 and name not in (EMBEDDING, HEAD)
    return decay == "all"


@dataclass(frozen=True, kw_only=True)
class Optimizer:
    """The transformation of a run, and the mask and numbers that it was made from."""

    transformation: optax.GradientTransformationExtraArgs
    decay_mask: Mapping[str, bool]  # of every trainable tensor
    beta1: float
    beta2: float
    epsilon: float
    weight_decay: float


def make_optimizer(config: OptimizerConfig, shapes: Mapping[str, tuple[int, ...]]) -> Optimizer:
    """AdamW over the trainable tensors of these shapes (S-18)."""
    mask = {name: in_decay_scope(name, len(shape), config.decay) for name, shape in shapes.items()}
    return Optimizer(
        transformation=optax.chain(
            scale_by_factor(),
            optax.scale_by_adam(b1=config.beta1, b2=config.beta2, eps=config.epsilon),
            optax.add_decayed_weights(config.weight_decay, mask=mask),
            descend(),
        ),
        decay_mask=mask,
        beta1=config.beta1,
        beta2=config.beta2,
        epsilon=config.epsilon,
        weight_decay=config.weight_decay,
    )


def adam_state(state: OptState) -> optax.ScaleByAdamState:
    """The part of the chain's state that holds the moments and the number of updates made."""
    found = [part for part in state if isinstance(part, optax.ScaleByAdamState)]
    assert len(found) == 1, f"the chain has {len(found)} Adam states, it must have 1"
    return found[0]


def with_moments(state: OptState, m: Params, v: Params, num_updates: int) -> OptState:
    """`state` with the moments of a snapshot (S-23)."""
    adam = optax.ScaleByAdamState(count=jnp.asarray(num_updates, jnp.int32), mu=m, nu=v)
    return tuple(adam if isinstance(part, optax.ScaleByAdamState) else part for part in state)
