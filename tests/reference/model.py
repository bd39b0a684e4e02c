"""The model (S-12): forward pass and a backward pass written by hand.

B rows, T positions, D width, H query heads, G key/value heads, K head width, F feed-forward width,
V words. All arrays keep the dtype of the parameters; every forward piece returns what its backward
piece needs.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from tests.reference.checkpoint import EMBED, HEAD, NORM, ModelConfig
from tests.reference.loss import Floats
from tests.reference.optimizer import Tensors

Ints = npt.NDArray[np.integer[Any]]
Bools = npt.NDArray[np.bool_]


def linear(x: Floats, params: Tensors, name: str) -> Floats:
    """x Wᵀ + b, with the bias where there is one."""
    y: Floats = x @ params[f"{name}.weight"].T
    if f"{name}.bias" in params:
        y += params[f"{name}.bias"]
    return y


def linear_back(dy: Floats, x: Floats, params: Tensors, grads: Tensors, name: str) -> Floats:
    """Adds to the gradients of W and b; the gradient of x."""
    flat_dy, flat_x = dy.reshape(-1, dy.shape[-1]), x.reshape(-1, x.shape[-1])
    grads[f"{name}.weight"] += flat_dy.T @ flat_x
    if f"{name}.bias" in params:
        grads[f"{name}.bias"] += flat_dy.sum(axis=0)
    dx: Floats = dy @ params[f"{name}.weight"]
    return dx


def rms(x: Floats, weight: Floats, epsilon: float) -> tuple[Floats, Floats, Floats]:
    """(w · n, n, 1 / root) with n = x / sqrt(mean(x²) + ε)."""
    mean = np.mean(x * x, axis=-1, keepdims=True)
    inverse = 1 / np.sqrt(mean + x.dtype.type(epsilon))
    normal = x * inverse
    scaled: Floats = weight * normal
    return scaled, normal, inverse


def rms_back(
    dy: Floats, normal: Floats, inverse: Floats, params: Tensors, grads: Tensors, name: str
) -> Floats:
    """Adds to the gradient of the weight; the gradient of x."""
    grads[name] += (dy * normal).reshape(-1, dy.shape[-1]).sum(axis=0)
    dn = dy * params[name]
    dx: Floats = inverse * (dn - normal * np.mean(dn * normal, axis=-1, keepdims=True))
    return dx


def rope_angles(positions: Ints, config: ModelConfig, like: Floats) -> tuple[Floats, Floats]:
    """cos and sin, each (B, 1, T, K/2), worked out in float64 or better and rounded to it."""
    number = like.dtype.type
    half = config.head_width // 2
    exponents = np.arange(half).astype(number) * number(-2) / number(config.head_width)
    angles = positions[:, None, :, None] * number(config.rope_base) ** exponents
    cos, sin = np.cos(angles).astype(np.float64), np.sin(angles).astype(np.float64)
    return cos.astype(number), sin.astype(number)


def rotate(x: Floats, cos: Floats, sin: Floats) -> Floats:
    """Turns the pairs (x_c, x_{c+K/2}) of the last axis; with -sin it turns back."""
    first, second = np.split(x, 2, axis=-1)
    return np.concatenate([first * cos - second * sin, second * cos + first * sin], axis=-1)


def heads(x: Floats, width: int) -> Floats:
    """(B, T, n·K) to (B, n, T, K): head j is columns jK..(j+1)K."""
    rows, length, total = x.shape
    return x.reshape(rows, length, total // width, width).transpose(0, 2, 1, 3)


def join(x: Floats) -> Floats:
    """(B, n, T, K) to (B, T, n·K)."""
    rows, count, length, width = x.shape
    return x.transpose(0, 2, 1, 3).reshape(rows, length, count * width)


def allowed(segments: Ints) -> Bools:
    """(B, 1, T, T): j <= i and the same segment."""
    length = segments.shape[1]
    causal = np.tril(np.ones((length, length), dtype=bool))
    same = segments[:, :, None] == segments[:, None, :]
    return np.asarray(causal & same)[:, None]


def softmax(scores: Floats, keep: Bools) -> Floats:
    """In the last axis, over the allowed entries alone."""
    shifted = np.where(keep, scores, -np.inf)
    shifted = np.exp(shifted - shifted.max(axis=-1, keepdims=True))
    probs: Floats = shifted / shifted.sum(axis=-1, keepdims=True)
    return probs


@dataclass(frozen=True, kw_only=True)
class Rows:
    """What a micro-batch gives the model, each (B, T)."""

    input_ids: Ints
    segments: Ints
    positions: Ints


class Model:
    """One forward pass and its backward pass; a new object for each micro-batch."""

    def __init__(self, config: ModelConfig, params: Tensors, rows: Rows) -> None:
        self.config, self.params, self.rows = config, params, rows
        like = params[EMBED]
        self.cos, self.sin = rope_angles(rows.positions, config, like)
        self.keep = allowed(rows.segments)
        self.scale = 1 / np.sqrt(like.dtype.type(config.head_width))
        self.groups = config.num_heads // config.num_kv_heads
        self.saved: list[dict[str, Floats]] = []  # of each layer
        self.last: dict[str, Floats] = {}  # of the final norm

    def forward(self) -> Floats:
        """Logits (B, T, V)."""
        h = self.params[EMBED][self.rows.input_ids]
        for layer in range(self.config.num_layers):
            saved: dict[str, Floats] = {}
            self.saved.append(saved)
            h = h + self.attention(h, f"model.layers.{layer}.", saved)
            h = h + self.feed_forward(h, f"model.layers.{layer}.", saved)
        out, normal, inverse = rms(h, self.params[NORM], self.config.epsilon)
        self.last = {"out": out, "normal": normal, "inverse": inverse}
        return out @ self.params[EMBED if self.config.tied else HEAD].T

    def attention(self, h: Floats, at: str, saved: dict[str, Floats]) -> Floats:
        """linear_o of the concatenated heads (B, T, D)."""
        width, at_norm = self.config.head_width, f"{at}input_layernorm.weight"
        a, saved["n1"], saved["r1"] = rms(h, self.params[at_norm], self.config.epsilon)
        q, k, v = (heads(linear(a, self.params, f"{at}self_attn.{p}_proj"), width) for p in "qkv")
        q, k = rotate(q, self.cos, self.sin), rotate(k, self.cos, self.sin)
        k, v = (np.repeat(x, self.groups, axis=1) for x in (k, v))  # (B, H, T, K)
        probs = softmax(q @ k.swapaxes(-1, -2) * self.scale, self.keep)  # (B, H, T, T)
        mixed = join(probs @ v)
        saved.update(a=a, q=q, k=k, v=v, probs=probs, mixed=mixed)
        return linear(mixed, self.params, f"{at}self_attn.o_proj")

    def feed_forward(self, h: Floats, at: str, saved: dict[str, Floats]) -> Floats:
        """down(silu(gate(m)) · up(m)) (B, T, D)."""
        at_norm = f"{at}post_attention_layernorm.weight"
        m, saved["n2"], saved["r2"] = rms(h, self.params[at_norm], self.config.epsilon)
        gate = linear(m, self.params, f"{at}mlp.gate_proj")
        up = linear(m, self.params, f"{at}mlp.up_proj")
        sigmoid = 1 / (1 + np.exp(-gate))
        saved.update(m=m, gate=gate, up=up, sigmoid=sigmoid)
        return linear(gate * sigmoid * up, self.params, f"{at}mlp.down_proj")

    def backward(self, dlogits: Floats) -> Tensors:
        """The gradient of every parameter for the gradient of the logits (B, T, V)."""
        grads = {name: np.zeros_like(values) for name, values in self.params.items()}
        head = EMBED if self.config.tied else HEAD
        flat = dlogits.reshape(-1, dlogits.shape[-1])
        out = self.last["out"]
        grads[head] += flat.T @ out.reshape(-1, out.shape[-1])
        dout = dlogits @ self.params[head]
        dh = rms_back(dout, self.last["normal"], self.last["inverse"], self.params, grads, NORM)
        for layer in reversed(range(self.config.num_layers)):
            dh = dh + self.feed_forward_back(dh, layer, grads)
            dh = dh + self.attention_back(dh, layer, grads)
        np.add.at(grads[EMBED], self.rows.input_ids, dh)
        return grads

    def feed_forward_back(self, dy: Floats, layer: int, grads: Tensors) -> Floats:
        """The gradient of the block's input h, through the block alone."""
        at, s = f"model.layers.{layer}.", self.saved[layer]
        active = s["gate"] * s["sigmoid"]
        inner = linear_back(dy, active * s["up"], self.params, grads, f"{at}mlp.down_proj")
        # silu' = σ(x) (1 + x (1 - σ(x)))
        slope = s["sigmoid"] * (1 + s["gate"] * (1 - s["sigmoid"]))
        dgate, dup = inner * s["up"] * slope, inner * active
        dm = linear_back(dgate, s["m"], self.params, grads, f"{at}mlp.gate_proj")
        dm = dm + linear_back(dup, s["m"], self.params, grads, f"{at}mlp.up_proj")
        name = f"{at}post_attention_layernorm.weight"
        return rms_back(dm, s["n2"], s["r2"], self.params, grads, name)

    def attention_back(self, dy: Floats, layer: int, grads: Tensors) -> Floats:
        """The gradient of the block's input h, through the block alone."""
        at, s = f"model.layers.{layer}.", self.saved[layer]
        dmixed = linear_back(dy, s["mixed"], self.params, grads, f"{at}self_attn.o_proj")
        dmixed = heads(dmixed, self.config.head_width)  # (B, H, T, K)
        dv: Floats = s["probs"].swapaxes(-1, -2) @ dmixed
        dprobs = dmixed @ s["v"].swapaxes(-1, -2)
        inner: Floats = np.sum(dprobs * s["probs"], axis=-1, keepdims=True)
        dscores = s["probs"] * (dprobs - inner) * self.scale
        dq, dk = dscores @ s["k"], dscores.swapaxes(-1, -2) @ s["q"]
        dk, dv = self.ungroup(dk), self.ungroup(dv)
        dq, dk = (rotate(x, self.cos, -self.sin) for x in (dq, dk))
        da: Floats = np.zeros_like(s["a"])
        for p, d in (("q", dq), ("k", dk), ("v", dv)):
            name = f"{at}self_attn.{p}_proj"
            da += linear_back(join(d), s["a"], self.params, grads, name)
        return rms_back(da, s["n1"], s["r1"], self.params, grads, f"{at}input_layernorm.weight")

    def ungroup(self, x: Floats) -> Floats:
        """(B, H, T, K) to (B, G, T, K): sums the query heads of one key/value head."""
        rows, _, length, width = x.shape
        summed: Floats = x.reshape(rows, -1, self.groups, length, width).sum(axis=2)
        return summed
