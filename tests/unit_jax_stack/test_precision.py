"""Judges: roundings by hand on the bits, exact sums of small numbers, properties of S-19."""

import struct
from fractions import Fraction
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from stacks.jax_stack.model import Linear, RMSNorm, add, forward, multiply, rotate, silu
from stacks.jax_stack.precision import BFLOAT16, PRECISIONS, castable, round_to, widen
from stacks.jax_stack.step import loss_and_grads
from stacks.jax_stack.update import adam_state

from .test_model import IDS, POSITIONS, SEGMENTS
from .test_step import MODEL, batch, params_of, trainer

PAIR = ("bfloat16", "bfloat16_pure")


def nearest(value: Fraction) -> float:
    """A number rounded to 8 significant bits, ties to even: bfloat16 in its normal range."""
    if value == 0:
        return 0.0
    exponent = 0
    while abs(value) * Fraction(2) ** -exponent >= 256:
        exponent += 1
    while abs(value) * Fraction(2) ** -exponent < 128:
        exponent -= 1
    return float(round(value * Fraction(2) ** -exponent) * Fraction(2) ** exponent)


def narrow(values: np.ndarray) -> np.ndarray:
    """`nearest` of each value."""
    rounded = [nearest(Fraction(x)) for x in np.asarray(values, np.float64).ravel().tolist()]
    return np.array(rounded).reshape(np.shape(values))


def of_bfloat16(values: object) -> jax.Array:
    return jnp.asarray(values, jnp.bfloat16)


def as_floats(values: jax.Array) -> np.ndarray:
    assert values.dtype == jnp.bfloat16
    return np.asarray(values.astype(jnp.float64))


def test_a_value_is_rounded_to_nearest_even() -> None:
    values = np.array([1 + 2**-8, 1 + 3 * 2**-8, 1 + 2**-8 + 2**-20, -257.0, 0.1], np.float32)
    found = as_floats(jax.jit(lambda x: round_to(x, BFLOAT16))(values))
    assert found.tolist() == [1.0, 1 + 2**-6, 1 + 2**-7, -256.0, 0.10009765625]


def test_no_program_carries_on_with_what_was_rounded_away() -> None:
    """The pair of conversions is one that XLA may remove: excess precision would give 2^-20."""
    x = jnp.full(64, 1 + 2**-20, jnp.float32)
    program = jax.jit(lambda x: widen(round_to(x * x, BFLOAT16)) - 1)
    assert not np.asarray(program(x)).any()
    assert "reduce-precision" in str(program.lower(x).compile().as_text())


@pytest.mark.parametrize(
    "value", [1 + 2**-8 + 2**-40, 1 + 2**-8 - 2**-40, -(1 + 3 * 2**-8 - 2**-45), 0.1, 1e-45, 1e300]
)
def test_a_float64_of_a_file_is_rounded_once(value: float) -> None:
    found = float(castable(np.array([value]), BFLOAT16).astype(BFLOAT16)[0])
    if value == 1e300:
        assert found == np.inf
    else:
        assert found == (0.0 if value == 1e-45 else nearest(Fraction(value)))


def module_of(module: nnx.Module, **params: Any) -> Any:
    for name, values in params.items():
        setattr(module, name, nnx.Param(jnp.asarray(values, jnp.float32)))
    return module


def test_a_linear_rounds_its_weights_and_its_sum_with_the_bias_once() -> None:
    ties = module_of(Linear(2, 1, bias=False), weight=[[1 + 2**-9, 127.5]])
    # 1 + 127.5 is a tie and goes to 128; with the weight as it was it would be above it, and 129.
    assert as_floats(jax.jit(lambda x: ties(x))(of_bfloat16([[1.0, 1.0]]))).tolist() == [[128.0]]
    halves = module_of(Linear(2, 1, bias=True), weight=[[128.0, 1.0]], bias=[0.5])
    # 128 + 1/4 + 1/2 goes to 129; rounded before the bias it would be 128, and 128.5 goes to 128.
    assert as_floats(jax.jit(lambda x: halves(x))(of_bfloat16([[1.0, 0.25]]))).tolist() == [[129.0]]


def test_rms_rounds_the_normalised_value_before_the_weight() -> None:
    """D07 of the catalogue: multiplied before the cast back, many of these are other numbers."""
    values = np.array([[3.0, -5.0, 7.0, 11.0] * 16])
    weight = np.linspace(0.5, 1.9, 64)
    norm = module_of(RMSNorm(64, 1e-6), weight=weight.tolist())
    found = as_floats(jax.jit(lambda x: norm(x))(of_bfloat16(values)))
    normalised = narrow(values / np.sqrt(51.0 + 1e-6))
    held = narrow(weight.astype(np.float32))
    assert found.tolist() == narrow(normalised * held).tolist()
    late = narrow(values / np.sqrt(51.0 + 1e-6) * held)
    assert (found != late).sum() > 8


def test_products_sums_and_silu_are_rounded_once() -> None:
    x, y = of_bfloat16([1.0078125, 3.0, 200.0]), of_bfloat16([1.0078125, 0.3, 0.75])
    exact = [(Fraction(float(a)), Fraction(float(b))) for a, b in zip(x, y, strict=True)]
    assert as_floats(jax.jit(multiply)(x, y)).tolist() == [nearest(a * b) for a, b in exact]
    assert as_floats(jax.jit(add)(x, y)).tolist() == [nearest(a + b) for a, b in exact]
    wide = np.asarray(x.astype(jnp.float64))
    assert as_floats(jax.jit(silu)(x)).tolist() == narrow(wide / (1 + np.exp(-wide))).tolist()


def test_rope_computes_in_float32_and_rounds_once() -> None:
    x = of_bfloat16([[[[1.0, 3.0]]]])
    cos, sin = jnp.full((1, 1, 1), 0.7, jnp.float32), jnp.full((1, 1, 1), 0.1, jnp.float32)
    found = as_floats(jax.jit(rotate)(x, cos, sin)).ravel()
    c, s = (Fraction(float(np.float32(v))) for v in (0.7, 0.1))
    assert found.tolist() == [nearest(c - 3 * s), nearest(3 * c + s)]


def logits_of(precision: str, attention: str) -> np.ndarray:
    ids, segments, positions = (jnp.asarray(x, jnp.int32) for x in (IDS, SEGMENTS, POSITIONS))
    chosen, params = PRECISIONS[precision], params_of("float64")
    held = {name: x.astype(chosen.held) for name, x in params.items()}

    def compute(p: dict[str, jax.Array]) -> jax.Array:
        return forward(MODEL, p, ids, segments, positions, attention, chosen)

    return np.asarray(jax.jit(compute)(held).astype(jnp.float64))


@pytest.mark.parametrize("attention", ["eager", "fused"])
def test_a_narrow_forward_is_near_the_wide_one_and_the_same_in_both(attention: str) -> None:
    mixed, pure, wide = (logits_of(name, attention) for name in (*PAIR, "float64"))
    assert np.array_equal(mixed, pure)
    assert np.array_equal(mixed, narrow(mixed))
    assert 1e-4 < np.abs(mixed - wide).max() / np.abs(wide).max() < 0.05


def test_what_is_held_and_returned_has_the_dtypes_of_the_clause() -> None:
    for name, held in zip(PAIR, ("float32", "bfloat16"), strict=True):
        made, state = trainer(params_of(held), precision=name)
        after, grads, scalars = made.run(state, batch(), 1e-2)
        adam = adam_state(after.optimizer)
        found = {x.dtype.name for x in jax.tree.leaves((after.trainable, grads, adam.mu, adam.nu))}
        assert found == {held}
        assert (scalars.loss.dtype.name, scalars.grad_norm.dtype.name) == ("float32", "float64")


def test_norms_and_update_are_computed_from_what_is_held() -> None:
    """S-15, S-18: nothing wider than the rounded gradient or parameter reaches a scalar."""
    params = params_of("bfloat16")
    made, state = trainer(params, precision="bfloat16_pure")
    before = {name: np.asarray(x.astype(jnp.float64)) for name, x in state.trainable.items()}
    after, grads, scalars = made.run(state, batch(), 1e-2)
    assert float(scalars.grad_norm) == pytest.approx(norm_of(grads), rel=1e-12)
    assert float(scalars.param_norm) == pytest.approx(norm_of(after.trainable), rel=1e-12)
    factor, adam = min(1.0, 1.0 / (norm_of(grads) + 1e-6)), adam_state(after.optimizer)
    config = made.optimizer
    for name, held in grads.items():
        g = np.asarray(held.astype(jnp.float64)) * factor
        step = g / (np.abs(g) + config.epsilon)  # of the first update: m̂ = g, sqrt(v̂) = |g|
        decay = config.weight_decay if config.decay_mask[name] else 0.0
        expected = before[name] - 1e-2 * (step + decay * before[name])
        close_to_rounded(after.trainable[name], expected)
        close_to_rounded(adam.mu[name], (1 - config.beta1) * g)
        close_to_rounded(adam.nu[name], (1 - config.beta2) * g**2)


def norm_of(tensors: dict[str, jax.Array]) -> float:
    squares = [np.sum(np.asarray(x.astype(jnp.float64)) ** 2) for x in tensors.values()]
    return float(np.sqrt(sum(squares)))


def close_to_rounded(found: jax.Array, expected: np.ndarray) -> None:
    """Each is the nearest of the exact value; float32 on the way may tip one that is a near tie."""
    values, rounded = as_floats(found), narrow(expected)
    assert (values != rounded).mean() < 0.02
    np.testing.assert_allclose(values, expected, rtol=2**-8 + 2**-14, atol=1e-30)


def test_gradients_are_summed_wide_and_rounded_once() -> None:
    arrays, params = batch(), params_of("bfloat16")
    wide = {name: x.astype(jnp.float32) for name, x in params.items()}
    found = [
        jax.jit(lambda p, n=name: loss_and_grads(MODEL, "eager", PRECISIONS[n], p, {}, arrays))(
            held
        )
        for name, held in zip(PAIR, (wide, params), strict=True)
    ]
    assert float(found[0][0]) == pytest.approx(float(found[1][0]), rel=1e-6)
    for name, summed in found[0][1].items():
        close_to_rounded(found[1][1][name], np.asarray(summed, np.float64))


def test_bits_of_bfloat16_are_the_upper_half_of_a_float32() -> None:
    x = np.asarray(of_bfloat16([0.1, -3.5]))
    assert x.tobytes() == b"".join(struct.pack("<f", float(v))[2:] for v in x)
