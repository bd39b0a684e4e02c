"""Gradient norm (S-15), clipping (S-16) and AdamW (S-18), on dictionaries of named tensors."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from tests.reference.errors import require

Tensor = npt.NDArray[np.floating[Any]]
Tensors = dict[str, Tensor]

TABLES = ("model.embed_tokens.weight", "lm_head.weight")  # two dimensions, but no projection


def global_norm(tensors: Mapping[str, Tensor], number: type[np.floating]) -> np.floating:
    """The L2 norm over all entries of all tensors, a tensor once.

    Infinite where the sum of squares overflows float64, also when `number` is wider (S-16).
    """
    total = number(0)
    with np.errstate(over="ignore"):
        for tensor in tensors.values():
            total = total + np.sum(np.square(tensor.astype(number)))
    if total > np.finfo(np.float64).max:
        return number(np.inf)
    norm: np.floating = np.sqrt(total)
    return norm


def clip_factor(norm: np.floating, clip_norm: float | str) -> np.floating:
    """min(1, c / (norm + 1e-6)); 1 when off; NaN when the norm is not finite (S-16)."""
    number = type(norm)
    if clip_norm == "off":
        return number(1)
    if not np.isfinite(norm):
        return number("nan")
    return min(number(1), number(clip_norm) / (norm + number(1e-6)))


def trainable_names(names: Collection[str], frozen: Sequence[str]) -> list[str]:
    """The names that begin with none of the prefixes, taken literally.

    Raises RefusedError for a prefix that begins no name.
    """
    for prefix in frozen:
        used = any(name.startswith(prefix) for name in names)
        require(used, f"optimizer.frozen: {prefix!r} begins no parameter's name")
    return [name for name in names if not name.startswith(tuple(frozen))]


def is_decayed(name: str, num_dims: int, decay: str) -> bool:
    """Whether a trainable tensor is in the decay scope."""
    if decay == "all":
        return True
    if decay == "matrices":
        return num_dims == 2
    if decay == "projections":
        return num_dims == 2 and name not in TABLES
    assert decay == "none", decay
    return False


@dataclass(frozen=True, kw_only=True)
class AdamW:
    """The optimizer's constants, as in the config."""

    beta1: float
    beta2: float
    epsilon: float
    weight_decay: float
    decay: str

    def update(
        self,
        params: Tensors,
        grads: Tensors,
        m: Tensors,
        v: Tensors,
        *,
        step: int,
        rate: np.floating,
    ) -> None:
        """Update t = `step` in place for every tensor of `grads` (clipped gradients)."""
        number = type(rate)
        one, beta1, beta2 = number(1), number(self.beta1), number(self.beta2)
        correction1, correction2 = one - beta1 ** (step + 1), one - beta2 ** (step + 1)
        for name, grad in grads.items():
            m[name] = beta1 * m[name] + (one - beta1) * grad
            v[name] = beta2 * v[name] + (one - beta2) * grad * grad
            direction = (m[name] / correction1) / (
                np.sqrt(v[name] / correction2) + number(self.epsilon)
            )
            if is_decayed(name, params[name].ndim, self.decay):
                direction = direction + number(self.weight_decay) * params[name]
            params[name] = params[name] - rate * direction
