"""The loss of a step and its gradient in the logits (S-14).

A micro-batches, B rows, T positions, V vocabulary. Label t is predicted by the logits at t - 1.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from tests.reference.batches import IGNORED

Floats = npt.NDArray[np.floating[Any]]
Labels = npt.NDArray[np.integer[Any]]


def log_softmax(logits: Floats) -> Floats:
    """In the last axis, shifted by the maximum so that no exponential overflows."""
    shifted = logits - logits.max(axis=-1, keepdims=True)
    log_probs: Floats = shifted - np.log(np.sum(np.exp(shifted), axis=-1, keepdims=True))
    return log_probs


@dataclass(frozen=True, kw_only=True)
class SummedLoss:
    """A sum of negative log-likelihoods, the number of targets, the gradient of the sum."""

    total: np.floating[Any]
    num_targets: int
    grad_logits: Floats  # (..., T, V), of the sum


def summed_loss(logits: Floats, labels: Labels) -> SummedLoss:
    """S over `logits` (..., T, V) and `labels` (..., T); the caller divides by n."""
    grad = np.zeros_like(logits)
    predicted = labels[..., 1:]
    where = np.nonzero(predicted != IGNORED)
    log_probs = log_softmax(logits[..., :-1, :][where])  # (n, V)
    chosen = predicted[where]
    index = np.arange(len(chosen))
    grad_rows = np.exp(log_probs)
    grad_rows[index, chosen] -= 1
    grad[..., :-1, :][where] = grad_rows
    total = -np.sum(log_probs[index, chosen])
    return SummedLoss(total=total, num_targets=len(chosen), grad_logits=grad)


def step_loss(logits: Floats, labels: Labels) -> tuple[np.floating[Any], int, Floats]:
    """(loss, n, gradient of the loss in the logits) of a whole step (A, B, T, V)."""
    result = summed_loss(logits, labels)
    if result.num_targets == 0:
        return logits.dtype.type(0), 0, result.grad_logits
    count = logits.dtype.type(result.num_targets)
    return result.total / count, result.num_targets, result.grad_logits / count
