"""Norms, statistics, hashes of tensors; a guard on dtypes (S-15, S-19, S-21, S-22)."""

import hashlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend import core
from jaxtyping import Array, Float, UInt32

NUM_BUCKETS = 64


def global_norm(tensors: Iterable[Float[Array, "..."]]) -> Float[Array, ""]:
    """sqrt(sum of squares of all entries), in float64 whatever the precision (S-15)."""
    squares = [jnp.sum(jnp.square(tensor.astype(jnp.float64))) for tensor in tensors]
    return jnp.sqrt(jnp.sum(jnp.stack(squares))) if squares else jnp.zeros((), jnp.float64)


@dataclass(frozen=True, kw_only=True)
class Statistics:
    """S-21 of one tensor, in float64."""

    norm: float
    mean: float
    max_abs: float
    sketch: list[float]  # 64


def sketch_key(name: str) -> int:
    """The first four bytes of SHA-256 of the name as a big-endian number (S-21)."""
    return int.from_bytes(hashlib.sha256(name.encode()).digest()[:4], "big")


def sketch_signs(index: UInt32[Array, " n"], key: UInt32[Array, ""]) -> Float[Array, " n"]:
    """-1 or +1 for each index, by the integer mix of S-21, modulo 2³²."""
    z = (index * jnp.uint32(0x9E3779B1)) ^ key
    z = (z ^ (z >> 16)) * jnp.uint32(0x85EBCA6B)
    z = (z ^ (z >> 13)) * jnp.uint32(0xC2B2AE35)
    z = z ^ (z >> 16)
    return jnp.where(z >> 31 == 1, -1.0, 1.0)


@jax.jit
def _summarise(x: Float[Array, "..."], key: UInt32[Array, ""]) -> Float[Array, " 67"]:
    """norm, mean, max_abs, then the 64 numbers of the sketch; compiled once for each shape."""
    flat = x.reshape(-1).astype(jnp.float64)
    if not flat.size:
        return jnp.zeros(3 + NUM_BUCKETS, jnp.float64)
    signs = sketch_signs(jnp.arange(flat.size, dtype=jnp.uint32), key)
    signed = jnp.pad(flat * signs, (0, -flat.size % NUM_BUCKETS))
    sketch = jnp.sum(signed.reshape(-1, NUM_BUCKETS), axis=0)
    scalars = jnp.stack([global_norm([flat]), jnp.mean(flat), jnp.max(jnp.abs(flat))])
    return jnp.concatenate([scalars, sketch])


@jax.jit
def _difference(after: Float[Array, "*shape"], before: Float[Array, "*shape"]) -> Array:
    return after.astype(jnp.float64) - before.astype(jnp.float64)


class Difference(Mapping[str, Array]):
    """after - before, in float64 whatever the precision (S-21, kind update); a tensor is computed
    when it is asked for.
    """

    def __init__(self, after: Mapping[str, Array], before: Mapping[str, Array]) -> None:
        self._after, self._before = after, before

    def __getitem__(self, name: str) -> Array:
        result: Array = _difference(self._after[name], self._before[name])
        return result

    def __iter__(self) -> Iterator[str]:
        return iter(self._after)

    def __len__(self) -> int:
        return len(self._after)


def statistics(tensors: Mapping[str, Array]) -> dict[str, Statistics]:
    """Name -> statistics, by a program of its own: it cannot change the step's bits."""
    summaries = {
        name: _summarise(tensor, np.uint32(sketch_key(name))) for name, tensor in tensors.items()
    }
    return {name: _unpack(values) for name, values in jax.device_get(summaries).items()}


def _unpack(summary: np.ndarray) -> Statistics:
    norm, mean, max_abs, *sketch = summary.tolist()
    return Statistics(norm=norm, mean=mean, max_abs=max_abs, sketch=sketch)


def tensor_sha256(values: np.ndarray) -> str:
    """Hash of the values, widened exactly to float64, little-endian, row-major (S-22)."""
    return hashlib.sha256(_value_bytes(values)).hexdigest()


def tensors_sha256(tensors: Mapping[str, np.ndarray]) -> str:
    """Hash of a set: name, 0x00, values, by ascending UTF-8 bytes of the names (S-22)."""
    digest = SetHash()
    for name in sorted(tensors, key=str.encode):
        digest.add(name, tensors[name])
    return digest.hexdigest()


class SetHash:
    """The hash of a set of tensors that are added in ascending order of their names (S-22)."""

    def __init__(self) -> None:
        self._digest = hashlib.sha256()

    def add(self, name: str, values: np.ndarray) -> None:
        """Feeds one tensor."""
        self._digest.update(name.encode() + b"\0")
        self._digest.update(_value_bytes(values))

    def hexdigest(self) -> str:
        """The hash of what was added."""
        return self._digest.hexdigest()


def _value_bytes(values: np.ndarray) -> bytes:
    return np.ascontiguousarray(values, dtype="<f8").tobytes()


def floating_dtypes(jaxpr: core.Jaxpr) -> set[str]:
    """Names of all floating dtypes in a jaxpr, those of its nested jaxprs included (S-19)."""
    return {
        variable.aval.dtype.name
        for inner in _with_nested(jaxpr)
        for variable in _variables(inner)
        if hasattr(variable.aval, "dtype") and jnp.issubdtype(variable.aval.dtype, jnp.floating)
    }


def narrower_than(precision: str, jaxpr: core.Jaxpr) -> list[str]:
    """The floating dtypes of a jaxpr narrower than `precision`, sorted; S-19 wants none."""
    width = _bits(precision)
    return sorted(name for name in floating_dtypes(jaxpr) if _bits(name) < width)


def _bits(dtype: str) -> int:
    return jnp.dtype(dtype).itemsize * 8


def _with_nested(jaxpr: core.Jaxpr) -> Iterator[core.Jaxpr]:
    yield jaxpr
    for equation in jaxpr.eqns:
        for value in jax.tree.leaves(equation.params, is_leaf=_is_jaxpr):
            if _is_jaxpr(value):
                yield from _with_nested(value if isinstance(value, core.Jaxpr) else value.jaxpr)


def _is_jaxpr(value: Any) -> bool:
    return isinstance(value, core.Jaxpr | core.ClosedJaxpr)


def _variables(jaxpr: core.Jaxpr) -> Iterator[Any]:
    yield from (*jaxpr.invars, *jaxpr.constvars, *jaxpr.outvars)
    for equation in jaxpr.eqns:
        yield from (*equation.invars, *equation.outvars)
