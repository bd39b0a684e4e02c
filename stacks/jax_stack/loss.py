"""The loss of a step and its gradient (S-11, S-14).

A micro-batches, B rows, T positions, V vocabulary
"""

import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float, Int

from .batch import IGNORED


def sum_of_nll(logits: Float[Array, "B T V"], labels: Int[Array, "B T"]) -> Float[Array, ""]:
    """Sum over all targets of -log softmax(logits[t-1])[labels[t]], in the dtype of the logits.

    The labels are moved instead of the logits, and the target's logit is picked by comparison: its gradient
    is a select, where that of a gather would be a scatter into V zeros per position. The sum is accumulated
    in float64 and rounded once (S-19 allows wider accumulation).
    """
    next_labels = jnp.concatenate([labels[:, 1:], jnp.full_like(labels[:, :1], IGNORED)], axis=1)
    highest = lax.stop_gradient(jnp.max(logits, axis=-1, keepdims=True))
    shifted = logits - highest
    log_total = jnp.log(jnp.sum(jnp.exp(shifted), axis=-1))
    vocabulary = lax.broadcasted_iota(labels.dtype, logits.shape, 2)
    of_target = jnp.sum(jnp.where(vocabulary == next_labels[..., None], shifted, 0), axis=-1)
    nll = jnp.where(next_labels != IGNORED, log_total - of_target, 0)
    return jnp.sum(nll, dtype=jnp.float64).astype(logits.dtype)


def count_targets(labels: Int[Array, "*shape"]) -> Int[Array, ""]:
    """How many labels are targets: the n of S-14."""
    return jnp.sum(labels != IGNORED, dtype=jnp.int32)


def mean_of(total: Float[Array, ""], count: Int[Array, ""]) -> Float[Array, ""]:
    """S / n, and 0 when n is 0, for S is 0 then (S-14)."""
    return total / jnp.maximum(count, 1).astype(total.dtype)
