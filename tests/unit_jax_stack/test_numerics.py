"""Judges: exact fractions, NumPy float64, SHA-256 of bytes built by hand."""

import hashlib
import math
import struct

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from stacks.jax_stack.numerics import (
    floating_dtypes,
    global_norm,
    narrower_than,
    sketch_key,
    statistics,
    tensor_sha256,
    tensors_sha256,
)


def test_norm_is_over_all_tensors_together() -> None:
    assert float(global_norm([jnp.array([1.0, 2.0]), jnp.array([[2.0, 4.0]])])) == 5.0
    assert float(global_norm([])) == 0.0


@pytest.mark.parametrize("scale", [1e-140, 1e-30, 1.0, 1e30, 1e150])
def test_norm_is_that_of_the_plain_formula_at_any_size(scale: float) -> None:
    values = np.array([3.0, -4.0, 12.0]) * scale
    expected = math.hypot(*values.tolist())
    assert float(global_norm([jnp.asarray(values)])) == pytest.approx(expected, rel=1e-15)


def test_a_square_that_overflows_is_an_infinite_norm() -> None:
    assert float(global_norm([jnp.array([1e200])])) == math.inf


def test_squares_of_float32_do_not_overflow() -> None:
    assert float(global_norm([jnp.array([3e38], jnp.float32)])) == np.float32(3e38)


def test_norm_of_float32_is_accurate_to_1e_7() -> None:
    values = np.random.default_rng(0).normal(size=1_000_000).astype(np.float32)
    exact = math.sqrt(math.fsum(float(x) ** 2 for x in values))
    assert float(global_norm([jnp.asarray(values)])) == pytest.approx(exact, rel=1e-12)


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_norm_hides_nothing(bad: float) -> None:
    assert not math.isfinite(float(jax.jit(global_norm)([jnp.array([1.0, bad, 2.0])])))


def plain_sketch(name: str, values: np.ndarray) -> list[float]:
    """S-21 with Python's integers."""
    key = int(hashlib.sha256(name.encode()).hexdigest()[:8], 16)
    buckets = [0.0] * 64
    for i, value in enumerate(values.reshape(-1).tolist()):
        z = ((i * 0x9E3779B1) % 2**32) ^ key
        z ^= z >> 16
        z = z * 0x85EBCA6B % 2**32
        z ^= z >> 13
        z = z * 0xC2B2AE35 % 2**32
        z ^= z >> 16
        buckets[i % 64] += -value if z >= 2**31 else value
    return buckets


@pytest.mark.parametrize("shape", [(3,), (7, 11), (64,), (129,), (2, 3, 30), ()])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_statistics_are_those_of_the_plain_formula(shape: tuple[int, ...], dtype: str) -> None:
    values = np.random.default_rng(1).normal(size=shape).astype(dtype)
    found = statistics({"a.weight": jnp.asarray(values)})["a.weight"]
    wide = values.astype(np.float64)
    assert found.norm == pytest.approx(np.linalg.norm(wide.reshape(-1)), rel=1e-14)
    assert found.mean == pytest.approx(wide.mean(), rel=1e-13)
    assert found.max_abs == np.abs(wide).max()
    assert found.sketch == pytest.approx(plain_sketch("a.weight", wide), rel=1e-13, abs=1e-15)


def test_statistics_of_nothing_are_zero_and_those_of_nan_are_nan() -> None:
    empty = statistics({"w": jnp.zeros((0, 3))})["w"]
    assert (empty.norm, empty.mean, empty.max_abs, empty.sketch) == (0.0, 0.0, 0.0, [0.0] * 64)
    broken = statistics({"w": jnp.array([1.0, math.nan, 3.0])})["w"]
    assert all(math.isnan(x) for x in (broken.norm, broken.mean, broken.max_abs, broken.sketch[1]))


def test_the_key_is_the_first_four_bytes_as_a_big_endian_number() -> None:
    first, *_ = struct.unpack(">I", hashlib.sha256(b"w").digest()[:4])
    assert sketch_key("w") == first


def test_a_sketch_estimates_a_distance_and_sees_a_permutation() -> None:
    x = np.random.default_rng(2).normal(size=20_000)
    y = np.random.default_rng(3).permutation(x)
    a, b = (np.array(statistics({"w": jnp.asarray(v)})["w"].sketch) for v in (x, y))
    assert np.linalg.norm(a - b) == pytest.approx(np.linalg.norm(x - y), rel=0.35)


def test_hashes_are_of_widened_little_endian_values_in_order_of_names() -> None:
    one = struct.pack("<3d", 0.5, -0.0, 0.25)
    values = np.array([0.5, -0.0, 0.25], dtype=np.float32)
    assert tensor_sha256(values) == hashlib.sha256(one).hexdigest()
    both = b"a\0" + struct.pack("<d", 2.0) + b"b\0" + one
    expected = hashlib.sha256(both).hexdigest()
    assert tensors_sha256({"b": values, "a": np.array([2.0])}) == expected


def test_a_planted_cast_is_found_inside_nested_programs() -> None:
    def planted(x: jax.Array) -> jax.Array:
        def body(carry: jax.Array, _: None) -> tuple[jax.Array, None]:
            branches = [lambda c: c, lambda c: c.astype(jnp.float32).astype(jnp.float64)]
            return jax.lax.switch(jnp.int32(1), branches, carry), None

        scanned: jax.Array = jax.jit(lambda v: jax.lax.scan(body, v, None, length=2)[0])(x)
        return scanned

    jaxpr = jax.make_jaxpr(planted)(jnp.ones(3)).jaxpr
    assert narrower_than("float64", jaxpr) == ["float32"]
    assert narrower_than("float32", jaxpr) == []
    assert floating_dtypes(jax.make_jaxpr(jnp.sin)(jnp.ones(3)).jaxpr) == {"float64"}
