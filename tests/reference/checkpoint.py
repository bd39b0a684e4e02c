"""Checkpoints (S-13): `config.json` and its tensors, names and shapes checked.

D width, F feed-forward width, H query heads, G key/value heads, K head width, L layers, V words.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tests.reference import tensorfile
from tests.reference.errors import RefusedError, require
from tests.reference.tensorfile import Tensor

EMBED, HEAD, NORM = "model.embed_tokens.weight", "lm_head.weight", "model.norm.weight"
REQUIRED = {
    "hidden_size": "width",
    "intermediate_size": "feed_forward",
    "num_hidden_layers": "num_layers",
    "num_attention_heads": "num_heads",
    "num_key_value_heads": "num_kv_heads",
    "vocab_size": "vocab_size",
    "rms_norm_eps": "epsilon",
    "tie_word_embeddings": "tied",
}
IGNORED = "rotary_emb.inv_freq"
ONLY = {"mlp_bias": False, "use_sliding_window": False, "attention_dropout": 0}


@dataclass(frozen=True, kw_only=True)
class ModelConfig:
    """The numbers of S-12."""

    width: int
    feed_forward: int
    num_layers: int
    num_heads: int
    num_kv_heads: int
    head_width: int
    vocab_size: int
    epsilon: float
    rope_base: float
    tied: bool
    biases: str  # which projections of attention have one: "", "qkv" or "qkvo"


def rope_base(record: Mapping[str, Any]) -> float:
    """The base, from either place or from both; scaled kinds are refused."""
    scaling = record.get("rope_scaling") or {}
    parameters = record.get("rope_parameters") or {}
    for where, kind in (
        ("rope_scaling", scaling.get("rope_type", scaling.get("type", "default"))),
        ("rope_parameters", parameters.get("rope_type", "default")),
    ):
        require(
            kind in ("default", None), f"config.json: {where} is {kind!r}, only default is known"
        )
    places = (record.get("rope_theta"), parameters.get("rope_theta"))
    bases = {float(base) for base in places if base is not None}
    require(bases != set(), "config.json: rope_theta is missing")
    require(len(bases) == 1, f"config.json: two values of rope_theta, {places}")
    return bases.pop()


def parse_config(record: Mapping[str, Any]) -> ModelConfig:
    """S-12's reading of `config.json`; other keys are ignored."""
    kind = record.get("model_type")
    require(kind in ("llama", "qwen2"), f"config.json: model_type {kind!r} is not known")
    missing = [key for key in REQUIRED if record.get(key) is None]
    require(not missing, f"config.json: missing {missing}")
    require(record.get("hidden_act") == "silu", "config.json: hidden_act must be silu")
    for key, only in ONLY.items():
        value = record.get(key)
        require(value is None or value == only, f"config.json: {key} is {value!r}, only {only}")
    values: dict[str, Any] = {name: record[key] for key, name in REQUIRED.items()}
    heads, kv_heads = values["num_heads"], values["num_kv_heads"]
    width = record.get("head_dim")
    width = values["width"] // heads if width is None else width
    require(heads % kv_heads == 0, f"config.json: {heads} heads are no multiple of {kv_heads}")
    require(width % 2 == 0, f"config.json: head width {width} is odd")
    biases = "qkv" if kind == "qwen2" else ("qkvo" if record.get("attention_bias") else "")
    return ModelConfig(head_width=width, rope_base=rope_base(record), biases=biases, **values)


def shapes(config: ModelConfig) -> dict[str, tuple[int, ...]]:
    """Name -> shape of every parameter, in the order of the forward pass."""
    c = config
    out = {"q": c.num_heads * c.head_width, "o": c.width}
    out["k"] = out["v"] = c.num_kv_heads * c.head_width
    found: dict[str, tuple[int, ...]] = {EMBED: (c.vocab_size, c.width)}
    for layer in range(c.num_layers):
        at = f"model.layers.{layer}."
        found[at + "input_layernorm.weight"] = (c.width,)
        for p in "qkvo":
            inside = out["q"] if p == "o" else c.width
            found[f"{at}self_attn.{p}_proj.weight"] = (out[p], inside)
            if p in c.biases:
                found[f"{at}self_attn.{p}_proj.bias"] = (out[p],)
        found[at + "post_attention_layernorm.weight"] = (c.width,)
        found[at + "mlp.gate_proj.weight"] = (c.feed_forward, c.width)
        found[at + "mlp.up_proj.weight"] = (c.feed_forward, c.width)
        found[at + "mlp.down_proj.weight"] = (c.width, c.feed_forward)
    found[NORM] = (c.width,)
    if not c.tied:
        found[HEAD] = (c.vocab_size, c.width)
    return found


def read_tensors(folder: Path) -> dict[str, Tensor]:
    """All tensors of the one file, or else of the shards, and only what the index lists."""
    single, index = folder / "model.safetensors", folder / "model.safetensors.index.json"
    if single.exists():
        return tensorfile.read(single.read_bytes(), single.name)
    require(index.exists(), f"{folder.name}: neither {single.name} nor {index.name}")
    names: dict[str, str] = json.loads(index.read_text(encoding="utf-8"))["weight_map"]
    tensors: dict[str, Tensor] = {}
    for shard in sorted(set(names.values())):
        require((folder / shard).exists(), f"{folder.name}: the shard {shard} is missing")
        held = tensorfile.read((folder / shard).read_bytes(), shard)
        wanted = {name for name, file in names.items() if file == shard}
        missing, unlisted = sorted(wanted - held.keys()), sorted(held.keys() - wanted)
        unlisted = [name for name in unlisted if not name.endswith(IGNORED)]
        require(not missing, f"{shard}: missing {missing}")
        require(not unlisted, f"{shard}: the index does not list {unlisted}")
        tensors |= held
    return tensors


def load(folder: Path, number: type[np.floating]) -> tuple[ModelConfig, dict[str, Tensor]]:
    """Configuration and parameters (in `number`). Raises RefusedError."""
    try:
        config = parse_config(json.loads((folder / "config.json").read_text(encoding="utf-8")))
    except FileNotFoundError:
        raise RefusedError(f"{folder.name}: config.json is missing") from None
    held = read_tensors(folder)
    held = {n: t for n, t in held.items() if not n.endswith(IGNORED)}
    expected = shapes(config)
    if config.tied and HEAD in held:
        head = held.pop(HEAD)
        same = EMBED in held and np.array_equal(head, held[EMBED])
        require(same, f"{HEAD} differs from the embedding of a tied model")
    missing, unknown = sorted(expected.keys() - held), sorted(held.keys() - expected)
    require(not missing, f"{folder.name}: missing tensors {missing}")
    require(not unknown, f"{folder.name}: unknown tensors {unknown}")
    for name, shape in expected.items():
        found = held[name].shape
        require(found == shape, f"{folder.name}: {name} has the shape {found}, not {shape}")
    return config, {name: held[name].astype(number) for name in expected}
