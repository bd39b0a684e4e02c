"""Checkpoints are checked tensor by tensor and written back in the same layout (S-13)."""

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from stacks.torch_stack.errors import BadInput
from stacks.torch_stack.model import CausalLM
from stacks.torch_stack.precision import PRECISIONS, dtype_name
from stacks.torch_stack.weights import build_model, load_checkpoint, write_checkpoint

from .conftest import MODEL, write_model

UNTIED = {**MODEL, "tie_word_embeddings": False}
GATE = "model.layers.1.mlp.gate_proj.weight"


def load(folder: Path, dtype: torch.dtype = torch.float64) -> CausalLM:
    precision = PRECISIONS[dtype_name(dtype)]
    return build_model(load_checkpoint(folder, dtype), "eager", 8, precision, torch.device("cpu"))


@pytest.mark.parametrize("config", [MODEL, UNTIED, {**MODEL, "model_type": "qwen2"}])
def test_parameters_are_the_tensors_of_the_file(tmp_path: Path, config: dict[str, Any]) -> None:
    tensors = write_model(tmp_path, config)
    parameters = dict(load(tmp_path).named_parameters())
    assert parameters.keys() == tensors.keys()
    for name, one in parameters.items():
        assert one.dtype == torch.float64
        assert torch.equal(one, tensors[name].double())


def test_values_are_rounded_to_nearest_even(tmp_path: Path) -> None:
    tensors = {name: one.double() for name, one in write_model(tmp_path, MODEL).items()}
    step = 2.0**-23
    tensors["model.norm.weight"][:3] = torch.tensor([1 + step / 2, 1 + 3 * step / 2, 1 + step / 4])
    save_file(tensors, tmp_path / "model.safetensors")
    weight = dict(load(tmp_path, torch.float32).named_parameters())["model.norm.weight"]
    assert weight[:3].tolist() == [1.0, 1 + 2 * step, 1.0]


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precisions_are_widened_exactly(tmp_path: Path, dtype: torch.dtype) -> None:
    tensors = {name: one.to(dtype) for name, one in write_model(tmp_path, MODEL).items()}
    save_file(tensors, tmp_path / "model.safetensors")
    gate = dict(load(tmp_path).named_parameters())[GATE]
    assert torch.equal(gate, tensors[GATE].double())


def test_faults_of_a_file_are_named(tmp_path: Path) -> None:
    tensors = write_model(tmp_path, MODEL)
    path = tmp_path / "model.safetensors"

    def refused(change: dict[str, torch.Tensor | None], match: str) -> None:
        changed = {**tensors, **change}
        save_file({name: one for name, one in changed.items() if one is not None}, path)
        with pytest.raises(BadInput, match=match):
            load(tmp_path)

    refused({GATE: None}, rf"lacks the tensor {GATE} of shape \[24, 16\]")
    refused({"model.extra": torch.zeros(1)}, "holds the tensor model.extra")
    refused({GATE: torch.zeros(16, 24)}, rf"{GATE} has the shape \[16, 24\], .* \[24, 16\]")
    refused({GATE: torch.zeros(24, 16, dtype=torch.int32)}, f"{GATE} has the dtype I32")
    refused({"lm_head.weight": torch.zeros(280, 16)}, "lm_head.weight is not equal")
    refused({"lm_head.weight": torch.zeros(1)}, "lm_head.weight is not equal")
    save_file(tensors, path)
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(BadInput, match="truncated"):
        load(tmp_path)
    path.unlink()
    with pytest.raises(BadInput, match="missing"):
        load(tmp_path)


def test_a_tied_head_that_is_the_embedding_and_old_rope_buffers_are_allowed(tmp_path: Path) -> None:
    tensors = write_model(tmp_path, MODEL)
    tensors["lm_head.weight"] = tensors["model.embed_tokens.weight"].clone()
    tensors["model.layers.0.self_attn.rotary_emb.inv_freq"] = torch.zeros(2)
    save_file(tensors, tmp_path / "model.safetensors")
    model = load(tmp_path)
    assert model.head is model.model.embed_tokens.weight


def split(folder: Path, tensors: dict[str, torch.Tensor]) -> dict[str, Any]:
    (folder / "model.safetensors").unlink()
    names = sorted(tensors)
    halves = {"a.safetensors": names[::2], "b.safetensors": names[1::2]}
    for file, half in halves.items():
        save_file({name: tensors[name] for name in half}, folder / file)
    return {name: file for file, half in halves.items() for name in half}


def test_shards_are_one_checkpoint(tmp_path: Path) -> None:
    tensors = write_model(tmp_path, MODEL)
    where = split(tmp_path, tensors)
    index = tmp_path / "model.safetensors.index.json"
    index.write_text(json.dumps({"weight_map": where}))
    checkpoint = load_checkpoint(tmp_path, torch.float32)
    assert checkpoint.tensors.keys() == tensors.keys()
    assert dict(checkpoint.files_sha256) == {
        name: hashlib.sha256((tmp_path / name).read_bytes()).hexdigest()
        for name in ("a.safetensors", "b.safetensors")
    }
    index.write_text(json.dumps({"weight_map": {**where, "ghost": "a.safetensors"}}))
    with pytest.raises(BadInput, match="disagree on the tensor 'ghost'"):
        load_checkpoint(tmp_path, torch.float32)
    faults: list[dict[str, Any]] = [{}, {"weight_map": []}, {"weight_map": {"x": "../a"}}]
    for bad in faults:
        index.write_text(json.dumps(bad))
        with pytest.raises(BadInput, match="no weight_map"):
            load_checkpoint(tmp_path, torch.float32)


def test_a_written_checkpoint_is_read_by_transformers(tmp_path: Path) -> None:
    from transformers import AutoModelForCausalLM

    tensors = write_model(tmp_path / "in", MODEL)
    source = (tmp_path / "in/config.json").read_bytes()
    out = tmp_path / "out"
    write_checkpoint(out, tensors, source, b"{}", b"template\n")
    model = AutoModelForCausalLM.from_pretrained(out)
    for name, one in tensors.items():
        assert torch.equal(model.state_dict()[name], one)
    assert (out / "chat_template.jinja").read_bytes() == b"template\n"
    assert (out / "tokenizer.json").read_bytes() == b"{}"
    written = json.loads((out / "config.json").read_text())
    assert written == {**MODEL, "torch_dtype": "float32", "dtype": "float32"}
    assert load_file(out / "model.safetensors").keys() == tensors.keys()
