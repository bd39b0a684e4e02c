"""Checkpoints: a folder of safetensors to a model, and back (S-13).

Tensors keep the names and shapes of the Hugging Face layout; values are rounded to the run's
precision to nearest even, which is what a cast does.
"""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import torch
from torch import Tensor

from stacks.torch_stack.architecture import ModelConfig, parse_model_config
from stacks.torch_stack.errors import BadInput
from stacks.torch_stack.model import CausalLM
from stacks.torch_stack.precision import Precision, dtype_name

_SINGLE, _INDEX = "model.safetensors", "model.safetensors.index.json"
_DTYPES = {"F64", "F32", "F16", "BF16"}
_IGNORED_SUFFIX = "rotary_emb.inv_freq"
_TIED_HEAD, _EMBEDDING = "lm_head.weight", "model.embed_tokens.weight"


@dataclass(frozen=True, kw_only=True)
class Checkpoint:
    """A folder that was read."""

    folder: Path
    config: ModelConfig
    config_source: bytes
    config_sha256: str
    tensors: Mapping[str, Tensor]  # in the dtype that the run holds them in
    files_sha256: Mapping[str, str]  # name of each file of weights → hash of its bytes


def load_checkpoint(folder: Path, dtype: torch.dtype) -> Checkpoint:
    """Read `config.json` and every tensor of the folder; nothing is checked against a model yet."""
    source = _read(folder / "config.json")
    tensors: dict[str, Tensor] = {}
    hashes: dict[str, str] = {}
    for name, demanded in _shards(folder).items():
        found = _read_tensors(folder / name, dtype)
        hashes[name] = _file_sha256(folder / name)
        if demanded is not None and demanded != found.keys():
            odd = min(demanded ^ found.keys())
            raise BadInput(
                f"S-13: {folder / _INDEX} and {folder / name} disagree on the tensor {odd!r}; "
                "copy the checkpoint again"
            )
        tensors |= found
    return Checkpoint(
        folder=folder,
        config=parse_model_config(source, folder / "config.json"),
        config_source=source,
        config_sha256=hashlib.sha256(source).hexdigest(),
        tensors=tensors,
        files_sha256=hashes,
    )


def build_model(
    checkpoint: Checkpoint,
    attention: Literal["eager", "fused"],
    num_positions: int,
    precision: Precision,
    device: torch.device,
) -> CausalLM:
    """The model of a checkpoint, its parameters named and shaped as S-13 says."""
    model = CausalLM(checkpoint.config, attention, num_positions, precision)
    expected = {name: list(one.shape) for name, one in model.named_parameters()}
    given = _without_tied_head(checkpoint) if checkpoint.config.tied else checkpoint.tensors
    for name in sorted(expected.keys() | given.keys()):
        if name not in given:
            raise BadInput(
                f"S-13: {checkpoint.folder} lacks the tensor {name} of shape {expected[name]}; "
                "use a whole checkpoint"
            )
        if name not in expected:
            raise BadInput(
                f"S-13: {checkpoint.folder} holds the tensor {name}, which the model of its "
                "config.json does not have; correct one of the two"
            )
        if (shape := list(given[name].shape)) != expected[name]:
            raise BadInput(
                f"S-13: {checkpoint.folder}: {name} has the shape {shape}, but the model of its "
                f"config.json {expected[name]}; correct one of the two"
            )
    model.load_state_dict({name: one.to(device) for name, one in given.items()}, assign=True)
    model.cos, model.sin = model.cos.to(device), model.sin.to(device)
    return model


def write_checkpoint(
    folder: Path,
    tensors: Mapping[str, Tensor],
    config_source: bytes,
    tokenizer_source: bytes,
    template_source: bytes,
) -> None:
    """The final parameters in the layout they came in, with what a loader needs beside them."""
    from safetensors.torch import save_file

    folder.mkdir(exist_ok=True)
    config = json.loads(config_source)
    precision = dtype_name(next(iter(tensors.values())).dtype)
    config["dtype"] = precision
    if "torch_dtype" in config:
        config["torch_dtype"] = precision
    (folder / "config.json").write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")
    (folder / "tokenizer.json").write_bytes(tokenizer_source)
    (folder / "chat_template.jinja").write_bytes(template_source)
    kept = {name: one.detach().cpu().contiguous() for name, one in tensors.items()}
    save_file(kept, folder / _SINGLE, metadata={"format": "pt"})


def _shards(folder: Path) -> dict[str, set[str] | None]:
    """Files of weights → the tensors that the index says they hold (None: no index)."""
    if (folder / _SINGLE).exists() or not (folder / _INDEX).exists():
        return {_SINGLE: None}
    try:
        files = json.loads(_read(folder / _INDEX))["weight_map"]
        shards: dict[str, set[str] | None] = {}
        for tensor, file in files.items():
            if Path(file).name != file:
                raise ValueError(file)
            names = shards.setdefault(file, set())
            assert names is not None
            if not tensor.endswith(_IGNORED_SUFFIX):
                names.add(tensor)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise BadInput(
            f"S-13: {folder / _INDEX} has no weight_map of tensor names to files beside it; "
            "copy the checkpoint again"
        ) from error
    return shards


def _read_tensors(path: Path, dtype: torch.dtype) -> dict[str, Tensor]:
    from safetensors import SafetensorError, safe_open

    tensors: dict[str, Tensor] = {}
    try:
        with safe_open(path, framework="pt") as file:
            for name in file.keys():  # noqa: SIM118 - it is no mapping
                if name.endswith(_IGNORED_SUFFIX):
                    continue
                if (kind := file.get_slice(name).get_dtype()) not in _DTYPES:
                    raise BadInput(
                        f"S-13: {path}: {name} has the dtype {kind}, but only F64, F32, F16 and "
                        "BF16 are read; convert it"
                    )
                tensors[name] = file.get_tensor(name).to(dtype)
    except (SafetensorError, OSError) as error:
        raise BadInput(
            f"S-13: {path} is missing, truncated or no safetensors; copy it again"
        ) from error
    return tensors


def _without_tied_head(checkpoint: Checkpoint) -> dict[str, Tensor]:
    """A tied model's file may hold the head if it is the embedding."""
    tensors = dict(checkpoint.tensors)
    head = tensors.pop(_TIED_HEAD, None)
    if head is not None and not torch.equal(head, tensors.get(_EMBEDDING, head[:0])):
        raise BadInput(
            f"S-13: {checkpoint.folder}: tie_word_embeddings is true, but {_TIED_HEAD} is not "
            f"equal to {_EMBEDDING}; remove it or untie the model"
        )
    return tensors


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise BadInput(
            f"S-13: {path} cannot be read: {error.strerror}; check model.checkpoint"
        ) from error


def _file_sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
