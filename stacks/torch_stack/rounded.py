"""Training with every tensor held in bfloat16 (S-19, `bfloat16_pure`).

The gradient of a step is summed in float32 and held in bfloat16; clipping and AdamW compute in
float32 from what is held, and each result is rounded once, when it is stored.
"""

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim.adamw import adamw


class AdamW(torch.optim.AdamW):
    """AdamW on tensors of bfloat16: the library's arithmetic on float32 copies of them."""

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> None:  # type: ignore[override]
        """One update; gradients may be wider than the parameters."""
        assert closure is None
        for group in self.param_groups:
            params = group["params"]
            states = [self.state[one] for one in params]
            held = (
                params,
                [state["exp_avg"] for state in states],
                [state["exp_avg_sq"] for state in states],
            )
            theta, m, v = ([one.float() for one in tensors] for tensors in held)
            beta1, beta2 = group["betas"]
            adamw(
                theta,
                [one.grad.float() for one in params],
                m,
                v,
                [],
                [state["step"] for state in states],
                foreach=True,
                amsgrad=False,
                beta1=beta1,
                beta2=beta2,
                lr=group["lr"],
                weight_decay=group["weight_decay"],
                eps=group["eps"],
                maximize=False,
            )
            for kept, new in zip(held, (theta, m, v), strict=True):
                for one, other in zip(kept, new, strict=True):
                    one.copy_(other)  # to nearest even


def set_gradient(parameter: nn.Parameter, gradient: Tensor) -> None:
    """Put a gradient in place that may be wider than its parameter."""
    parameter.grad = None
    parameter.grad_dtype = gradient.dtype
    parameter.grad = gradient


def sum_gradients_in_float32(parameters: Iterable[nn.Parameter]) -> None:
    """From here on the backward pass adds up the gradients of micro-batches in float32."""
    for one in parameters:
        one.grad_dtype = torch.float32


def hold_gradients(parameters: Iterable[nn.Parameter]) -> None:
    """Round the sums to bfloat16, once."""
    for one in parameters:
        if one.grad is not None:
            set_gradient(one, one.grad.bfloat16())


def widen_gradients(parameters: Iterable[nn.Parameter]) -> None:
    """Held gradients → float32, so that clipping rounds nothing."""
    for one in parameters:
        if one.grad is not None:
            set_gradient(one, one.grad.float())
