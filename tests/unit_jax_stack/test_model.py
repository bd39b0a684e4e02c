"""Judge: S-12 written out in NumPy float64, one position and one head at a time."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from stacks.jax_stack.architecture import Architecture
from stacks.jax_stack.attention import ATTENTIONS
from stacks.jax_stack.model import abstract_model, forward, parameter_shapes
from stacks.jax_stack.precision import PRECISIONS

F64 = PRECISIONS["float64"]


def architecture(**changes: object) -> Architecture:
    sizes: dict[str, object] = {
        "hidden_size": 12,
        "intermediate_size": 20,
        "num_layers": 2,
        "num_heads": 4,
        "num_kv_heads": 2,
        "head_dim": 6,
        "vocab_size": 17,
        "rope_base": 1000.0,
        "rms_norm_eps": 1e-3,
        "tied": False,
        "qkv_bias": True,
        "output_bias": True,
    }
    return Architecture(**(sizes | changes))  # type: ignore[arg-type]


def random_params(a: Architecture, dtype: str = "float64") -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    shapes = parameter_shapes(abstract_model(a))
    return {name: (rng.normal(size=shape) * 0.5).astype(dtype) for name, shape in shapes.items()}


def rms(x: np.ndarray, w: np.ndarray, epsilon: float) -> np.ndarray:
    scaled: np.ndarray = w * (x / np.sqrt((x**2).mean() + epsilon))
    return scaled


def rotate(x: np.ndarray, position: int, base: float) -> np.ndarray:
    half = len(x) // 2
    result = np.empty_like(x)
    for c in range(half):
        angle = position * base ** (-2 * c / len(x))
        result[c] = x[c] * math.cos(angle) - x[c + half] * math.sin(angle)
        result[c + half] = x[c + half] * math.cos(angle) + x[c] * math.sin(angle)
    return result


def plain_logits(
    a: Architecture,
    p: dict[str, np.ndarray],
    ids: list[int],
    segments: list[int],
    positions: list[int],
) -> np.ndarray:
    """The logits of one row."""

    def linear(name: str, x: np.ndarray) -> np.ndarray:
        y: np.ndarray = p[f"{name}.weight"] @ x + p.get(f"{name}.bias", 0.0)
        return y

    k, group = a.head_dim, a.num_heads // a.num_kv_heads
    h = [p["model.embed_tokens.weight"][i] for i in ids]
    for layer in range(a.num_layers):
        name = f"model.layers.{layer}."
        x = [rms(v, p[name + "input_layernorm.weight"], a.rms_norm_eps) for v in h]
        q, key, value = (
            [list(linear(f"{name}self_attn.{c}_proj", v).reshape(-1, k)) for v in x] for c in "qkv"
        )
        for heads in (q, key):
            for t, position in enumerate(positions):
                heads[t] = [rotate(head, position, a.rope_base) for head in heads[t]]
        for i in range(len(ids)):
            seen = [j for j in range(i + 1) if segments[j] == segments[i]]
            output = []
            for n in range(a.num_heads):
                scores = np.array([q[i][n] @ key[j][n // group] / math.sqrt(k) for j in seen])
                weights = np.exp(scores - scores.max())
                weights /= weights.sum()
                output.append(
                    sum(w * value[j][n // group] for w, j in zip(weights, seen, strict=True))
                )
            h[i] = h[i] + linear(f"{name}self_attn.o_proj", np.concatenate(output))
        for i, v in enumerate(h):
            m = rms(v, p[name + "post_attention_layernorm.weight"], a.rms_norm_eps)
            gate = linear(name + "mlp.gate_proj", m)
            inner = gate / (1 + np.exp(-gate)) * linear(name + "mlp.up_proj", m)
            h[i] = v + linear(name + "mlp.down_proj", inner)
    head = p["model.embed_tokens.weight" if a.tied else "lm_head.weight"]
    return np.array([head @ rms(v, p["model.norm.weight"], a.rms_norm_eps) for v in h])


IDS = [[3, 1, 4, 1, 5, 9, 2, 0], [6, 5, 3, 5, 0, 0, 0, 0]]
SEGMENTS = [[1, 1, 1, 2, 2, 2, 2, 0], [0, 0, 1, 1, 0, 0, 0, 0]]
POSITIONS = [[0, 1, 2, 0, 1, 2, 3, 0], [0, 0, 0, 1, 0, 0, 0, 0]]


def logits_of(a: Architecture, params: dict[str, np.ndarray], attention: str) -> np.ndarray:
    ids, segments, positions = (jnp.asarray(x, jnp.int32) for x in (IDS, SEGMENTS, POSITIONS))
    live = {name: jnp.asarray(value) for name, value in params.items()}
    model = abstract_model(a)
    compute = jax.jit(lambda p: forward(model, p, ids, segments, positions, attention, F64))
    return np.asarray(compute(live))


@pytest.mark.parametrize("attention", ["eager", "fused"])
@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"tied": True, "qkv_bias": False, "output_bias": False},
        {"num_kv_heads": 4, "head_dim": 2},
    ],
)
def test_logits_are_those_of_the_clause(attention: str, changes: dict[str, object]) -> None:
    a = architecture(**changes)
    params = random_params(a)
    found = logits_of(a, params, attention)
    for b in range(2):
        expected = plain_logits(a, params, IDS[b], SEGMENTS[b], POSITIONS[b])
        np.testing.assert_allclose(found[b], expected, rtol=1e-11, atol=1e-12)


def test_a_tied_model_declares_no_head_and_names_are_those_of_the_layout() -> None:
    tied, untied = (
        set(parameter_shapes(abstract_model(architecture(tied=t)))) for t in (True, False)
    )
    assert untied - tied == {"lm_head.weight"}
    assert "model.layers.1.self_attn.o_proj.bias" in tied
    assert "model.layers.0.self_attn.q_proj.bias" not in parameter_shapes(
        abstract_model(architecture(qkv_bias=False))
    )


def test_shapes_are_out_by_in() -> None:
    shapes = parameter_shapes(abstract_model(architecture()))
    assert shapes["model.layers.0.self_attn.k_proj.weight"] == (12, 12)
    assert shapes["model.layers.0.self_attn.q_proj.weight"] == (24, 12)
    assert shapes["model.layers.0.mlp.down_proj.weight"] == (12, 20)


@pytest.mark.parametrize(("length", "dtype"), [(130, "float64"), (64, "float32")])
def test_both_attentions_and_their_gradients_agree(length: int, dtype: str) -> None:
    rng = np.random.default_rng(1)
    q, k, v = (jnp.asarray(rng.normal(size=(2, length, heads, 6)), dtype) for heads in (4, 2, 2))
    segments = jnp.asarray(np.sort(rng.integers(0, 3, (2, length)), axis=1))
    allowed = jnp.tril(jnp.ones((length, length), bool)) & (
        segments[:, :, None] == segments[:, None]
    )

    def value(name: str, q: jax.Array, k: jax.Array, v: jax.Array) -> jax.Array:
        return jnp.sum(jnp.sin(3 * ATTENTIONS[name](q, k, v, allowed)))

    tolerance = 1e-11 if dtype == "float64" else 2e-4
    compute = jax.jit(jax.grad(value, argnums=(1, 2, 3)), static_argnums=0)
    grads = [compute(name, q, k, v) for name in ("eager", "fused")]
    assert grads[1][0].dtype == dtype
    for eager, fused in zip(*grads, strict=True):
        np.testing.assert_allclose(fused, eager, rtol=tolerance, atol=tolerance)


def test_silu_and_its_gradient_survive_large_inputs() -> None:
    a = architecture(num_layers=1)
    params = random_params(a)
    params["model.layers.0.mlp.gate_proj.weight"] *= 1e4
    live = {name: jnp.asarray(value) for name, value in params.items()}
    ids, segments, positions = (jnp.asarray(x, jnp.int32) for x in (IDS, SEGMENTS, POSITIONS))

    def total(p: dict[str, jax.Array]) -> jax.Array:
        return jnp.sum(forward(abstract_model(a), p, ids, segments, positions, "eager", F64))

    assert all(np.isfinite(np.asarray(g)).all() for g in jax.jit(jax.grad(total))(live).values())


def test_rotary_tables_are_float64_rounded_once() -> None:
    from stacks.jax_stack.model import make_context

    a = architecture(head_dim=64, rope_base=1e6)
    positions = jnp.array([[0, 1, 8191, 131071]], jnp.int32)
    context = make_context(a, positions, positions, "eager", PRECISIONS["float32"])
    angles = np.asarray(positions)[..., None] * 1e6 ** (-2 * np.arange(32) / 64)
    np.testing.assert_array_max_ulp(np.asarray(context.cos), np.cos(angles).astype(np.float32), 1)
    np.testing.assert_array_max_ulp(np.asarray(context.sin), np.sin(angles).astype(np.float32), 1)
