"""Loss and gradients of a whole step (S-14): A micro-batches of (B, T) through the model."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from tests.reference.checkpoint import EMBED, ModelConfig
from tests.reference.loss import summed_loss
from tests.reference.model import Model, Rows
from tests.reference.optimizer import Tensors

Ints = npt.NDArray[np.integer[Any]]
MicroBatch = tuple[Rows, Ints]  # and labels (B, T)


def loss_and_gradients(
    config: ModelConfig, params: Tensors, micro_batches: Sequence[MicroBatch]
) -> tuple[np.floating[Any], int, Tensors]:
    """(loss, number of targets, gradient of exactly this loss for every parameter)."""
    number = params[EMBED].dtype.type
    total, count = number(0), 0
    grads = {name: np.zeros_like(values) for name, values in params.items()}
    for rows, labels in micro_batches:
        model = Model(config, params, rows)
        part = summed_loss(model.forward(), labels)
        total, count = total + part.total, count + part.num_targets
        for name, grad in model.backward(part.grad_logits).items():
            grads[name] = grads[name] + grad
    if count == 0:
        return number(0), 0, {name: np.zeros_like(grad) for name, grad in grads.items()}
    return total / count, count, {name: grad / count for name, grad in grads.items()}


def evaluation_loss(
    config: ModelConfig, params: Tensors, batches: Sequence[MicroBatch]
) -> np.floating[Any]:
    """S-20: sum of negative log-likelihoods over number of targets, 0 without a target."""
    number = params[EMBED].dtype.type
    total, count = number(0), 0
    for rows, labels in batches:
        part = summed_loss(Model(config, params, rows).forward(), labels)
        total, count = total + part.total, count + part.num_targets
    return total / count if count else number(0)
