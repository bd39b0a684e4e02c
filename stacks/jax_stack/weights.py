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

from .architecture import Architecture, parse_architecture
from .errors import BadInput
from .precision import castable
from .safetensors import TensorFile, read_tensors, write_tensors

IGNORED_SUFFIX = "rotary_emb.inv_freq"
HEAD, EMBEDDING = "lm_head.weight", "model.embed_tokens.weight"


@dataclass(frozen=True, kw_only=True)
class Checkpoint:
    """A folder that was read: the architecture, the tensors as stored, the hashes of its files."""

    architecture: Architecture
    tensors: dict[str, np.ndarray]
    config_text: str
    config_sha256: str
    weights_sha256: dict[str, str]

    def hashes(self) -> dict[str, Any]:
        """The part of the facts `files` that is the checkpoint's (S-25)."""
        return {"model_config": self.config_sha256, "weights": self.weights_sha256}


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
        places: dict[str, str] = json.loads(index.read_bytes())["weight_map"]
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
    return tensors, hashes


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
    stored = {name: castable(values, dtype) for name, values in stored.items()}
    with np.errstate(over="ignore"):  # beyond the range of float32 the nearest value is infinite
        return {name: np.array(stored[name], dtype=dtype) for name in shapes}


def _widened(values: np.ndarray) -> np.ndarray:
    return values.astype(np.float64)


def write_checkpoint(
    folder: Path,
    tensors: Mapping[str, np.ndarray],
    config_text: str,
    dtype: str,
    copies: Mapping[str, bytes],
) -> None:
    """Writes `model.safetensors`, a `config.json` that says `dtype`, and `copies` (name -> bytes)
    (S-13).
    """
    folder.mkdir(mode=0o700, exist_ok=True)
    write_tensors(
        folder / "model.safetensors", tensors, {"format": "pt"}
    )  # loaders ask for the format
    table = json.loads(config_text)
    table["dtype"] = dtype
    if "torch_dtype" in table:
        table["torch_dtype"] = dtype
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
