"""`config.json` to the architecture of a model (S-12)."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .errors import BadInput


@dataclass(frozen=True, kw_only=True)
class Architecture:
    """The model that `config.json` describes (S-12)."""

    hidden_size: int  # D
    intermediate_size: int  # F
    num_layers: int  # L
    num_heads: int  # H
    num_kv_heads: int  # G
    head_dim: int  # K
    vocab_size: int  # V
    rope_base: float
    rms_norm_eps: float
    tied: bool
    qkv_bias: bool
    output_bias: bool


def parse_architecture(table: Mapping[str, Any], path: Path) -> Architecture:
    """The architecture that a `config.json` describes (S-12); BadInput names the key."""

    def refuse(key: str, wanted: str) -> BadInput:
        return BadInput(
            f"{path}: `{key}` must be {wanted} (S-12), not {json.dumps(table.get(key))[:80]}"
        )

    def size(key: str) -> int:
        value = table.get(key)
        if not isinstance(value, int) or isinstance(value, bool) or value < 1:
            raise refuse(key, "an integer of at least 1")
        return value

    def flag(key: str, absent: bool | None = None) -> bool:
        value = absent if table.get(key) is None else table[key]
        if not isinstance(value, bool):
            raise refuse(key, "true or false")
        return value

    model_type = table.get("model_type")
    if model_type not in ("llama", "qwen2"):
        raise refuse("model_type", '"llama" or "qwen2"')
    if table.get("hidden_act") != "silu":
        raise refuse("hidden_act", '"silu"')
    for key in ("mlp_bias", "use_sliding_window"):
        if flag(key, absent=False):
            raise refuse(key, "false or absent")
    dropout = table.get("attention_dropout")
    if dropout is not None and (isinstance(dropout, bool) or dropout != 0):
        raise refuse("attention_dropout", "0 or absent")
    epsilon = table.get("rms_norm_eps")
    if not isinstance(epsilon, int | float) or isinstance(epsilon, bool):
        raise refuse("rms_norm_eps", "a number")
    num_heads, num_kv_heads = size("num_attention_heads"), size("num_key_value_heads")
    head_dim = (
        size("head_dim") if table.get("head_dim") is not None else size("hidden_size") // num_heads
    )
    if table.get("head_dim") is None and head_dim * num_heads != size("hidden_size"):
        raise refuse(
            "hidden_size",
            f"a multiple of num_attention_heads ({num_heads}) when head_dim is absent",
        )
    if num_heads % num_kv_heads:
        raise refuse("num_attention_heads", f"a multiple of num_key_value_heads ({num_kv_heads})")
    if head_dim % 2:
        raise refuse("head_dim", f"even (it is {head_dim})")
    bias = flag("attention_bias", absent=False)
    return Architecture(
        hidden_size=size("hidden_size"),
        intermediate_size=size("intermediate_size"),
        num_layers=size("num_hidden_layers"),
        num_heads=num_heads,
        num_kv_heads=num_kv_heads,
        head_dim=head_dim,
        vocab_size=size("vocab_size"),
        rope_base=_rope_base(table, path),
        rms_norm_eps=float(epsilon),
        tied=flag("tie_word_embeddings"),
        qkv_bias=bias or model_type == "qwen2",
        output_bias=bias and model_type == "llama",
    )


def _rope_base(table: Mapping[str, Any], path: Path) -> float:
    """`rope_theta`, at the top or in `rope_parameters`; any kind of RoPE but the default is
    refused.
    """
    parameters = table.get("rope_parameters") or {}
    scaling = table.get("rope_scaling")
    if not isinstance(parameters, dict) or parameters.get("rope_type") not in (None, "default"):
        raise BadInput(f'{path}: `rope_parameters.rope_type` must be "default" or absent (S-12)')
    if scaling is not None:
        kind = scaling.get("rope_type", scaling.get("type")) if isinstance(scaling, dict) else None
        if kind != "default":
            raise BadInput(f"{path}: `rope_scaling` must be null or of type default (S-12)")
    bases = [
        base for base in (table.get("rope_theta"), parameters.get("rope_theta")) if base is not None
    ]
    if not bases or any(
        isinstance(base, bool) or not isinstance(base, int | float) for base in bases
    ):
        raise BadInput(
            f"{path}: `rope_theta` or `rope_parameters.rope_theta` must be a number (S-12)"
        )
    if bases[0] != bases[-1]:
        raise BadInput(
            f"{path}: `rope_theta` is {bases[0]} and `rope_parameters.rope_theta` {bases[-1]}; "
            "keep one"
        )
    return float(bases[0])
