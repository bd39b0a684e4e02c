"""Judge: finite differences, the whole batch at once, and the program's own text."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.extend import core

from stacks.jax_stack.model import Params, abstract_model
from stacks.jax_stack.numerics import narrower_than
from stacks.jax_stack.precision import PRECISIONS
from stacks.jax_stack.step import State, StepArrays, Trainer, loss_and_grads
from stacks.jax_stack.update import make_optimizer

from .test_model import architecture, random_params
from .test_update import config

A = architecture(num_layers=1, tied=True)
MODEL = abstract_model(A)
F64 = PRECISIONS["float64"]


def batch(a: int = 2, b: int = 2, t: int = 6, seed: int = 0) -> StepArrays:
    rng = np.random.default_rng(seed)
    ids = rng.integers(0, 17, (a, b, t))
    labels = np.where(rng.random((a, b, t)) < 0.6, ids, -100)
    labels[..., 0] = -100
    arrays = (ids, np.ones_like(ids), np.broadcast_to(np.arange(t), ids.shape), labels)
    return StepArrays(*(jnp.asarray(x, jnp.int32) for x in arrays))


def params_of(dtype: str = "float64") -> Params:
    return {name: jnp.asarray(value) for name, value in random_params(A, dtype).items()}


def trainer(
    params: Params, frozen: tuple[str, ...] = (), precision: str = "float64"
) -> tuple[Trainer, State]:
    names = [name for name in params if not name.startswith(frozen)]
    optimizer = make_optimizer(config(), {name: params[name].shape for name in names})
    made = Trainer(
        model=MODEL,
        optimizer=optimizer,
        attention="eager",
        clip_norm=1.0,
        precision=PRECISIONS[precision],
        frozen={name: params[name] for name in params if name not in names},
    )
    trainable = {name: jnp.array(params[name]) for name in names}
    return made, State(trainable, optimizer.transformation.init(trainable))


def test_the_gradient_is_that_of_finite_differences() -> None:
    params, arrays = params_of(), batch()
    compute = jax.jit(lambda p: loss_and_grads(MODEL, "eager", F64, p, {}, arrays))
    _, grads = compute(params)
    rng = np.random.default_rng(1)
    for name, value in params.items():
        direction = rng.normal(size=value.shape)
        ahead, behind = (
            float(compute(params | {name: value + s * 1e-5 * direction})[0]) for s in (1, -1)
        )
        slope = float(np.sum(np.asarray(grads[name]) * direction))
        assert (ahead - behind) / 2e-5 == pytest.approx(slope, rel=1e-6, abs=1e-9), name


def test_micro_batches_weigh_by_their_targets() -> None:
    """A step of (2, 2, T) is the step of (1, 4, T): a mean over tokens, not over micro-batches."""
    arrays = batch()
    merged = StepArrays(*(x.reshape(1, 4, 6) for x in arrays))
    params = params_of()
    compute = jax.jit(lambda x: loss_and_grads(MODEL, "eager", F64, params, {}, x))
    one, two = compute(arrays), compute(merged)
    assert float(one[0]) == pytest.approx(float(two[0]), rel=1e-14)
    for name in params:
        np.testing.assert_allclose(one[1][name], two[1][name], rtol=1e-9, atol=1e-13)


def test_a_step_without_targets_has_no_loss_and_still_decays() -> None:
    arrays = batch()._replace(labels=jnp.full((2, 2, 6), -100, jnp.int32))
    params = params_of()
    made, state = trainer(params)
    state, grads, scalars = made.run(state, arrays, 0.5)
    assert (float(scalars.loss), float(scalars.grad_norm), float(scalars.clip_factor)) == (0, 0, 1)
    assert not any(np.asarray(g).any() for g in grads.values())
    name = "model.layers.0.mlp.up_proj.weight"
    np.testing.assert_allclose(state.trainable[name], np.asarray(params[name]) * (1 - 0.5 * 0.2))
    np.testing.assert_array_equal(state.trainable["model.norm.weight"], params["model.norm.weight"])


def test_scalars_are_those_of_the_returned_tensors() -> None:
    params = params_of()
    made, state = trainer(params)
    state, grads, scalars = made.run(state, batch(), 1e-2)
    norm = np.sqrt(sum(np.sum(np.asarray(g) ** 2) for g in grads.values()))
    assert float(scalars.grad_norm) == pytest.approx(norm, rel=1e-14)
    assert float(scalars.clip_factor) == pytest.approx(min(1.0, 1.0 / (norm + 1e-6)), rel=1e-15)
    after = np.sqrt(sum(np.sum(np.asarray(p) ** 2) for p in state.trainable.values()))
    assert float(scalars.param_norm) == pytest.approx(after, rel=1e-14)


def test_frozen_tensors_have_no_gradient_and_count_in_the_norm_of_parameters() -> None:
    params = params_of()
    made, state = trainer(params, frozen=("model.embed_tokens", "model.norm"))
    state, grads, scalars = made.run(state, batch(), 1e-2)
    assert "model.embed_tokens.weight" not in grads
    everything = {**state.trainable, **made.frozen}
    norm = np.sqrt(sum(np.sum(np.asarray(p) ** 2) for p in everything.values()))
    assert float(scalars.param_norm) == pytest.approx(norm, rel=1e-14)
    nothing, state = trainer(params, frozen=("model.",))
    _, grads, scalars = nothing.run(state, batch(), 1e-2)
    assert grads == {}
    assert float(scalars.grad_norm) == 0.0


def traced(precision: str, attention: str = "eager") -> core.Jaxpr:
    made, state = trainer(params_of(precision), precision=precision)
    made.attention = attention
    rate = jnp.asarray(0.1, jnp.float64)
    program = jax.jit(made.train_step).trace(state, made.frozen, batch(), rate)
    jaxpr: core.Jaxpr = program.jaxpr.jaxpr
    return jaxpr


@pytest.mark.parametrize("attention", ["eager", "fused"])
@pytest.mark.parametrize("precision", ["float64", "float32"])
def test_no_tensor_of_the_step_is_narrower_than_the_precision(
    precision: str, attention: str
) -> None:
    assert narrower_than(precision, traced(precision, attention)) == []


def test_every_matrix_product_asks_for_the_highest_precision() -> None:
    text = str(traced("float32"))
    products = text.count("dot_general[")
    assert products > 20
    assert text.count("precision=(Precision.HIGHEST, Precision.HIGHEST)") == products


def test_a_narrow_cast_planted_in_the_step_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    from stacks.jax_stack import model

    honest = model.rotate
    monkeypatch.setattr(
        model, "rotate", lambda x, c, s: honest(x.astype(jnp.float32), c, s).astype(x.dtype)
    )
    made, state = trainer(params_of())
    with pytest.raises(AssertionError, match="float32"):
        made.run(state, batch(), 0.1)


def test_one_program_for_each_shape() -> None:
    made, state = trainer(params_of())
    for t in (6, 8, 6, 8):
        state, _, _ = made.run(state, batch(t=t), 1e-3)
    assert sorted(made.steps) == [(2, 2, 6), (2, 2, 8)]


def test_the_state_is_donated() -> None:
    made, state = trainer(params_of())
    old = state.trainable["model.norm.weight"]
    made.run(state, batch(), 1e-3)
    assert old.is_deleted()
