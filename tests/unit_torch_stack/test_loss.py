"""The loss is the sum over all labels divided by their number, and its gradient (S-14)."""

import math
from pathlib import Path

import numpy as np
import torch

from stacks.torch_stack.batch import Shape, build_batch
from stacks.torch_stack.loss import loss_from_logits, micro_batch_sum, micro_batches, select

from .conftest import MODEL, write_model
from .test_batch import tokens
from .test_model import load

CPU = torch.device("cpu")


def test_predictors_are_one_before_their_labels() -> None:
    labels = torch.tensor([[-100, 5, -100], [-100, -100, 0]])
    predictors, targets = select(labels)
    assert predictors.tolist() == [0, 4]
    assert targets.tolist() == [5, 0]


def test_loss_and_gradient_by_hand() -> None:
    logits = torch.zeros(1, 1, 3, 2, dtype=torch.float64)
    logits[0, 0, 0] = torch.tensor(
        [math.log(3), 0], dtype=torch.float64
    )  # probabilities 3/4 and 1/4
    logits.requires_grad_()
    loss, n = loss_from_logits(logits, torch.tensor([[[-100, 1, 0]]]))
    assert n == 2
    assert math.isclose(loss.item(), (math.log(4) + math.log(2)) / 2, rel_tol=1e-15)
    loss.backward()  # type: ignore[no-untyped-call]
    expected = [[0.375, -0.375], [-0.25, 0.25], [0.0, 0.0]]
    assert logits.grad is not None
    np.testing.assert_allclose(logits.grad.numpy()[0, 0], np.array(expected), rtol=1e-15)


def test_a_step_without_labels_is_zero_with_a_zero_gradient() -> None:
    logits = torch.full((1, 1, 2, 3), math.inf, dtype=torch.float64, requires_grad=True)
    loss, n = loss_from_logits(logits, torch.full((1, 1, 2), -100))
    loss.backward()  # type: ignore[no-untyped-call]
    assert (loss.item(), n) == (0.0, 0)
    assert logits.grad is not None
    assert not logits.grad.any()


def test_the_sum_over_selected_positions_is_that_over_all_logits(tmp_path: Path) -> None:
    write_model(tmp_path, MODEL)
    model = load(tmp_path, torch.float64)
    rows = [
        [tokens("a", [1, 2, 3], [0, 1, 1]), tokens("b", [4, 5, 6], [1, 0, 1])],
        [tokens("c", [7, 8])],
        [tokens("d", [9] * 5, [0] * 5)],
    ]
    shape = Shape(
        accumulation_steps=2, micro_batch_size=2, pad_id=0, padding_side="left", pad_multiple=4
    )
    batch = build_batch(rows, shape)
    micros = micro_batches(batch, CPU)
    assert len(micros) == 1  # the second has no label
    own = micro_batch_sum(model, micros[0])
    arrays = [torch.from_numpy(x[0]) for x in (batch.input_ids, batch.segments, batch.positions)]
    log_p = torch.log_softmax(model(*arrays), -1)
    labels = batch.labels[0]
    terms = [
        -log_p[b, t - 1, labels[b, t]] for b in range(2) for t in range(8) if labels[b, t] != -100
    ]
    assert len(terms) == batch.num_targets == 4
    whole = torch.stack(terms).sum()
    torch.testing.assert_close(own, whole, rtol=1e-14, atol=0)
    parameters = list(model.parameters())
    ours, theirs = torch.autograd.grad(own, parameters), torch.autograd.grad(whole, parameters)
    for one, other in zip(ours, theirs, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-11, atol=1e-13)
