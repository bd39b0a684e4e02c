"""The model against transformers' classes and against S-12 written out in NumPy."""

import math
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import pytest
import torch

from stacks.torch_stack.model import CausalLM
from stacks.torch_stack.precision import PRECISIONS, dtype_name
from stacks.torch_stack.weights import build_model, load_checkpoint

from .conftest import MODEL, write_model

CONFIGS: dict[str, dict[str, Any]] = {
    "tied": MODEL,
    "untied": {**MODEL, "tie_word_embeddings": False},
    "no grouping": {**MODEL, "num_key_value_heads": 4},
    "one kv head": {**MODEL, "num_key_value_heads": 1},
    "wide heads": {**MODEL, "head_dim": 6},
    "biases": {**MODEL, "attention_bias": True},
    "qwen2": {**MODEL, "model_type": "qwen2"},
}
Array = npt.NDArray[np.float64]


def load(
    folder: Path, dtype: torch.dtype, attention: Literal["eager", "fused"] = "eager"
) -> CausalLM:
    precision = PRECISIONS[dtype_name(dtype)]
    return build_model(
        load_checkpoint(folder, dtype), attention, 16, precision, torch.device("cpu")
    )


def inputs(seed: int = 0) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    ids = torch.randint(0, 280, (3, 10), generator=torch.Generator().manual_seed(seed))
    segments = torch.tensor([[1] * 10, [1, 1, 1, 1, 2, 2, 2, 3, 0, 0], [0, 0, 0] + [1] * 7])
    positions = torch.tensor(
        [list(range(10)), [0, 1, 2, 3, 0, 1, 2, 0, 0, 0], [0, 0, 0, *range(7)]]
    )
    return ids.int(), segments.int(), positions.int()


@pytest.mark.parametrize("attention", ["eager", "fused"])
@pytest.mark.parametrize("config", CONFIGS.values(), ids=CONFIGS)
def test_logits_and_gradients_are_those_of_transformers(
    tmp_path: Path, config: dict[str, Any], attention: Literal["eager", "fused"]
) -> None:
    from transformers import AutoModelForCausalLM

    write_model(tmp_path, config)
    library = AutoModelForCausalLM.from_pretrained(tmp_path, attn_implementation="eager")
    own = load(tmp_path, torch.float32, attention)
    ids, _, _ = inputs()
    whole = torch.ones_like(ids)
    theirs = library(input_ids=ids.long()).logits
    ours = own(ids, whole, torch.arange(10).expand(3, 10))
    torch.testing.assert_close(ours, theirs, rtol=2e-5, atol=2e-5)
    for logits in (theirs, ours):
        logits.square().mean().backward()
    gradients = {name: one.grad for name, one in library.named_parameters()}
    for name, one in own.named_parameters():
        torch.testing.assert_close(one.grad, gradients[name], rtol=1e-3, atol=1e-5, msg=name)


def reference(folder: Path, config: dict[str, Any], row: tuple[Array, Array, Array]) -> Array:
    """S-12 for one row, position by position, in NumPy float64 → (T, V)."""
    w = {name: one.numpy() for name, one in load_checkpoint(folder, torch.float64).tensors.items()}
    heads, kv_heads = config["num_attention_heads"], config["num_key_value_heads"]
    width = config.get("head_dim") or config["hidden_size"] // heads
    ids, segments, positions = row
    t = len(ids)

    def rms(x: Array, name: str) -> Array:
        normed: Array = x / np.sqrt(np.mean(x * x) + config["rms_norm_eps"])
        return w[name] * normed

    def linear(x: Array, name: str) -> Array:
        return w[name + ".weight"] @ x + w.get(name + ".bias", 0.0)

    def rope(x: Array, p: float) -> Array:
        out = x.copy()
        for c in range(width // 2):
            angle = p * config["rope_theta"] ** (-2 * c / width)
            a, b = x[c], x[c + width // 2]
            out[c] = a * math.cos(angle) - b * math.sin(angle)
            out[c + width // 2] = b * math.cos(angle) + a * math.sin(angle)
        return out

    h = [w["model.embed_tokens.weight"][one] for one in ids]
    for number in range(config["num_hidden_layers"]):
        at = f"model.layers.{number}."
        normed = [rms(x, at + "input_layernorm.weight") for x in h]
        q, k, v = (
            [linear(x, f"{at}self_attn.{one}_proj").reshape(-1, width) for x in normed]
            for one in "qkv"
        )
        for i in range(t):
            out = []
            for n in range(heads):
                shared = n // (heads // kv_heads)
                seen = [j for j in range(i + 1) if segments[i] == segments[j]]
                turned = rope(q[i][n], positions[i])
                scores = np.array(
                    [turned @ rope(k[j][shared], positions[j]) / math.sqrt(width) for j in seen]
                )
                weights = np.exp(scores - scores.max())
                weights /= weights.sum()
                out.append(sum(p * v[j][shared] for p, j in zip(weights, seen, strict=True)))
            h[i] = h[i] + linear(np.concatenate(out), at + "self_attn.o_proj")
        for i in range(t):
            m = rms(h[i], at + "post_attention_layernorm.weight")
            gate = linear(m, at + "mlp.gate_proj")
            silu = gate / (1 + np.exp(-gate))
            h[i] = h[i] + linear(silu * linear(m, at + "mlp.up_proj"), at + "mlp.down_proj")
    head = w.get("lm_head.weight", w["model.embed_tokens.weight"])
    return np.stack([head @ rms(x, "model.norm.weight") for x in h])


@pytest.mark.parametrize("attention", ["eager", "fused"])
@pytest.mark.parametrize("name", ["tied", "biases", "wide heads", "qwen2"])
def test_float64_logits_are_those_of_the_clause(
    tmp_path: Path, name: str, attention: Literal["eager", "fused"]
) -> None:
    write_model(tmp_path, CONFIGS[name])
    model = load(tmp_path, torch.float64, attention)
    arrays = inputs()
    with torch.no_grad():
        logits = model(*arrays).numpy()
    for row in range(3):
        one = tuple(array[row].numpy() for array in arrays)
        expected = reference(tmp_path, CONFIGS[name], one)  # type: ignore[arg-type]
        np.testing.assert_allclose(logits[row], expected, rtol=1e-12, atol=1e-12)


def test_a_segment_sees_nothing_of_its_neighbours(tmp_path: Path) -> None:
    write_model(tmp_path, MODEL)
    model = load(tmp_path, torch.float64)
    ids, segments, positions = inputs()
    changed = ids.clone()
    changed[1, :4] = 7  # the first segment of row 1
    with torch.no_grad():
        before, after = model(ids, segments, positions), model(changed, segments, positions)
    assert torch.equal(before[1, 4:], after[1, 4:])
    assert not torch.equal(before[1, :4], after[1, :4])
