"""Judge: the formula of S-14 in NumPy float64, and finite differences."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jaxtyping import TypeCheckError

from stacks.jax_stack.loss import count_targets, mean_of, sum_of_nll

RNG = np.random.default_rng(0)


def plain(logits: np.ndarray, labels: np.ndarray) -> float:
    total = 0.0
    for b, t in np.argwhere(labels[:, 1:] != -100):
        row = logits[b, t]
        total += np.log(np.exp(row - row.max()).sum()) + row.max() - row[labels[b, t + 1]]
    return total


def test_label_t_is_predicted_by_the_logits_at_t_minus_one() -> None:
    logits = RNG.normal(size=(3, 5, 7)) * 3
    labels = np.where(RNG.random((3, 5)) < 0.6, RNG.integers(0, 7, (3, 5)), -100).astype(np.int32)
    found = sum_of_nll(jnp.asarray(logits), jnp.asarray(labels))
    assert float(found) == pytest.approx(plain(logits, labels), rel=1e-14)


def test_the_gradient_is_that_of_finite_differences() -> None:
    logits = RNG.normal(size=(1, 4, 5))
    labels = jnp.array([[-100, 3, -100, 0]], jnp.int32)
    grads = np.asarray(jax.grad(sum_of_nll)(jnp.asarray(logits), labels))
    for index in np.ndindex(logits.shape):
        step = np.zeros_like(logits)
        step[index] = 1e-6
        slope = (
            plain(logits + step, np.asarray(labels)) - plain(logits - step, np.asarray(labels))
        ) / 2e-6
        assert grads[index] == pytest.approx(slope, abs=1e-8)


def test_without_a_target_loss_and_gradient_are_zero() -> None:
    labels = jnp.full((2, 3), -100, jnp.int32)
    logits = jnp.asarray(RNG.normal(size=(2, 3, 4)))
    value, grads = jax.value_and_grad(
        lambda x: mean_of(sum_of_nll(x, labels), count_targets(labels))
    )(logits)
    assert float(value) == 0.0
    assert not np.asarray(grads).any()


def test_the_first_label_of_a_row_is_never_read() -> None:
    logits = jnp.asarray(RNG.normal(size=(1, 3, 4)))
    a, b = (sum_of_nll(logits, jnp.array([[first, 1, 2]], jnp.int32)) for first in (0, 3))
    assert float(a) == float(b)


def test_a_float32_loss_is_float32_and_accumulates_wider() -> None:
    logits = jnp.asarray(RNG.normal(size=(8, 512, 3)), jnp.float32)
    labels = jnp.asarray(RNG.integers(0, 3, (8, 512)), jnp.int32)
    found = sum_of_nll(logits, labels)
    assert found.dtype == jnp.float32
    assert float(found) == pytest.approx(
        plain(np.asarray(logits, np.float64), np.asarray(labels)), rel=2e-7
    )


def test_shapes_that_do_not_fit_are_told_in_tests() -> None:
    with pytest.raises(TypeCheckError):
        sum_of_nll(jnp.zeros((2, 3, 4)), jnp.zeros((2, 4), jnp.int32))
