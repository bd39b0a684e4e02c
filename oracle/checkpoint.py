"""The initial weights (S-12, S-13): `config.json`, and the names and shapes that it demands.

D width, F feed-forward width, H heads, G key/value heads, K head width, L layers, V vocabulary.
"""

from __future__ import annotations

import difflib
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from oracle.document import kind, loads
from oracle.errors import DataError
from oracle.files import read_bytes
from oracle.safetensors_header import StoredTensor, read_header

SIZES = (
    "hidden_size",
    "intermediate_size",
    "num_hidden_layers",
    "num_attention_heads",
    "num_key_value_heads",
    "vocab_size",
)
HEAD, EMBEDDING = "lm_head.weight", "model.embed_tokens.weight"


@dataclass(frozen=True, kw_only=True)
class Checkpoint:
    """A checkpoint folder whose files fit its config. `shapes` by name, a tied tensor once."""

    folder: Path
    config: Mapping[str, Any]
    shapes: Mapping[str, tuple[int, ...]]
    dtypes: tuple[str, ...]
    files: tuple[Path, ...]

    @property
    def num_parameters(self) -> int:
        """Entries of all parameters."""
        return sum(map(math.prod, self.shapes.values()))


def read_checkpoint(folder: Path, *, weights: bool = True) -> Checkpoint:
    """Check a checkpoint without reading a value; raises DataError with both values.

    Without `weights` its config alone is looked at: `files` and `dtypes` hold nothing of weights.
    """
    if not folder.is_dir():
        what = "is a file" if folder.exists() else "does not exist"
        raise DataError(f"checkpoint {folder} {what}; a folder with config.json is needed (S-13).")
    config = read_model_config(folder / "config.json")
    shapes = parameter_shapes(config)
    if not weights:
        files = (folder / "config.json",)
        return Checkpoint(folder=folder, config=config, shapes=shapes, dtypes=(), files=files)
    stored = stored_tensors(folder)
    if config["tie_word_embeddings"] and HEAD in stored:
        _check_tied(stored.pop(HEAD), stored.get(EMBEDDING))
    _check_names(folder, stored, shapes)
    return Checkpoint(
        folder=folder,
        config=config,
        shapes=shapes,
        dtypes=tuple(sorted({tensor.dtype for tensor in stored.values()})),
        files=(folder / "config.json", *_weight_files(folder)),
    )


def stored_tensors(folder: Path) -> dict[str, StoredTensor]:
    """Return where each tensor of a checkpoint folder lies; raises DataError."""
    stored: dict[str, StoredTensor] = {}
    places = _weight_map(folder)
    for path in _weight_files(folder):
        for name, tensor in read_header(path).items():
            if places is not None and places.get(name) != path.name:
                raise DataError(
                    f"{path} holds {name}, which the index does not place there (S-13)."
                )
            if not name.endswith("rotary_emb.inv_freq"):
                stored[name] = tensor
    return stored


def parameter_shapes(config: Mapping[str, Any]) -> dict[str, tuple[int, ...]]:
    """Return the shape of every parameter that a model of this config has (S-13)."""
    d, f = config["hidden_size"], config["intermediate_size"]
    h, g, k = config["num_attention_heads"], config["num_key_value_heads"], head_dim(config)
    shapes: dict[str, tuple[int, ...]] = {EMBEDDING: (config["vocab_size"], d)}
    qwen = config["model_type"] == "qwen2"
    biased = ("q", "k", "v") if qwen else tuple("qkvo") if config.get("attention_bias") else ()
    for layer in range(config["num_hidden_layers"]):
        prefix = f"model.layers.{layer}."
        shapes[prefix + "input_layernorm.weight"] = (d,)
        for part, rows in (("q", h * k), ("k", g * k), ("v", g * k), ("o", d)):
            columns = h * k if part == "o" else d
            shapes[f"{prefix}self_attn.{part}_proj.weight"] = (rows, columns)
            if part in biased:
                shapes[f"{prefix}self_attn.{part}_proj.bias"] = (rows,)
        shapes[prefix + "post_attention_layernorm.weight"] = (d,)
        shapes[prefix + "mlp.gate_proj.weight"] = (f, d)
        shapes[prefix + "mlp.up_proj.weight"] = (f, d)
        shapes[prefix + "mlp.down_proj.weight"] = (d, f)
    shapes["model.norm.weight"] = (d,)
    if not config["tie_word_embeddings"]:
        shapes[HEAD] = (config["vocab_size"], d)
    return shapes


def head_dim(config: Mapping[str, Any]) -> int:
    """Return K: `head_dim`, or D / H when it is absent."""
    return int(config.get("head_dim") or config["hidden_size"] // config["num_attention_heads"])


def described_model(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a model config says, under the names of the facts of a header (S-12, S-25)."""
    rope = config.get("rope_parameters") or {}
    base = config.get("rope_theta")
    return {
        "hidden_size": config["hidden_size"],
        "intermediate_size": config["intermediate_size"],
        "num_layers": config["num_hidden_layers"],
        "num_heads": config["num_attention_heads"],
        "num_kv_heads": config["num_key_value_heads"],
        "head_dim": head_dim(config),
        "vocab_size": config["vocab_size"],
        "rope_base": rope.get("rope_theta") if base is None else base,
        "rms_norm_eps": config["rms_norm_eps"],
        "tied": config["tie_word_embeddings"],
    }


def read_model_config(path: Path) -> dict[str, Any]:
    """Read and check a `config.json`; raises DataError (S-12)."""
    try:
        config = loads(read_bytes(path, "model config"))
    except ValueError as error:
        raise DataError(f"model config {path} is not JSON ({error}).") from None
    if not isinstance(config, dict):
        raise DataError(f"model config {path} is {kind(config)} and should be a table.")
    required = ("model_type", *SIZES, "rms_norm_eps", "tie_word_embeddings", "hidden_act")
    if missing := [key for key in required if key not in config]:
        raise DataError(f"{path} lacks {', '.join(missing)} (S-12).")
    for key in SIZES:
        if type(config[key]) is not int or config[key] < 1:
            raise DataError(f"{path}: {key} is {config[key]!r} and should be an integer >= 1.")
    _check_choices(path, config)
    _check_heads(path, config)
    return config


def _check_choices(path: Path, config: Mapping[str, Any]) -> None:
    rope = config.get("rope_parameters") or {}
    scaling = config.get("rope_scaling") or {}
    for key, table in (("rope_parameters", rope), ("rope_scaling", scaling)):
        if not isinstance(table, dict):
            raise DataError(f"{path}: {key} is {kind(table)} and should be a table (S-12).")
    scaling_type = scaling.get("rope_type", scaling.get("type", "default"))
    base, other = config.get("rope_theta"), rope.get("rope_theta")
    if base is not None and other is not None and base != other:
        raise DataError(
            f"{path}: rope_theta is {base!r} and rope_parameters.rope_theta is {other!r}; they "
            "must agree (S-12)."
        )
    base = other if base is None else base
    choices: tuple[tuple[str, object, tuple[object, ...]], ...] = (
        ("model_type", config["model_type"], ("llama", "qwen2")),
        ("hidden_act", config["hidden_act"], ("silu",)),
        ("tie_word_embeddings", config["tie_word_embeddings"], (True, False)),
        ("attention_bias", config.get("attention_bias"), (True, False, None)),
        ("mlp_bias", config.get("mlp_bias"), (False, None)),
        ("rope_scaling", scaling_type, ("default",)),
        ("rope_parameters.rope_type", rope.get("rope_type", "default"), ("default",)),
        ("use_sliding_window", config.get("use_sliding_window"), (False, None)),
        ("attention_dropout", config.get("attention_dropout"), (0, None)),
    )
    for key, value, allowed in choices:
        if value not in allowed:
            words = " or ".join(str(choice) for choice in allowed if choice is not None)
            raise DataError(f"{path}: {key} is {value!r} and should be {words} (S-12).")
    for key, value in (("rms_norm_eps", config["rms_norm_eps"]), ("rope_theta", base)):
        if isinstance(value, bool) or not isinstance(value, (int, float)) or value <= 0:
            raise DataError(f"{path}: {key} is {value!r} and should be a number above 0 (S-12).")


def _check_heads(path: Path, config: Mapping[str, Any]) -> None:
    d, h, g = (config[SIZES[i]] for i in (0, 3, 4))
    if h % g:
        raise DataError(
            f"{path}: num_attention_heads {h} is no multiple of num_key_value_heads {g} (S-12)."
        )
    if config.get("head_dim") is None and d % h:
        raise DataError(
            f"{path}: hidden_size {d} is not divisible by num_attention_heads {h}; "
            "state head_dim (S-12)."
        )
    if head_dim(config) % 2:
        raise DataError(
            f"{path}: the head width is {head_dim(config)} and must be even for RoPE (S-12)."
        )


def _weight_files(folder: Path) -> tuple[Path, ...]:
    places = _weight_map(folder)
    if places is None:
        return (folder / "model.safetensors",)
    return tuple(folder / shard for shard in sorted(set(places.values())))


def _weight_map(folder: Path) -> Mapping[str, str] | None:
    """Return the shard of each tensor by the index; None for a single file, which wins."""
    single, index = folder / "model.safetensors", folder / "model.safetensors.index.json"
    if single.exists():
        return None
    if not index.exists():
        raise DataError(f"checkpoint {folder} has neither {single.name} nor {index.name} (S-13).")
    try:
        places = dict(loads(read_bytes(index, "weight index"))["weight_map"])
    except (ValueError, KeyError, TypeError):
        raise DataError(f"{index} has no table weight_map (S-13).") from None
    if bad := next((n for n, shard in places.items() if Path(str(shard)).name != shard), None):
        raise DataError(f"{index} places {bad} in no file of its folder (S-13).")
    return places


def _check_names(
    folder: Path, stored: Mapping[str, StoredTensor], shapes: Mapping[str, tuple[int, ...]]
) -> None:
    missing = [name for name in shapes if name not in stored]
    unknown = [name for name in stored if name not in shapes]
    if missing:
        near = difflib.get_close_matches(missing[0], unknown, n=1, cutoff=0.8)
        hint = f"; the file has {near[0]}" if near else ""
        raise DataError(
            f"checkpoint {folder} lacks {len(missing)} tensors, first {missing[0]}{hint} (S-13)."
        )
    if unknown:
        raise DataError(
            f"{stored[unknown[0]].path} holds {unknown[0]}, which a model of this config.json does "
            "not have (S-13)."
        )
    for name, shape in shapes.items():
        if stored[name].shape != shape:
            raise DataError(
                f"{stored[name].path}: {name} has the shape {list(stored[name].shape)} and "
                f"config.json demands {list(shape)} (S-13)."
            )


def _check_tied(head: StoredTensor, embedding: StoredTensor | None) -> None:
    if embedding is None:
        return  # `_check_names` says that the embedding is missing
    same = head.dtype == embedding.dtype and head.shape == embedding.shape
    if not same or _bytes(head) != _bytes(embedding):
        raise DataError(
            f"{head.path}: {HEAD} differs from {EMBEDDING} and config.json ties them (S-13)."
        )


def _bytes(tensor: StoredTensor) -> bytes:
    with tensor.path.open("rb") as stream:
        stream.seek(tensor.start)
        return stream.read(tensor.end - tensor.start)
