"""What is inside a step, against S-12 and S-21 written out in NumPy and plain integers (S-28)."""

import hashlib
import math
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch

from stacks.torch_stack.batch import Batch
from stacks.torch_stack.loss import micro_batch_sum, micro_batches
from stacks.torch_stack.model import CausalLM
from stacks.torch_stack.numerics import signs
from stacks.torch_stack.precision import PRECISIONS
from stacks.torch_stack.taps import Running, Taps
from stacks.torch_stack.weights import build_model, load_checkpoint

from .conftest import MODEL, write_model

Array = npt.NDArray[np.float64]
CONFIGS: dict[str, dict[str, Any]] = {
    "tied": MODEL,
    "qwen2": {**MODEL, "model_type": "qwen2", "tie_word_embeddings": False},
}


def batch() -> Batch:
    """A = 3, B = 2, T = 7; padding on both sides, two segments, one micro-batch without a label."""
    ids = np.random.default_rng(0).integers(0, 280, (3, 2, 7)).astype(np.int32)
    segments = np.array([[[1] * 7, [1, 1, 1, 2, 2, 0, 0]], [[1] * 7, [0] * 7],
                         [[0, 0, 1, 1, 1, 1, 1], [1] * 7]], np.int32)  # fmt: skip
    positions = np.zeros_like(segments)
    for index in np.ndindex(3, 2, 7):
        a, b, t = index
        if t and segments[index] == segments[a, b, t - 1] != 0:
            positions[index] = positions[a, b, t - 1] + 1
    labels = np.where((positions > 0) & (ids % 3 > 0), ids, -100).astype(np.int32)
    labels[1] = -100
    return Batch(examples=(), input_ids=ids, segments=segments, positions=positions, labels=labels)


def reference(folder: Path, config: dict[str, Any], given: Batch) -> dict[str, Array]:
    """Every tap, each (A, B, T, W), `token_loss` (A, B, T)."""
    w = {name: one.numpy() for name, one in load_checkpoint(folder, torch.float64).tensors.items()}
    width = config["hidden_size"] // config["num_attention_heads"]
    group = config["num_attention_heads"] // config["num_key_value_heads"]
    taps: dict[str, Array] = {}

    def rms(x: Array, name: str) -> Array:
        return x / np.sqrt((x**2).mean(-1, keepdims=True) + config["rms_norm_eps"]) * w[name]  # type: ignore[no-any-return]

    def linear(x: Array, name: str) -> Array:
        return x @ w[name + ".weight"].T + w.get(name + ".bias", 0.0)  # type: ignore[no-any-return]

    def rope(x: Array) -> Array:
        theta = config["rope_theta"] ** (-2 * np.arange(width // 2) / width)
        turn = np.exp(1j * given.positions[..., None, None] * theta)
        heads = x.reshape(*x.shape[:-1], -1, width)
        turned = (heads[..., : width // 2] + 1j * heads[..., width // 2 :]) * turn
        return np.concatenate([turned.real, turned.imag], -1).reshape(x.shape)

    same = given.segments[..., :, None] == given.segments[..., None, :]
    allowed = same & np.tril(np.ones((7, 7), bool))
    h = taps["embed"] = w["model.embed_tokens.weight"][given.input_ids]
    for number in range(config["num_hidden_layers"]):
        at, to = f"model.layers.{number}.", f"layers.{number}."
        a = taps[to + "input_norm"] = rms(h, at + "input_layernorm.weight")
        for name in "qkv":
            taps[to + name] = linear(a, f"{at}self_attn.{name}_proj")
        q, k = taps[to + "q_rope"], taps[to + "k_rope"] = rope(taps[to + "q"]), rope(taps[to + "k"])
        heads = []
        for n in range(config["num_attention_heads"]):
            mine = slice(n * width, (n + 1) * width)
            shared = slice(n // group * width, (n // group + 1) * width)
            scores = q[..., mine] @ k[..., shared].swapaxes(-1, -2) / math.sqrt(width)
            weights = np.where(allowed, np.exp(scores - scores.max(-1, keepdims=True)), 0)
            weights /= weights.sum(-1, keepdims=True)
            heads.append(weights @ taps[to + "v"][..., shared])
        taps[to + "attention"] = np.concatenate(heads, -1)
        taps[to + "attention_out"] = linear(taps[to + "attention"], at + "self_attn.o_proj")
        h = taps[to + "middle"] = h + taps[to + "attention_out"]
        m = taps[to + "post_norm"] = rms(h, at + "post_attention_layernorm.weight")
        gate = taps[to + "gate"] = linear(m, at + "mlp.gate_proj")
        up = taps[to + "up"] = linear(m, at + "mlp.up_proj")
        taps[to + "act"] = gate / (1 + np.exp(-gate)) * up
        taps[to + "down"] = linear(taps[to + "act"], at + "mlp.down_proj")
        h = taps[to + "out"] = h + taps[to + "down"]
    taps["norm"] = rms(h, "model.norm.weight")
    head = w.get("lm_head.weight", w["model.embed_tokens.weight"])
    logits = taps["logits"] = taps["norm"] @ head.T
    taps["token_loss"] = np.zeros(given.labels.shape)
    for index in zip(*(given.labels != -100).nonzero(), strict=True):
        a, b, t = index
        row = logits[a, b, t - 1]
        taps["token_loss"][index] = np.log(np.exp(row).sum()) - row[given.labels[index]]
    return taps


def sign(name: str, i: int) -> int:
    """S-21, in integers of Python."""
    z = (i * 0x9E3779B1 & 0xFFFFFFFF) ^ int.from_bytes(hashlib.sha256(name.encode()).digest()[:4])
    z ^= z >> 16
    z = z * 0x85EBCA6B & 0xFFFFFFFF
    z ^= z >> 13
    z = z * 0xC2B2AE35 & 0xFFFFFFFF
    z ^= z >> 16
    return -1 if z >> 31 else 1


def observe(model: CausalLM, given: Batch) -> Taps:
    taps, device = Taps(), torch.device("cpu")
    with taps.observe(model, given, device):
        for micro in micro_batches(given, device):
            micro_batch_sum(model, micro).backward()  # type: ignore[no-untyped-call]
    return taps


@pytest.mark.parametrize("attention", ["eager", "fused"])
@pytest.mark.parametrize("config", CONFIGS.values(), ids=CONFIGS)
def test_taps_are_those_of_the_clause(
    tmp_path: Path, config: dict[str, Any], attention: Any
) -> None:
    write_model(tmp_path, config)
    checkpoint, given = load_checkpoint(tmp_path, torch.float64), batch()
    cpu = torch.device("cpu")
    model = build_model(checkpoint, attention, 16, PRECISIONS["float64"], cpu)
    taps = observe(model, given)
    expected = reference(tmp_path, config, given)
    rows = taps.rows(5)
    assert [one.tap for one in rows] == list(expected)  # in data-flow order
    real = given.segments != 0
    for one in rows:
        whole = expected[one.tap]
        values = np.where(real if whole.ndim == 3 else real[..., None], whole, 0)
        assert (one.step, one.shape) == (5, values.shape)
        flat, found = values.reshape(-1), one.statistics
        assert found.norm == pytest.approx(math.sqrt((flat**2).sum()), rel=1e-12)
        assert found.mean == pytest.approx(flat.mean(), rel=1e-9, abs=1e-14)
        assert found.max_abs == pytest.approx(np.abs(flat).max(), rel=1e-12)
        sketch = np.zeros(64)
        for i in flat.nonzero()[0].tolist():
            sketch[i % 64] += sign(one.tap, i) * flat[i]
        np.testing.assert_allclose(found.sketch, sketch, rtol=1e-9, atol=1e-11, err_msg=one.tap)
    np.testing.assert_allclose(taps.token_loss, expected["token_loss"], rtol=1e-12)


def test_hooks_are_gone_after_the_step_and_change_no_gradient(tmp_path: Path) -> None:
    write_model(tmp_path, MODEL)
    checkpoint, cpu = load_checkpoint(tmp_path, torch.float32), torch.device("cpu")
    model = build_model(checkpoint, "fused", 16, PRECISIONS["float32"], cpu)
    observe(model, batch())
    seen = {name: one.grad for name, one in model.named_parameters()}
    assert not any(x._forward_hooks or x._forward_pre_hooks for x in model.modules())
    model.zero_grad()
    for micro in micro_batches(batch(), torch.device("cpu")):
        micro_batch_sum(model, micro).backward()  # type: ignore[no-untyped-call]
    for name, one in model.named_parameters():
        assert seen[name] is not one.grad
        assert one.grad is not None
        assert torch.equal(seen[name], one.grad)  # type: ignore[arg-type]


def test_a_tensor_in_parts_is_the_tensor_whatever_the_parts() -> None:
    values = torch.from_numpy(np.random.default_rng(1).normal(size=1000))
    running = Running("x", torch.device("cpu"))
    for first, last in ((600, 1000), (0, 1), (1, 130), (130, 600)):  # in any order
        running.add(values[first:last], first)
    assert torch.equal(values, torch.from_numpy(np.random.default_rng(1).normal(size=1000)))
    found = running.statistics(1000)
    assert found.norm == pytest.approx(float(values.norm()), rel=1e-13)
    signed = [sign("x", i) * float(x) for i, x in enumerate(values)]
    assert found.sketch == pytest.approx([math.fsum(signed[b::64]) for b in range(64)], rel=1e-9)


def test_what_is_not_finite_is_seen_and_padding_is_not() -> None:
    running = Running("x", torch.device("cpu"))
    running.add(torch.tensor([1.0, math.nan]), 0)
    running.add(torch.tensor([2.0]), 2)
    found = running.statistics(3)
    assert math.isnan(found.norm)
    assert math.isnan(found.max_abs)
    assert math.isnan(found.mean)


def test_signs_go_on_from_any_index() -> None:
    assert signs("a", 70, 2**32 - 3).tolist() == [sign("a", 2**32 - 3 + i) for i in range(70)]
