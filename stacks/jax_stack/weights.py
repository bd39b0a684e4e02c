"""Checkpoints in the Hugging Face layout, read and written (S-12, S-13)."""

import hashlib
import json
import math
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from .errors import BadInput
from .safetensors import TensorFile, read_tensors, write_tensors

IGNORED_SUFFIX = "rotary_emb.inv_freq"
HEAD, EMBEDDING = "lm_head.weight", "model.embed_tokens.weight"


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


@dataclass(frozen=True, kw_only=True)
class Checkpoint:
    """A folder that was read: the architecture, the tensors as stored, the hashes of its files."""

    architecture: Architecture
    tensors: dict[str, np.ndarray]
    config_text: str
    config_sha256: str
    weights_sha256: dict[str, str]


def read_checkpoint(folder: Path) -> Checkpoint:
    """Reads `config.json` and the weights.

    Raises:
        BadInput: a file is missing or truncated, or a key of `config.json` is not what S-12 allows.
    """
    path = folder / "config.json"
    try:
        data = path.read_bytes()
        table = json.loads(data.decode("utf-8"))
    except OSError as error:
        raise BadInput(
            f"{path}: the model config cannot be read ({error.strerror}); check model.checkpoint"
        ) from error
    except (ValueError, RecursionError) as error:
        raise BadInput(
            f"{path}: the model config is not JSON in UTF-8; restore the file"
        ) from error
    if not isinstance(table, dict):
        raise BadInput(f"{path}: a model config is an object (S-12); restore the file")
    architecture = parse_architecture(table, path)
    tensors, hashes = _read_weights(folder)
    return Checkpoint(
        architecture=architecture,
        tensors=tensors,
        config_text=data.decode("utf-8"),
        config_sha256=hashlib.sha256(data).hexdigest(),
        weights_sha256=hashes,
    )


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


def _read_weights(folder: Path) -> tuple[dict[str, np.ndarray], dict[str, str]]:
    single, index = folder / "model.safetensors", folder / "model.safetensors.index.json"
    if single.exists():
        file = read_tensors(single)
        return file.tensors, {single.name: file.sha256}
    if not index.exists():
        raise BadInput(
            f"{folder}: a checkpoint has {single.name} or {index.name} (S-13), this one has neither"
        )
    try:
        data = index.read_bytes()
        places: dict[str, str] = json.loads(data)["weight_map"]
        shards = sorted(set(places.values()))
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise BadInput(
            f"{index}: the index is an object with the key weight_map: name to file (S-13)"
        ) from error
    if any(not isinstance(shard, str) or Path(shard).name != shard for shard in shards):
        raise BadInput(f"{index}: a shard is a file in the folder of the index (S-13)")
    files: dict[str, TensorFile] = {shard: read_tensors(folder / shard) for shard in shards}
    tensors: dict[str, np.ndarray] = {}
    for shard, file in files.items():
        for name, values in file.tensors.items():
            if places.get(name) != shard and not name.endswith(IGNORED_SUFFIX):
                raise BadInput(
                    f"{folder / shard}: it holds {name}, which the index places in "
                    f"{places.get(name)}"
                )
            tensors[name] = values
    for name, shard in places.items():
        if name not in tensors:
            raise BadInput(
                f"{folder / shard}: the index places {name} there, and it is missing; fetch it "
                "again"
            )
    hashes = {shard: file.sha256 for shard, file in files.items()}
    return tensors, {index.name: hashlib.sha256(data).hexdigest()} | hashes


def match_tensors(
    checkpoint: Checkpoint, shapes: Mapping[str, tuple[int, ...]], dtype: np.dtype
) -> dict[str, np.ndarray]:
    """The tensors that a model of these shapes has, rounded to nearest even to `dtype` (S-13).

    Raises:
        BadInput: a tensor is missing, unknown or of another shape, or a tied head differs from the
        embedding.
    """
    stored = {
        name: values
        for name, values in checkpoint.tensors.items()
        if not name.endswith(IGNORED_SUFFIX)
    }
    if checkpoint.architecture.tied and HEAD in stored:
        head, embedding = stored.pop(HEAD), stored.get(EMBEDDING)
        if embedding is None or not np.array_equal(_widened(head), _widened(embedding)):
            raise BadInput(
                f"the model is tied (S-13), but {HEAD} differs from {EMBEDDING}; remove it or "
                "untie the model"
            )
    for name in sorted(shapes.keys() - stored.keys()):
        raise BadInput(
            f"the checkpoint lacks {name} of shape {list(shapes[name])} (S-13); restore it"
        )
    for name in sorted(stored.keys() - shapes.keys()):
        raise BadInput(
            f"the checkpoint holds {name}, which the model does not have (S-13); remove it or "
            "mend config.json"
        )
    for name, shape in shapes.items():
        if stored[name].shape != shape:
            raise BadInput(
                f"{name} has the shape {list(stored[name].shape)}, the model needs {list(shape)} "
                "(S-13)"
            )
    with np.errstate(over="ignore"):  # beyond the range of float32 the nearest value is infinite
        return {name: np.array(stored[name], dtype=dtype) for name in shapes}


def _widened(values: np.ndarray) -> np.ndarray:
    return values.astype(np.float64)


def write_checkpoint(
    folder: Path,
    tensors: Mapping[str, np.ndarray],
    config_text: str,
    precision: str,
    copies: Mapping[str, bytes],
) -> None:
    """Writes `model.safetensors`, `config.json` in the run's precision, and `copies` (name ->
    bytes) (S-13).
    """
    folder.mkdir(mode=0o700, exist_ok=True)
    write_tensors(
        folder / "model.safetensors", tensors, {"format": "pt"}
    )  # loaders ask for the format
    table = json.loads(config_text)
    table["dtype"] = precision
    if "torch_dtype" in table:
        table["torch_dtype"] = precision
    files = {
        "config.json": (json.dumps(table, indent=2, ensure_ascii=False) + "\n").encode(),
        **copies,
    }
    for name, data in files.items():
        with open(
            os.open(folder / name, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb"
        ) as file:
            file.write(data)


def num_entries(shapes: Mapping[str, tuple[int, ...]]) -> int:
    """How many numbers tensors of these shapes hold together."""
    return sum(math.prod(shape) for shape in shapes.values())
