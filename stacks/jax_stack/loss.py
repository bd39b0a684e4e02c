"""The loss of a step and its gradient (S-11, S-14).

A micro-batches, B rows, T positions, V vocabulary
"""

import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float, Int

from .batch import IGNORED
from .precision import widen


def sum_of_nll(logits: Float[Array, "B T V"], labels: Int[Array, "B T"]) -> Float[Array, ""]:
    """Sum over all targets of -log softmax(logits[t-1])[labels[t]], in the dtype of the logits, or
    float32 where that is narrower.

    The sum is accumulated in float64 and rounded once (S-19 allows wider accumulation).
    """
    nll = nll_of_next(logits, labels)
    return jnp.sum(nll, dtype=jnp.float64).astype(nll.dtype)


def token_loss(logits: Float[Array, "B T V"], labels: Int[Array, "B T"]) -> Float[Array, "B T"]:
    """At t the negative log-likelihood of labels[t], 0 where it is no target (S-28)."""
    return jnp.pad(nll_of_next(logits, labels)[:, :-1], ((0, 0), (1, 0)))


def nll_of_next(logits: Float[Array, "B T V"], labels: Int[Array, "B T"]) -> Float[Array, "B T"]:
    """At t the negative log-likelihood of labels[t + 1], 0 where it is no target.

    The labels are moved to the logits that predict them, for moving the logits would copy V numbers
    a position.
    """
    logits = widen(logits)
    next_labels = jnp.concatenate([labels[:, 1:], jnp.full_like(labels[:, :1], IGNORED)], axis=1)
    is_target = next_labels != IGNORED
    highest = lax.stop_gradient(jnp.max(logits, axis=-1, keepdims=True))
    log_total = jnp.log(jnp.sum(jnp.exp(logits - highest), axis=-1))
    index = jnp.where(is_target, next_labels, 0)[..., None]
    of_target = jnp.take_along_axis(logits, index, axis=-1)[..., 0]
    return jnp.where(is_target, log_total - (of_target - highest[..., 0]), 0)


def count_targets(labels: Int[Array, "*shape"]) -> Int[Array, ""]:
    """How many labels are targets: the n of S-14."""
    return jnp.sum(labels != IGNORED, dtype=jnp.int32)


def mean_of(total: Float[Array, ""], count: Int[Array, ""]) -> Float[Array, ""]:
    """S / n, and 0 when n is 0, for S is 0 then (S-14)."""
    return total / jnp.maximum(count, 1).astype(total.dtype)
