"""Judge: S-16 to S-18 in plain Python floats."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from stacks.jax_stack.config import OptimizerConfig, ScheduleConfig
from stacks.jax_stack.errors import BadInput
from stacks.jax_stack.numerics import floating_dtypes
from stacks.jax_stack.update import (
    adam_state,
    check_frozen,
    clip_factor,
    in_decay_scope,
    is_trainable,
    learning_rates,
    make_optimizer,
    with_moments,
)

SHAPES: dict[str, tuple[int, ...]] = {
    "model.embed_tokens.weight": (3, 2),
    "model.layers.0.mlp.up_proj.weight": (2, 2),
    "model.norm.weight": (2,),
    "lm_head.weight": (3, 2),
}


def config(**changes: object) -> OptimizerConfig:
    values: dict[str, object] = {
        "learning_rate": 0.1,
        "beta1": 0.9,
        "beta2": 0.99,
        "epsilon": 1e-3,
        "weight_decay": 0.2,
        "decay": "projections",
        "frozen": (),
        "clip_norm": 1.0,
    }
    return OptimizerConfig(**(values | changes))  # type: ignore[arg-type]


def schedule(kind: str, warmup: int, floor: float, steps: int) -> list[float]:
    settings = ScheduleConfig(kind=kind, warmup_steps=warmup, min_ratio=floor)  # type: ignore[arg-type]
    return learning_rates(settings, 2.0, steps)


def test_schedules_by_hand() -> None:
    assert schedule("constant", 3, 0.0, 5) == [0.5, 1.0, 1.5, 2.0, 2.0]
    assert schedule("linear", 0, 0.5, 3) == [2.0, 1.5, 1.0]
    assert schedule("cosine", 1, 0.0, 4) == pytest.approx([1.0, 2.0, 1.0, 0.0], abs=1e-15)
    assert schedule("cosine", 0, 0.5, 1) == [2.0]


def test_the_factor_adds_1e_6_and_hides_nothing() -> None:
    assert float(clip_factor(jnp.asarray(4.0), 2.0)) == 2.0 / (4.0 + 1e-6)
    assert float(clip_factor(jnp.asarray(1.0), 2.0)) == 1.0
    assert float(clip_factor(jnp.asarray(9.0), "off")) == 1.0
    assert math.isnan(float(jax.jit(lambda n: clip_factor(n, 2.0))(jnp.asarray(math.nan))))
    assert math.isnan(float(jax.jit(lambda n: clip_factor(n, 2.0))(jnp.asarray(math.inf))))


def test_scope_of_decay_and_of_training() -> None:
    def scope(decay: str) -> list[bool]:
        return [in_decay_scope(name, len(shape), decay) for name, shape in SHAPES.items()]

    assert scope("all") == [True] * 4
    assert scope("matrices") == [True, True, False, True]
    assert scope("projections") == [False, True, False, False]
    assert scope("none") == [False] * 4
    assert not is_trainable("model.layers.10.x", ("model.layers.1",))
    assert is_trainable("model.layers.0.x", ("layers.0",))
    assert is_trainable("model.norm.weight", ())


def test_a_frozen_entry_that_begins_no_name_is_refused() -> None:
    check_frozen(SHAPES, ("model.norm", "lm_head"))
    with pytest.raises(BadInput, match="names norm"):
        check_frozen(SHAPES, ("model.norm", "norm"))


def plain_adamw(
    c: OptimizerConfig, theta: float, grads: list[float], rates: list[float], decays: bool
) -> tuple[float, float, float]:
    m = v = 0.0
    for t, (g, rate) in enumerate(zip(grads, rates, strict=True)):
        m = c.beta1 * m + (1 - c.beta1) * g
        v = c.beta2 * v + (1 - c.beta2) * g * g
        m_hat, v_hat = m / (1 - c.beta1 ** (t + 1)), v / (1 - c.beta2 ** (t + 1))
        theta -= rate * (
            m_hat / (math.sqrt(v_hat) + c.epsilon) + (c.weight_decay if decays else 0) * theta
        )
    return theta, m, v


def test_adamw_is_the_formula_of_the_clause() -> None:
    c = config()
    rng = np.random.default_rng(0)
    grads = [
        {n: rng.normal(size=s) * 10.0 ** rng.integers(-6, 2) for n, s in SHAPES.items()}
        for _ in range(9)
    ]
    rates = [0.1 / (t + 1) for t in range(9)]
    factors = [1.0 / (t + 2) for t in range(9)]
    start = {name: rng.normal(size=shape) for name, shape in SHAPES.items()}
    transformation = make_optimizer(c, SHAPES).transformation
    params = {name: jnp.asarray(value) for name, value in start.items()}
    state = transformation.init(params)
    for g, rate, factor in zip(grads, rates, factors, strict=True):
        arguments = {"factor": jnp.asarray(factor), "learning_rate": jnp.asarray(rate)}
        updates, state = transformation.update(
            {n: jnp.asarray(x) for n, x in g.items()}, state, params, **arguments
        )
        params = optax.apply_updates(params, updates)
    for name, shape in SHAPES.items():
        for index in np.ndindex(shape):
            clipped = [float(g[name][index]) * f for g, f in zip(grads, factors, strict=True)]
            decays = name == "model.layers.0.mlp.up_proj.weight"
            theta, m, v = plain_adamw(c, float(start[name][index]), clipped, rates, decays)
            assert float(params[name][index]) == pytest.approx(theta, rel=1e-12)
            assert float(adam_state(state).mu[name][index]) == pytest.approx(
                m, rel=1e-13, abs=1e-18
            )
            assert float(adam_state(state).nu[name][index]) == pytest.approx(v, rel=1e-13)


def test_what_decays_is_what_the_mask_says() -> None:
    """With a zero gradient only decay moves a tensor: by -lr · λ · θ."""
    for decay in ("all", "matrices", "projections", "none"):
        optimizer = make_optimizer(config(decay=decay), SHAPES)
        ones = {name: jnp.ones(shape) for name, shape in SHAPES.items()}
        zeros = {name: jnp.zeros(shape) for name, shape in SHAPES.items()}
        arguments = {"factor": jnp.asarray(1.0), "learning_rate": jnp.asarray(0.5)}
        state = optimizer.transformation.init(ones)
        updates, _ = optimizer.transformation.update(zeros, state, ones, **arguments)
        moved = {name: bool(np.asarray(update).any()) for name, update in updates.items()}
        assert moved == dict(optimizer.decay_mask)


@pytest.mark.parametrize("num_updates", [0, 99, 100_000])
def test_bias_corrections_are_computed_in_float64_in_a_float32_run(num_updates: int) -> None:
    c = config(beta1=0.9, beta2=0.99999, epsilon=1e-30, weight_decay=0.0)
    transformation = make_optimizer(c, {"w": (1,)}).transformation
    params = {"w": jnp.zeros(1, jnp.float32)}
    m, v = jnp.asarray([0.5], jnp.float32), jnp.asarray([0.25], jnp.float32)
    state = with_moments(transformation.init(params), {"w": m}, {"w": v}, num_updates)
    arguments = {"factor": jnp.asarray(1.0), "learning_rate": jnp.asarray(1.0)}
    updates, _ = transformation.update(
        {"w": jnp.asarray([0.5], jnp.float32)}, state, params, **arguments
    )
    u = num_updates + 1
    correction1, correction2 = (np.float32(1 - beta**u) for beta in (c.beta1, c.beta2))
    expected = -(np.float32(0.5) / correction1) / np.sqrt(np.float32(0.25) / correction2)
    assert updates["w"].dtype == jnp.float32
    assert float(updates["w"][0]) == pytest.approx(float(expected), rel=3e-7)
    step = jax.make_jaxpr(lambda g, s: transformation.update(g, s, params, **arguments))(
        params, state
    )
    assert "float16" not in floating_dtypes(step.jaxpr)


def test_a_state_without_tensors_is_a_state() -> None:
    transformation = make_optimizer(config(), {}).transformation
    arguments = {"factor": jnp.asarray(1.0), "learning_rate": jnp.asarray(1.0)}
    updates, state = transformation.update({}, transformation.init({}), {}, **arguments)
    assert updates == {}
    assert int(adam_state(state).count) == 1
