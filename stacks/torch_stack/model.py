"""The model: a Llama-family decoder in one precision, under Hugging Face names (S-12, S-19).

B rows, T positions, D width, H query heads, G key/value heads, K head width, F feed-forward
width, V vocabulary, R selected positions. In float64 and float32 every tensor has the dtype of
the parameters. In bfloat16 a parameter is rounded where it enters, and each value of S-12 is
rounded once, from arithmetic in float32.
"""

import math
from dataclasses import dataclass
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.func import functional_call

from stacks.torch_stack.architecture import ModelConfig
from stacks.torch_stack.precision import Precision


@dataclass(frozen=True, kw_only=True)
class Context:
    """What every layer needs of a micro-batch besides the activations."""

    cos: Tensor  # (B, 1, T, K/2)
    sin: Tensor  # (B, 1, T, K/2)
    bias: Tensor  # (B, 1, T, T): 0 where query i may see key j, else -inf


def linear(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """`x Wᵀ + b`, (..., in) → (..., out); bfloat16 is accumulated in float32, the bias too."""
    if x.dtype != torch.bfloat16:
        return F.linear(x, weight, bias)
    weight, bias = weight.bfloat16(), None if bias is None else bias.bfloat16()
    if x.is_cuda:  # its matrix products do just that
        return F.linear(x, weight, bias)
    # A product of two bfloat16 is exact in float32; kernels of the CPU differ in what they round
    wide = F.linear(x.float(), weight.float(), None if bias is None else bias.float())
    return wide.bfloat16()


class Linear(nn.Linear):
    """A projection that knows how bfloat16 is rounded."""

    def forward(self, x: Tensor) -> Tensor:
        """(..., in) → (..., out)."""
        return linear(x, self.weight, self.bias)


class RMSNorm(nn.Module):
    """`w · (x / sqrt(mean(x²) + ε))` over the last dimension."""

    def __init__(self, size: int, eps: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(size))
        self.eps = eps

    def forward(self, x: Tensor) -> Tensor:
        """(..., D) → (..., D)."""
        if x.dtype == torch.bfloat16:
            normalised = F.rms_norm(x.float(), self.weight.shape, None, self.eps)
            return normalised.bfloat16() * self.weight.bfloat16()
        return F.rms_norm(x, self.weight.shape, self.weight, self.eps)


class Attention(nn.Module):
    """Causal attention within segments; query head n uses key/value head n // (H/G)."""

    def __init__(self, config: ModelConfig, implementation: Literal["eager", "fused"]) -> None:
        super().__init__()
        d, k = config.hidden_size, config.head_dim
        self.num_heads, self.num_kv_heads, self.head_dim = config.num_heads, config.num_kv_heads, k
        self.implementation = implementation
        self.q_proj = Linear(d, config.num_heads * k, bias=config.qkv_bias)
        self.k_proj = Linear(d, config.num_kv_heads * k, bias=config.qkv_bias)
        self.v_proj = Linear(d, config.num_kv_heads * k, bias=config.qkv_bias)
        self.o_proj = Linear(config.num_heads * k, d, bias=config.output_bias)
        self.q_rope, self.k_rope = Rope(), Rope()

    def forward(self, x: Tensor, context: Context) -> Tensor:
        """(B, T, D) → (B, T, D)."""
        b, t, _ = x.shape
        q = self.q_proj(x).view(b, t, self.num_heads, self.head_dim).transpose(1, 2)
        k = self.k_proj(x).view(b, t, self.num_kv_heads, self.head_dim).transpose(1, 2)
        v = self.v_proj(x).view(b, t, self.num_kv_heads, self.head_dim).transpose(1, 2)
        q, k = self.q_rope(q, context), self.k_rope(k, context)
        attend = _attend_fused if self.implementation == "fused" else _attend_eager
        out = attend(q, k, v, context.bias)  # (B, H, T, K)
        return self.o_proj(out.transpose(1, 2).reshape(b, t, -1))  # type: ignore[no-any-return]


class Rope(nn.Module):
    """`rotate` as a place in the model that can be observed (S-28)."""

    def forward(self, x: Tensor, context: Context) -> Tensor:
        """(B, heads, T, K) → (B, heads, T, K)."""
        return rotate(x, context)


def rotate(x: Tensor, context: Context) -> Tensor:
    """RoPE on halves: the pair (x_c, x_{c+K/2}) turns by pθ_c; (B, heads, T, K)."""
    dtype, x = x.dtype, x.to(context.cos.dtype)
    first, second = x.chunk(2, dim=-1)
    rotated = torch.cat(
        (
            first * context.cos - second * context.sin,
            second * context.cos + first * context.sin,
        ),
        dim=-1,
    )
    return rotated.to(dtype)


def _attend_eager(q: Tensor, k: Tensor, v: Tensor, bias: Tensor) -> Tensor:
    b, h, t, width = q.shape
    g, dtype = k.shape[1], q.dtype
    q, k, v = (one.to(bias.dtype) for one in (q, k, v))  # scores and softmax: float32 or wider
    # The H/G query heads of a key/value head lie side by side: they share one matrix product
    grouped = (q * width**-0.5).reshape(b, g, h // g * t, width)
    scores = (grouped @ k.transpose(-1, -2)).view(b, h, t, t) + bias
    weights = torch.softmax(scores, dim=-1).to(dtype).to(bias.dtype)
    return (weights.view(b, g, h // g * t, t) @ v).view(b, h, t, width).to(dtype)


def _attend_fused(q: Tensor, k: Tensor, v: Tensor, bias: Tensor) -> Tensor:
    shared, mask = q.shape[1] != k.shape[1], bias.to(q.dtype)
    return F.scaled_dot_product_attention(q, k, v, attn_mask=mask, enable_gqa=shared)


class MLP(nn.Module):
    """`down(silu(gate(x)) · up(x))`."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        d, f = config.hidden_size, config.intermediate_size
        self.gate_proj = Linear(d, f, bias=False)
        self.up_proj = Linear(d, f, bias=False)
        self.down_proj = Linear(f, d, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """(B, T, D) → (B, T, D)."""
        return self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x))  # type: ignore[no-any-return]


class Layer(nn.Module):
    """Attention and feed-forward, each on a normalised input and added to it."""

    def __init__(self, config: ModelConfig, implementation: Literal["eager", "fused"]) -> None:
        super().__init__()
        self.input_layernorm = RMSNorm(config.hidden_size, config.rms_norm_eps)
        self.self_attn = Attention(config, implementation)
        self.post_attention_layernorm = RMSNorm(config.hidden_size, config.rms_norm_eps)
        self.mlp = MLP(config)

    def forward(self, h: Tensor, context: Context) -> Tensor:
        """(B, T, D) → (B, T, D)."""
        h = h + self.self_attn(self.input_layernorm(h), context)
        return h + self.mlp(self.post_attention_layernorm(h))  # type: ignore[no-any-return]


class Decoder(nn.Module):
    """Embedding, layers and last norm; the names below `model.` of a checkpoint."""

    def __init__(self, config: ModelConfig, implementation: Literal["eager", "fused"]) -> None:
        super().__init__()
        self.embed_tokens = nn.Embedding(config.vocab_size, config.hidden_size)
        self.layers = nn.ModuleList(Layer(config, implementation) for _ in range(config.num_layers))
        self.norm = RMSNorm(config.hidden_size, config.rms_norm_eps)


class CausalLM(nn.Module):
    """The whole model. `num_positions` is the size of the RoPE tables: positions are below it.

    Built without storage: `weights` puts the checkpoint's tensors in. A tied model has no
    `lm_head`; its head is the embedding.
    """

    def __init__(
        self,
        config: ModelConfig,
        implementation: Literal["eager", "fused"],
        num_positions: int,
        precision: Precision,
    ) -> None:
        super().__init__()
        self.precision = precision
        with torch.device("meta"):
            self.model = Decoder(config, implementation)
            if not config.tied:
                self.lm_head = Linear(config.hidden_size, config.vocab_size, bias=False)
        self.rope_base = config.rope_base
        self.cos, self.sin = _rope_tables(
            config.rope_base, config.head_dim, num_positions, precision.wide
        )

    @property
    def head(self) -> Tensor:
        """The weight of the output head, (V, D)."""
        tied: Tensor = self.model.embed_tokens.weight
        return self.lm_head.weight if hasattr(self, "lm_head") else tied

    def hidden(self, input_ids: Tensor, segments: Tensor, positions: Tensor) -> Tensor:
        """Each (B, T) → the last layer's output before the last norm, (B, T, D)."""
        context = self._context(segments, positions)
        h = self._embed(input_ids)
        for layer in self.model.layers:
            h = layer(h, context)
        return h

    def _embed(self, input_ids: Tensor) -> Tensor:
        embed: nn.Embedding = self.model.embed_tokens
        if not self.precision.is_rounded:
            return embed(input_ids)  # type: ignore[no-any-return]
        # Rounding after the look-up is the same value, and adds up the gradient of a token in wide
        weight = embed.weight.to(self.precision.wide)
        looked_up: Tensor = functional_call(embed, {"weight": weight}, (input_ids,))
        return looked_up.to(self.precision.forward)

    def logits_of(self, hidden: Tensor) -> Tensor:
        """Output of the last layer, (..., D) → logits, (..., V). Each position alone."""
        if self.precision.is_rounded:
            return linear(self.model.norm(hidden), self.head)
        return F.linear(self.model.norm(hidden), self.head)

    def forward(self, input_ids: Tensor, segments: Tensor, positions: Tensor) -> Tensor:
        """Each (B, T) → logits of every position, (B, T, V)."""
        return self.logits_of(self.hidden(input_ids, segments, positions))

    def _context(self, segments: Tensor, positions: Tensor) -> Context:
        t = segments.shape[1]
        causal = torch.ones(t, t, dtype=torch.bool, device=segments.device).tril()
        allowed = (segments[:, :, None] == segments[:, None, :]) & causal
        bias = torch.zeros(allowed.shape, dtype=self.cos.dtype, device=segments.device)
        return Context(
            cos=self.cos[positions][:, None],
            sin=self.sin[positions][:, None],
            bias=bias.masked_fill(~allowed, -math.inf)[:, None],
        )


def _rope_tables(
    base: float, width: int, num_positions: int, dtype: torch.dtype
) -> tuple[Tensor, Tensor]:
    """cos and sin of `p · base^(-2c/K)` → each (P, K/2), computed in float64."""
    c = torch.arange(width // 2, dtype=torch.float64)
    theta = base ** (-2 * c / width)
    angles = torch.arange(num_positions, dtype=torch.float64)[:, None] * theta
    return angles.cos().to(dtype), angles.sin().to(dtype)
