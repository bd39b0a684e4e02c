"""Which dtype holds what in a run, and the two conversions between them (S-19).

What is narrower than float32 is widened before anything is computed from it, and rounded once, to
nearest even, where S-19 says so. The rounding is XLA's ReducePrecision: a pair of casts would not
do, for XLA may remove it and carry on with the wider value (`xla_allow_excess_precision`).
"""

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Num

BFLOAT16 = np.dtype(jnp.bfloat16)
FLOAT32 = np.dtype(np.float32)
FLOAT64 = np.dtype(np.float64)


@dataclass(frozen=True, kw_only=True)
class Precision:
    """The dtypes of a value of `train.precision`.

    Attributes:
        held: of parameters, gradients, moments, and of the files that hold them.
        wide: of the loss, and of what S-15 to S-18 compute.
        activation: of what the modules of the forward pass hand on.
    """

    name: str
    held: np.dtype
    wide: np.dtype
    activation: np.dtype


PRECISIONS = {
    name: Precision(name=name, held=held, wide=wide, activation=activation)
    for name, held, wide, activation in (
        ("float64", FLOAT64, FLOAT64, FLOAT64),
        ("float32", FLOAT32, FLOAT32, FLOAT32),
        ("bfloat16", FLOAT32, FLOAT32, BFLOAT16),
        ("bfloat16_pure", BFLOAT16, FLOAT32, BFLOAT16),
    )
}


def wide_dtype(dtype: Any) -> np.dtype:
    """The dtype in which values of `dtype` are computed with: float32 for bfloat16, else itself."""
    return FLOAT32 if dtype == BFLOAT16 else np.dtype(dtype)


def widen(x: Num[Array, "*shape"]) -> Num[Array, "*shape"]:
    """x, exactly, in the dtype that it is computed with."""
    return x.astype(FLOAT32) if x.dtype == BFLOAT16 else x


def round_to(x: Num[Array, "*shape"], dtype: Any) -> Num[Array, "*shape"]:
    """x in `dtype`, rounded once to nearest even; x itself where it has the dtype already."""
    if x.dtype == dtype:
        return x
    assert dtype == BFLOAT16, f"{x.dtype} is rounded to bfloat16 alone (S-19), not to {dtype}"
    return lax.reduce_precision(x, exponent_bits=8, mantissa_bits=7).astype(dtype)


def widen_all(tree: Any) -> Any:
    """A tree with each array in the dtype that it is computed with; integers stay as they are."""
    return jax.tree.map(widen, tree)


def round_all(tree: Any, like: Any) -> Any:
    """A tree with each array rounded to the dtype of its counterpart in `like`."""
    return jax.tree.map(lambda x, other: round_to(x, other.dtype), tree, like)


def castable(values: np.ndarray, dtype: np.dtype) -> np.ndarray:
    """Values of a file, such that NumPy's cast to `dtype` rounds them once to nearest even (S-13).

    Its cast of float64 to bfloat16 goes through float32 and would round twice. Here that first
    rounding is towards an odd last bit, which leaves the second one exact.
    """
    if dtype != BFLOAT16 or values.dtype != FLOAT64:
        return values
    with np.errstate(over="ignore"):  # beyond the range the nearest value is infinite
        nearest = values.astype(FLOAT32)
    is_inexact = np.isfinite(nearest) & (nearest != values)
    is_away = is_inexact & (np.abs(nearest.astype(FLOAT64)) > np.abs(values))
    bits = nearest.view(np.uint32)
    odd = (bits - is_away.astype(np.uint32)) | np.uint32(1)  # towards zero, then odd
    return np.where(is_inexact, odd, bits).astype(np.uint32).view(FLOAT32)
