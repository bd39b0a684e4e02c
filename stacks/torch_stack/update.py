"""From gradients to new parameters: schedule, clipping, AdamW (S-16, S-17, S-18).

The optimizer is `torch.optim.AdamW`. Its bias corrections and learning rate are Python floats,
which are float64; it multiplies by `1 - lr·λ` before it subtracts, which is the formula of S-18
with the value before the update on the right.
"""

import math
from collections.abc import Mapping, Sequence

import torch
from torch import Tensor, nn

from stacks.torch_stack.config import Optimizer, Schedule
from stacks.torch_stack.errors import BadInput
from stacks.torch_stack.rounded import AdamW

CLIP_EPSILON = 1e-6  # S-16


def learning_rate(t: int, num_steps: int, peak: float, schedule: Schedule) -> float:
    """`lr(t)` of update `t` of `num_steps`, with `peak` = η (S-17)."""
    warmup, r = schedule.warmup_steps, schedule.min_ratio
    if t < warmup:
        return peak * (t + 1) / (warmup + 1)
    span = num_steps - 1 - warmup
    p = (t - warmup) / span if span else 0.0
    if schedule.kind == "constant":
        return peak
    if schedule.kind == "linear":
        return peak * (1 - (1 - r) * p)
    return peak * (r + (1 - r) * (1 + math.cos(math.pi * p)) / 2)


def clip_factor(grad_norm: float, clip_norm: float | str) -> float:
    """`min(1, c / (grad_norm + 1e-6))`, NaN when the norm is not finite (S-16)."""
    if isinstance(clip_norm, str):  # "off"
        return 1.0
    if not math.isfinite(grad_norm):
        return math.nan  # min() would hide a NaN, and c / inf would be a harmless 0
    return min(1.0, clip_norm / (grad_norm + CLIP_EPSILON))


def scale_gradients(grads: Sequence[Tensor], factor: float) -> None:
    """Multiply every gradient in place; by 1 it changes nothing, so that is left out."""
    if factor != 1.0 and grads:
        torch._foreach_mul_(list(grads), factor)


def is_frozen(name: str, frozen: Sequence[str]) -> bool:
    """S-18: a tensor whose name begins with an entry of `optimizer.frozen`."""
    return name.startswith(tuple(frozen))


def decays(name: str, parameter: Tensor, scope: str) -> bool:
    """Whether a tensor lies in the decay scope (S-18)."""
    if scope == "projections":
        ends = ("model.embed_tokens.weight", "lm_head.weight")
        return parameter.dim() == 2 and name not in ends
    return scope == "all" or (scope == "matrices" and parameter.dim() == 2)


def build_optimizer(
    parameters: Mapping[str, nn.Parameter], settings: Optimizer
) -> torch.optim.AdamW:
    """AdamW over the trainable tensors, in a group with decay and one without.

    The group key `decay` says which is which; moments start at 0 and exist from the start.
    """
    for entry in settings.frozen:
        if not any(name.startswith(entry) for name in parameters):
            raise BadInput(
                f"S-18: optimizer.frozen holds {entry!r}, which begins no parameter's name; "
                f"parameters are named like {min(parameters)}"
            )
    groups: dict[bool, dict[str, object]] = {
        decay: {
            "params": [],
            "decay": decay,
            "weight_decay": settings.weight_decay if decay else 0.0,
        }
        for decay in (True, False)
    }
    for name, parameter in parameters.items():
        parameter.requires_grad_(not is_frozen(name, settings.frozen))
        if parameter.requires_grad:
            members = groups[decays(name, parameter, settings.decay)]["params"]
            assert isinstance(members, list)
            members.append(parameter)
    is_rounded = any(one.dtype == torch.bfloat16 for one in parameters.values())
    optimizer = (AdamW if is_rounded else torch.optim.AdamW)(
        list(groups.values()),
        lr=settings.learning_rate,
        betas=(settings.beta1, settings.beta2),
        eps=settings.epsilon,
        foreach=True,
    )
    for parameter in parameters.values():
        if parameter.requires_grad:
            zeros = torch.zeros_like(parameter)
            set_moments(optimizer, parameter, zeros, zeros.clone(), 0)
    return optimizer


def set_moments(
    optimizer: torch.optim.AdamW, parameter: nn.Parameter, m: Tensor, v: Tensor, num_updates: int
) -> None:
    """Put in the state of a parameter after `num_updates` updates."""
    # Left alone, AdamW makes `step` in PyTorch's default dtype, float32 (S-19)
    step = torch.tensor(num_updates, dtype=torch.float64)
    optimizer.state[parameter] = {"step": step, "exp_avg": m, "exp_avg_sq": v}


def moments(
    optimizer: torch.optim.AdamW, parameters: Mapping[str, nn.Parameter]
) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """The live moments m and v of the trainable tensors, by name."""
    states = {name: optimizer.state[one] for name, one in parameters.items() if one.requires_grad}
    m = {name: state["exp_avg"] for name, state in states.items()}
    return m, {name: state["exp_avg_sq"] for name, state in states.items()}


def apply_update(optimizer: torch.optim.AdamW, rate: float) -> None:
    """One update of S-18 at the learning rate `rate`, from the gradients as they stand."""
    for group in optimizer.param_groups:
        group["lr"] = rate
    optimizer.step()
