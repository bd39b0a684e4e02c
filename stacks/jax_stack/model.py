"""The Llama-family decoder as Flax modules under Hugging Face names (S-12).

    B rows, T positions, D width, H query heads, G key/value heads, K head width, F feed-forward
    width, V vocabulary. A weight has the shape (out, in) of the checkpoint.

A module is made abstract (`abstract_model`), its parameters are read off it by name, and
`forward` puts arrays in their place: what the step computes with is what the module declares.
Modules hand on values in the dtype of their input; a parameter is rounded to it where it enters,
and every output once (S-19). What a deep trace records passes through `Context.tap` (S-28).
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx
from jaxtyping import Array, Bool, Float, Int

from .architecture import Architecture
from .attention import ATTENTIONS, HIGHEST
from .precision import Precision, round_to, wide_dtype, widen

Params = dict[str, Array]  # Hugging Face name -> array in the checkpoint's shape


def _empty(*shape: int) -> nnx.Param[Array]:
    return nnx.Param(jnp.zeros(shape))


class Linear(nnx.Module):
    """x Wᵀ + b."""

    def __init__(self, in_features: int, out_features: int, *, bias: bool) -> None:
        self.weight = _empty(out_features, in_features)
        if bias:
            self.bias = _empty(out_features)

    def __call__(self, x: Float[Array, "*B in"]) -> Float[Array, "*B out"]:
        """Applies the module."""
        y = product(x, self.weight[...])
        if hasattr(self, "bias"):
            y = y + widen(round_to(self.bias[...], x.dtype))
        return round_to(y, x.dtype)


def product(x: Float[Array, "*B in"], weight: Float[Array, "out in"]) -> Float[Array, "*B out"]:
    """x Wᵀ, accumulated in float32 or wider and not rounded yet."""
    return jnp.einsum(
        "...i,oi->...o",
        x,
        round_to(weight, x.dtype),
        precision=HIGHEST,
        preferred_element_type=wide_dtype(x.dtype),
    )


class Embedding(nnx.Module):
    """A table of V rows."""

    def __init__(self, num_rows: int, features: int) -> None:
        self.weight = _empty(num_rows, features)

    def __call__(self, ids: Int[Array, "B T"], dtype: np.dtype) -> Float[Array, "B T D"]:
        """The rows of `ids`, in `dtype`."""
        return round_to(self.weight[...][ids], dtype)


class RMSNorm(nnx.Module):
    """w · (x / sqrt(mean(x²) + ε)); the quotient is rounded before it is multiplied by w."""

    def __init__(self, features: int, epsilon: float) -> None:
        self.weight = _empty(features)
        self.epsilon = epsilon

    def __call__(self, x: Float[Array, "*B D"]) -> Float[Array, "*B D"]:
        """Applies the module."""
        wide = widen(x)
        mean_square = jnp.mean(jnp.square(wide), axis=-1, keepdims=True)
        normalised = round_to(wide / jnp.sqrt(mean_square + self.epsilon), x.dtype)
        return multiply(round_to(self.weight[...], x.dtype), normalised)


class Attention(nnx.Module):
    """Grouped-query attention with rotary positions."""

    def __init__(self, a: Architecture) -> None:
        self.q_proj = Linear(a.hidden_size, a.num_heads * a.head_dim, bias=a.qkv_bias)
        self.k_proj = Linear(a.hidden_size, a.num_kv_heads * a.head_dim, bias=a.qkv_bias)
        self.v_proj = Linear(a.hidden_size, a.num_kv_heads * a.head_dim, bias=a.qkv_bias)
        self.o_proj = Linear(a.num_heads * a.head_dim, a.hidden_size, bias=a.output_bias)
        self.head_dim = a.head_dim

    def __call__(self, x: Float[Array, "B T D"], context: "Context") -> Float[Array, "B T D"]:
        """Applies the module."""
        projections = (self.q_proj, self.k_proj, self.v_proj)
        q, k, v = (
            self._heads(context.tap(name, projection(x)))
            for name, projection in zip("qkv", projections, strict=True)
        )
        q = context.tap("q_rope", rotate(q, context.cos, context.sin))
        k = context.tap("k_rope", rotate(k, context.cos, context.sin))
        output = context.tap("attention", ATTENTIONS[context.attention](q, k, v, context.allowed))
        return context.tap("attention_out", self.o_proj(output.reshape(*x.shape[:2], -1)))

    def _heads(self, x: Float[Array, "B T HK"]) -> Float[Array, "B T H K"]:
        return x.reshape(*x.shape[:2], -1, self.head_dim)


class FeedForward(nnx.Module):
    """down(silu(gate(x)) * up(x))."""

    def __init__(self, a: Architecture) -> None:
        self.gate_proj = Linear(a.hidden_size, a.intermediate_size, bias=False)
        self.up_proj = Linear(a.hidden_size, a.intermediate_size, bias=False)
        self.down_proj = Linear(a.intermediate_size, a.hidden_size, bias=False)

    def __call__(self, x: Float[Array, "B T D"], context: "Context") -> Float[Array, "B T D"]:
        """Applies the module."""
        activated = silu(context.tap("gate", self.gate_proj(x)))
        up = context.tap("up", self.up_proj(x))
        return context.tap("down", self.down_proj(context.tap("act", multiply(activated, up))))


class Layer(nnx.Module):
    """Attention and feed-forward, each after a norm and added to what it was given."""

    def __init__(self, a: Architecture) -> None:
        self.input_layernorm = RMSNorm(a.hidden_size, a.rms_norm_eps)
        self.self_attn = Attention(a)
        self.post_attention_layernorm = RMSNorm(a.hidden_size, a.rms_norm_eps)
        self.mlp = FeedForward(a)

    def __call__(self, x: Float[Array, "B T D"], context: "Context") -> Float[Array, "B T D"]:
        """Applies the module."""
        a = context.tap("input_norm", self.input_layernorm(x))
        h = context.tap("middle", add(x, self.self_attn(a, context)))
        m = context.tap("post_norm", self.post_attention_layernorm(h))
        return context.tap("out", add(h, self.mlp(m, context)))


class Decoder(nnx.Module):
    """Embedding, layers, norm."""

    def __init__(self, a: Architecture) -> None:
        self.embed_tokens = Embedding(a.vocab_size, a.hidden_size)
        self.layers = nnx.List([Layer(a) for _ in range(a.num_layers)])
        self.norm = RMSNorm(a.hidden_size, a.rms_norm_eps)

    def __call__(self, input_ids: Int[Array, "B T"], context: "Context") -> Float[Array, "B T D"]:
        """Applies the module."""
        h = context.tap("embed", self.embed_tokens(input_ids, context.dtype))
        for number, layer in enumerate(self.layers):
            h = layer(h, context.within(f"layers.{number}."))
        return context.tap("norm", self.norm(h))


class LanguageModel(nnx.Module):
    """A decoder and its head; a tied model's head is the embedding."""

    def __init__(self, a: Architecture) -> None:
        self.model = Decoder(a)
        if not a.tied:
            self.lm_head = Linear(a.hidden_size, a.vocab_size, bias=False)
        self.architecture = a

    def hidden(self, input_ids: Int[Array, "B T"], context: "Context") -> Float[Array, "B T D"]:
        """The normalised output of the last layer."""
        return self.model(input_ids, context)

    def logits(self, hidden: Float[Array, "B T D"]) -> Float[Array, "B T V"]:
        """Scores of every token as the next one."""
        if self.architecture.tied:
            return round_to(product(hidden, self.model.embed_tokens.weight[...]), hidden.dtype)
        return self.lm_head(hidden)


@dataclass(frozen=True, kw_only=True)
class Context:
    """What all layers share.

    Attributes:
        allowed: `allowed[b, i, j]`: position i sees j.
        dtype: of the values that modules hand on.
        taps: name -> value of everything that passed `tap` (B, T, width); None: nothing is kept.
        prefix: of the names, where the context is that of a layer.
    """

    cos: Float[Array, "B T half"]
    sin: Float[Array, "B T half"]
    allowed: Bool[Array, "B T T"]
    attention: str
    dtype: np.dtype
    taps: Params | None = None
    prefix: str = ""

    def within(self, prefix: str) -> "Context":
        """The same, for a part whose names begin with `prefix`."""
        return replace(self, prefix=prefix)

    def tap(self, name: str, value: Float[Array, "B T *width"]) -> Float[Array, "B T *width"]:
        """`value` itself, kept on the way where taps are wanted (S-28); heads are concatenated."""
        if self.taps is not None:
            self.taps[self.prefix + name] = value.reshape(*value.shape[:2], -1)
        return value


def make_context(
    a: Architecture,
    segments: Int[Array, "B T"],
    positions: Int[Array, "B T"],
    attention: str,
    precision: Precision,
    taps: Params | None = None,
) -> Context:
    """Rotary tables, from float64 rounded once, and the causal mask in segments (S-12)."""
    theta = a.rope_base ** (-2 * np.arange(a.head_dim // 2, dtype=np.float64) / a.head_dim)
    angles = positions[..., None].astype(jnp.float64) * theta
    length = segments.shape[1]
    causal = jnp.tril(jnp.ones((length, length), dtype=bool))
    return Context(
        cos=jnp.cos(angles).astype(precision.wide),
        sin=jnp.sin(angles).astype(precision.wide),
        allowed=causal & (segments[:, :, None] == segments[:, None, :]),
        attention=attention,
        dtype=precision.activation,
        taps=taps,
    )


def add(x: Float[Array, "*shape"], y: Float[Array, "*shape"]) -> Float[Array, "*shape"]:
    """x + y, rounded once."""
    return round_to(widen(x) + widen(y), x.dtype)


def multiply(x: Float[Array, "*#shape"], y: Float[Array, "*#shape"]) -> Float[Array, "*#shape"]:
    """x · y, rounded once."""
    return round_to(widen(x) * widen(y), x.dtype)


def silu(x: Float[Array, "*shape"]) -> Float[Array, "*shape"]:
    """x / (1 + exp(-x)), rounded once."""
    gate = widen(x)
    return round_to(gate * jax.nn.sigmoid(gate), x.dtype)


def rotate(
    x: Float[Array, "B T H K"], cos: Float[Array, "B T half"], sin: Float[Array, "B T half"]
) -> Float[Array, "B T H K"]:
    """RoPE over halves, not neighbours: the pair of x_c is x_{c+K/2} (S-12)."""
    first, second = jnp.split(widen(x), 2, axis=-1)
    cos, sin = cos[:, :, None], sin[:, :, None]  # the same for every head
    rotated = jnp.concatenate([first * cos - second * sin, second * cos + first * sin], axis=-1)
    return round_to(rotated, x.dtype)


def abstract_model(architecture: Architecture) -> LanguageModel:
    """The module with shapes in place of arrays."""
    model: LanguageModel = nnx.eval_shape(lambda: LanguageModel(architecture))
    return model


def parameter_shapes(model: LanguageModel) -> dict[str, tuple[int, ...]]:
    """Hugging Face name -> shape of every parameter that the module declares, a tied head once."""
    flat = nnx.to_flat_state(nnx.state(model, nnx.Param))
    return {".".join(map(str, path)): tuple(variable.shape) for path, variable in flat}


def with_parameters(model: LanguageModel, params: Mapping[str, Array]) -> LanguageModel:
    """The module with the arrays of `params` in place of its own."""
    graph, state = nnx.split(model)
    flat = [
        (path, variable.replace(params[".".join(map(str, path))]))
        for path, variable in nnx.to_flat_state(state)
    ]
    return nnx.merge(graph, nnx.from_flat_state(flat))


def forward(
    model: LanguageModel,
    params: Mapping[str, Array],
    input_ids: Int[Array, "B T"],
    segments: Int[Array, "B T"],
    positions: Int[Array, "B T"],
    attention: str,
    precision: Precision,
    taps: Params | None = None,
) -> Float[Array, "B T V"]:
    """The logits of a micro-batch; `taps` is filled with what S-28 names, if it is given."""
    live = with_parameters(model, params)
    context = make_context(model.architecture, segments, positions, attention, precision, taps)
    return context.tap("logits", live.logits(live.hidden(input_ids, context)))
