"""Judge: S-12, S-21 and S-28 in NumPy float64, with all micro-batches at once."""

import math
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

from stacks.jax_stack.model import abstract_model
from stacks.jax_stack.precision import PRECISIONS
from stacks.jax_stack.step import State, StepArrays, Trainer
from stacks.jax_stack.taps import DeepTrace, TapRecorder
from stacks.jax_stack.update import make_optimizer

from .test_model import architecture, random_params
from .test_numerics import plain_sketch
from .test_update import config

A = architecture(num_layers=2)  # untied, with biases; 4 heads of 6 over 2
IDS = [[[3, 1, 4, 1, 5]], [[6, 5, 3, 0, 0]], [[2, 7, 1, 8, 2]]]  # (3, 1, 5): 64 does not divide
SEGMENTS = [[[1, 1, 1, 2, 2]], [[1, 1, 1, 0, 0]], [[1, 1, 1, 1, 1]]]
POSITIONS = [[[0, 1, 2, 0, 1]], [[0, 1, 2, 0, 0]], [[0, 1, 2, 3, 4]]]
LABELS = [[[-100, 1, 4, -100, 5]], [[-100, -100, 3, -100, -100]], [[-100, 7, 1, 8, 2]]]
Taps = dict[str, np.ndarray]


def rms(x: np.ndarray, weight: np.ndarray) -> np.ndarray:
    scaled: np.ndarray = weight * x / np.sqrt((x**2).mean(-1, keepdims=True) + A.rms_norm_eps)
    return scaled


def heads_of(x: np.ndarray) -> np.ndarray:
    return x.reshape(*x.shape[:-1], -1, A.head_dim)


def rope(x: np.ndarray) -> np.ndarray:
    half = A.head_dim // 2
    angle = np.array(POSITIONS)[..., None, None] * A.rope_base ** (-np.arange(half) / half)
    pairs = heads_of(x)[..., :half] + 1j * heads_of(x)[..., half:]
    turned = pairs * np.exp(1j * angle)
    return np.concatenate([turned.real, turned.imag], axis=-1).reshape(x.shape)


def attend(q: np.ndarray, k: np.ndarray, v: np.ndarray) -> np.ndarray:
    group = A.num_heads // A.num_kv_heads
    k, v = (np.repeat(heads_of(x), group, axis=-2) for x in (k, v))
    scores = np.einsum("abihk,abjhk->abhij", heads_of(q), k) / math.sqrt(A.head_dim)
    segments = np.array(SEGMENTS)
    allowed = np.tril(np.ones((5, 5), bool)) & (segments[..., :, None] == segments[..., None, :])
    weights = np.exp(np.where(allowed[:, :, None], scores, -np.inf))
    weights /= weights.sum(-1, keepdims=True)
    output: np.ndarray = np.einsum("abhij,abjhk->abihk", weights, v).reshape(q.shape)
    return output


def plain_taps(p: dict[str, np.ndarray]) -> Taps:
    taps: Taps = {}

    def tap(name: str, value: np.ndarray) -> np.ndarray:
        taps[name] = value
        return value

    def linear(name: str, x: np.ndarray) -> np.ndarray:
        y: np.ndarray = x @ p[name + ".weight"].T + p.get(name + ".bias", 0.0)
        return y

    h = tap("embed", p["model.embed_tokens.weight"][np.array(IDS)])
    for number in range(A.num_layers):
        here, name = f"layers.{number}.", f"model.layers.{number}."
        a = tap(here + "input_norm", rms(h, p[name + "input_layernorm.weight"]))
        q, k, v = (tap(here + c, linear(f"{name}self_attn.{c}_proj", a)) for c in "qkv")
        q, k = tap(here + "q_rope", rope(q)), tap(here + "k_rope", rope(k))
        attention = tap(here + "attention", attend(q, k, v))
        out = tap(here + "attention_out", linear(name + "self_attn.o_proj", attention))
        h = tap(here + "middle", h + out)
        m = tap(here + "post_norm", rms(h, p[name + "post_attention_layernorm.weight"]))
        gate = tap(here + "gate", linear(name + "mlp.gate_proj", m))
        up = tap(here + "up", linear(name + "mlp.up_proj", m))
        act = tap(here + "act", gate / (1 + np.exp(-gate)) * up)
        h = tap(here + "out", h + tap(here + "down", linear(name + "mlp.down_proj", act)))
    logits = tap("logits", linear("lm_head", tap("norm", rms(h, p["model.norm.weight"]))))
    loss = np.zeros((3, 1, 5))
    for place in np.argwhere(np.array(LABELS) != -100):
        a, b, t = place.tolist()
        scores = logits[a, b, t - 1]
        loss[a, b, t] = np.log(np.exp(scores).sum()) - scores[LABELS[a][b][t]]
    tap("token_loss", loss)
    return taps


def placed(dtype: str, precision: str, attention: str = "eager") -> tuple[Trainer, State]:
    params = {name: jnp.asarray(x) for name, x in random_params(A, dtype).items()}
    optimizer = make_optimizer(config(), {name: x.shape for name, x in params.items()})
    trainer = Trainer(
        model=abstract_model(A),
        optimizer=optimizer,
        attention=attention,
        clip_norm=1.0,
        precision=PRECISIONS[precision],
        frozen={},
    )
    return trainer, State(params, optimizer.transformation.init(params))


def record(trainer: Trainer, state: State) -> DeepTrace:
    recorder = TapRecorder(
        model=trainer.model, attention=trainer.attention, precision=trainer.precision
    )
    return recorder.record(trainer.parameters(state), arrays())


def arrays() -> StepArrays:
    given = (IDS, SEGMENTS, POSITIONS, LABELS)
    return StepArrays(*(jnp.asarray(values, jnp.int32) for values in given))


def expected_row(name: str, values: np.ndarray) -> dict[str, Any]:
    is_real = np.array(SEGMENTS).reshape(3, 1, 5, *[1] * (values.ndim - 3)) != 0
    real = np.where(is_real, values, 0.0)
    return {
        "tap": name,
        "shape": list(values.shape),
        "norm": float(np.linalg.norm(real)),
        "mean": float(real.mean()),
        "max_abs": float(np.abs(real).max()),
        "sketch": plain_sketch(name, real),
    }


@pytest.mark.parametrize("attention", ["eager", "fused"])
def test_taps_come_in_data_flow_order_with_the_values_of_the_clauses(attention: str) -> None:
    trainer, state = placed("float64", "float64", attention)
    deep = record(trainer, state)
    taps = plain_taps(random_params(A, "float64"))
    assert [row["tap"] for row in deep.rows] == list(taps)
    for row in deep.rows:
        expected = expected_row(row["tap"], taps[row["tap"]])
        assert row["shape"] == expected["shape"], row["tap"]
        for field in ("norm", "mean", "max_abs"):
            assert row[field] == pytest.approx(expected[field], rel=1e-11, abs=1e-12), row["tap"]
        np.testing.assert_allclose(row["sketch"], expected["sketch"], rtol=1e-9, atol=1e-11)
    np.testing.assert_allclose(deep.token_loss, taps["token_loss"], rtol=1e-11, atol=1e-13)


def test_the_loss_of_the_step_is_the_mean_of_the_token_losses() -> None:
    trainer, state = placed("float64", "float64")
    deep = record(trainer, state)
    _, _, scalars = trainer.run(state, arrays(), 1e-3)
    num_targets = int((np.array(LABELS) != -100).sum())
    assert float(scalars.loss) == pytest.approx(deep.token_loss.sum() / num_targets, rel=1e-12)


def test_taps_of_a_narrow_run_are_of_rounded_values() -> None:
    trainer, state = placed("float32", "bfloat16")
    rows = {row["tap"]: row for row in record(trainer, state).rows}
    held = random_params(A, "float32")["model.embed_tokens.weight"][np.array(IDS)]
    rounded = jnp.asarray(held).astype(jnp.bfloat16).astype(jnp.float64)
    expected = expected_row("embed", np.asarray(rounded))
    assert rows["embed"]["norm"] == pytest.approx(expected["norm"], rel=1e-14)
    assert rows["embed"]["norm"] != pytest.approx(np.linalg.norm(held), rel=1e-8)
    largest = rows["logits"]["max_abs"]
    assert largest == float(jnp.asarray(largest).astype(jnp.bfloat16))


def test_what_is_not_finite_shows_as_itself_but_not_what_padding_is() -> None:
    trainer, state = placed("float64", "float64")
    weight = state.trainable["model.embed_tokens.weight"]
    broken = state._replace(
        trainable=state.trainable | {"model.embed_tokens.weight": weight.at[8].set(jnp.nan)}
    )
    rows = {row["tap"]: row for row in record(trainer, broken).rows}
    assert math.isnan(rows["embed"]["norm"])
    assert math.isnan(rows["embed"]["max_abs"])
    padding = state._replace(
        trainable=state.trainable | {"model.embed_tokens.weight": weight.at[0].set(jnp.nan)}
    )
    rows = {row["tap"]: row for row in record(trainer, padding).rows}
    assert math.isfinite(rows["embed"]["norm"])


def test_recording_adds_nothing_to_the_program_of_the_step() -> None:
    trainer, state = placed("float64", "float64")
    before = trainer.compiled_step(state, arrays()).call.as_text()
    record(trainer, state)
    fresh, state = placed("float64", "float64")
    assert fresh.compiled_step(state, arrays()).call.as_text() == before
    assert list(trainer.steps) == [(3, 1, 5)]
