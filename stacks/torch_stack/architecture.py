"""`config.json` of a checkpoint: which models the contract covers (S-12).

D width, F feed-forward width, L layers, H query heads, G key/value heads, K head width,
V vocabulary. Keys that S-12 does not name are ignored.
"""

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from stacks.torch_stack.errors import BadInput


@dataclass(frozen=True, kw_only=True)
class ModelConfig:
    """What S-12 reads of `config.json`."""

    model_type: Literal["llama", "qwen2"]
    hidden_size: int  # D
    intermediate_size: int  # F
    num_layers: int  # L
    num_heads: int  # H
    num_kv_heads: int  # G
    head_dim: int  # K
    vocab_size: int  # V
    rms_norm_eps: float
    rope_base: float
    tied: bool
    attention_bias: bool

    @property
    def qkv_bias(self) -> bool:
        """Whether q, k and v have biases: always in qwen2, whatever `attention_bias` says."""
        return self.attention_bias or self.model_type == "qwen2"

    @property
    def output_bias(self) -> bool:
        """Whether o has one: in llama with `attention_bias` only."""
        return self.attention_bias and self.model_type == "llama"


def parse_model_config(source: bytes, path: Path) -> ModelConfig:
    """The bytes of `config.json` → its record; raises `BadInput` that names the key."""
    try:
        document = json.loads(source.decode("utf-8"))
    except (ValueError, RecursionError) as error:
        raise BadInput(f"S-12: {path} is not JSON; use the checkpoint's config.json") from error
    if not isinstance(document, dict):
        raise BadInput(f"S-12: {path} is not an object; use the checkpoint's config.json")
    read = _Reader(document, path)
    hidden_size, num_heads = read.size("hidden_size"), read.size("num_attention_heads")
    config = ModelConfig(
        model_type=read.model_type(),
        hidden_size=hidden_size,
        intermediate_size=read.size("intermediate_size"),
        num_layers=read.size("num_hidden_layers"),
        num_heads=num_heads,
        num_kv_heads=read.size("num_key_value_heads"),
        head_dim=read.head_dim(hidden_size, num_heads),
        vocab_size=read.size("vocab_size"),
        rms_norm_eps=read.positive("rms_norm_eps", document.get("rms_norm_eps")),
        rope_base=read.rope_base(),
        tied=read.flag("tie_word_embeddings", document.get("tie_word_embeddings")),
        attention_bias=read.flag("attention_bias", document.get("attention_bias") or False),
    )
    read.only("hidden_act", "silu")
    for key in ("mlp_bias", "use_sliding_window"):
        read.only(key, None, False)
    if read.value("attention_dropout") not in (None, 0) or (
        isinstance(read.value("attention_dropout"), bool)
    ):
        raise read.refuse("attention_dropout", "0 or absent")
    if config.num_heads % config.num_kv_heads:
        raise read.refuse("num_key_value_heads", f"a divisor of {num_heads}, the query heads")
    if config.head_dim % 2:
        raise BadInput(f"S-12: {path}: the head width {config.head_dim} is odd; RoPE needs pairs")
    return config


class _Reader:
    """Typed access to the document, with errors that name key and value."""

    def __init__(self, document: Mapping[str, Any], path: Path) -> None:
        self._document, self._path = document, path

    def refuse(self, key: str, allowed: str) -> BadInput:
        value = self._document.get(key)
        return BadInput(
            f"S-12: {self._path}: {key} = {json.dumps(value)}, but it must be {allowed}; "
            "use a model that the contract covers"
        )

    def value(self, key: str) -> Any:
        return self._document.get(key)

    def model_type(self) -> Literal["llama", "qwen2"]:
        value = self.value("model_type")
        if value == "llama":
            return "llama"
        if value == "qwen2":
            return "qwen2"
        raise self.refuse("model_type", '"llama" or "qwen2"')

    def size(self, key: str) -> int:
        value = self.value(key)
        if isinstance(value, bool) or not isinstance(value, int) or not 0 < value < 2**31:
            raise self.refuse(key, "an integer of at least 1 and below 2^31")
        return value

    def positive(self, key: str, value: object) -> float:
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise self.refuse(key, "a finite number above 0")
        try:
            number = float(value)
        except OverflowError:  # an integer beyond the range of float64
            number = math.inf
        if not (math.isfinite(number) and number > 0):
            raise self.refuse(key, "a finite number above 0")
        return number

    def flag(self, key: str, value: object) -> bool:
        if not isinstance(value, bool):
            raise self.refuse(key, "true or false")
        return value

    def only(self, key: str, *allowed: object) -> None:
        value = self.value(key)
        if not any(value is one or (isinstance(one, str) and value == one) for one in allowed):
            raise self.refuse(key, " or ".join(map(json.dumps, allowed)))

    def head_dim(self, hidden_size: int, num_heads: int) -> int:
        if self.value("head_dim") is not None:
            return self.size("head_dim")
        if hidden_size % num_heads:
            raise self.refuse("hidden_size", f"a multiple of {num_heads}, the heads, or head_dim")
        return hidden_size // num_heads

    def rope_base(self) -> float:
        """The RoPE base, after RoPE variants other than the plain one are refused."""
        scaling = self.value("rope_scaling")
        parameters = self.value("rope_parameters")
        for key, table in (("rope_scaling", scaling), ("rope_parameters", parameters)):
            if table is None:
                continue
            if not isinstance(table, dict):
                raise self.refuse(key, "an object or null")
            kinds = [table[name] for name in ("rope_type", "type") if table.get(name) is not None]
            if any(kind != "default" for kind in kinds) or (key == "rope_scaling" and not kinds):
                raise self.refuse(key, 'of the type "default"')
        top, inner = self.value("rope_theta"), (parameters or {}).get("rope_theta")
        if top is not None and inner is not None and top != inner:
            raise self.refuse("rope_theta", f"rope_parameters.rope_theta = {json.dumps(inner)}")
        if top is None and inner is None:
            raise self.refuse("rope_theta", "given, here or in rope_parameters")
        return self.positive("rope_theta", inner if top is None else top)
