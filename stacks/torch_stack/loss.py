"""The loss of a step, and the evaluation loss (S-14, S-20).

A micro-batches, B rows, T positions, D width, V vocabulary, R labels of a micro-batch. Logits are
computed only at positions that predict a label: all others add 0 to the sum and its gradient.
"""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from stacks.torch_stack.batch import IGNORED, Batch
from stacks.torch_stack.model import CausalLM


@dataclass(frozen=True, kw_only=True)
class MicroBatch:
    """One micro-batch on the device: inputs (B, T), and its R labels."""

    input_ids: Tensor
    segments: Tensor
    positions: Tensor
    predictors: Tensor  # (R,): the flat positions whose logits predict, t - 1
    targets: Tensor  # (R,): what they predict


def micro_batches(batch: Batch, device: torch.device) -> list[MicroBatch]:
    """The micro-batches of a step that have a label; the others add nothing (S-14)."""
    chosen = []
    for a in range(batch.labels.shape[0]):
        labels = torch.from_numpy(batch.labels[a]).long()
        predictors, targets = select(labels)
        if len(targets) == 0:
            continue
        chosen.append(
            MicroBatch(
                input_ids=torch.from_numpy(batch.input_ids[a]).to(device),
                segments=torch.from_numpy(batch.segments[a]).to(device),
                positions=torch.from_numpy(batch.positions[a]).to(device),
                predictors=predictors.to(device),
                targets=targets.to(device),
            )
        )
    return chosen


def select(labels: Tensor) -> tuple[Tensor, Tensor]:
    """Labels (B, T) → flat positions that predict one, (R,), and the labels, (R,)."""
    flat = labels.flatten()
    at = (flat != IGNORED).nonzero().squeeze(1)
    return at - 1, flat[at]  # label t is predicted at t - 1; position 0 has none (S-11)


def negative_log_likelihood(logits: Tensor, targets: Tensor) -> Tensor:
    """`sum of -log softmax(logits[r])[targets[r]]`; (R, V) and (R,) → a scalar.

    Logits of bfloat16 are widened to float32 (S-19).
    """
    logits = logits.to(torch.promote_types(logits.dtype, torch.float32))
    return F.cross_entropy(logits, targets, reduction="sum")


def token_losses(logits: Tensor, labels: Tensor) -> Tensor:
    """S-28: (B, T, V) and (B, T) → at t the negative log-likelihood of label t, else 0; (B, T)."""
    predictors, targets = select(labels)
    chosen = logits.flatten(0, 1).index_select(0, predictors)
    chosen = chosen.to(torch.promote_types(logits.dtype, torch.float32))
    losses = chosen.new_zeros(labels.numel())
    losses[predictors + 1] = F.cross_entropy(chosen, targets, reduction="none")
    return losses.view(labels.shape)


def micro_batch_sum(model: CausalLM, micro: MicroBatch) -> Tensor:
    """S of one micro-batch: the summed negative log-likelihood of its labels, a scalar."""
    hidden = model.hidden(micro.input_ids, micro.segments, micro.positions)
    predicting = hidden.flatten(0, 1).index_select(0, micro.predictors)  # (R, D)
    return negative_log_likelihood(model.logits_of(predicting), micro.targets)


def loss_from_logits(logits: Tensor, labels: Tensor) -> tuple[Tensor, int]:
    """S-14 on whole logits (A, B, T, V) and labels (A, B, T) → loss and number of targets."""
    predictors, targets = select(labels.flatten(0, 1))
    if len(targets) == 0:
        return logits[..., :0].sum(), 0  # 0, with a gradient of 0
    chosen = logits.flatten(0, 2).index_select(0, predictors)
    return negative_log_likelihood(chosen, targets) / len(targets), len(targets)
