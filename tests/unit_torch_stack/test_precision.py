"""bfloat16 rounds where the clause says, once, and nowhere else (S-19).

The yardstick is NumPy in float64 with a rounding written on the bits. Where float32 and float64
accumulation fall on two sides of a tie, neighbours in bfloat16 are both right.
"""

import math
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch
from torch import nn

from stacks.torch_stack.loss import micro_batch_sum, micro_batches
from stacks.torch_stack.model import RMSNorm, linear
from stacks.torch_stack.precision import PRECISIONS
from stacks.torch_stack.rounded import AdamW, widen_gradients
from stacks.torch_stack.update import apply_update, moments, scale_gradients, set_moments
from stacks.torch_stack.weights import build_model, load_checkpoint

from .conftest import MODEL, Main, Run, leg_arguments, write_model
from .test_leg import document, same_run, steps
from .test_train import build, run_steps

Array = npt.NDArray[Any]
NARROW = ["bfloat16", "bfloat16_pure"]


def r(x: Array) -> Array:
    """Nearest even in bfloat16, as float64; the route over float32 is exact for these values."""
    bits = np.asarray(x, np.float32).view(np.uint32).astype(np.uint64)
    kept = (bits + 0x7FFF + ((bits >> 16) & 1)) & 0xFFFF0000
    return kept.astype(np.uint32).view(np.float32).astype(np.float64)


def bf16(x: Array) -> torch.Tensor:
    return torch.from_numpy(np.asarray(x)).to(torch.bfloat16)


def plain(x: torch.Tensor) -> Array:
    return x.detach().double().numpy()


def test_the_yardstick_rounds_as_known_by_hand() -> None:
    ulp = 2.0**-7  # of bfloat16 at 1
    given = np.array([1 + ulp / 2, 1 + 3 * ulp / 2, 1 + ulp / 2 + 2.0**-20, -3.0, 0.0])
    np.testing.assert_array_equal(r(given), [1, 1 + 2 * ulp, 1 + ulp, -3.0, 0.0])


def test_rms_rounds_the_normalised_value_before_it_is_weighted() -> None:
    generator = np.random.default_rng(1)
    x = r(generator.normal(size=(400, 16)))
    w = r(1 + generator.normal(size=16) / 3)
    norm = RMSNorm(16, 1e-5)
    norm.weight = nn.Parameter(torch.from_numpy(w).float())
    normalised = x / np.sqrt(np.mean(x * x, axis=-1, keepdims=True) + 1e-5)
    found = plain(norm(bf16(x)))
    wrong = found != r(w * r(normalised))
    assert wrong.mean() < 1e-3  # a tie that float32 sees otherwise
    assert (found != r(w * normalised)).mean() > 0.05  # rounding once is something else


def test_a_linear_is_rounded_once_with_its_bias() -> None:
    generator = np.random.default_rng(2)
    x, w = r(generator.normal(size=(64, 200))), generator.normal(size=(30, 200))
    b = generator.normal(size=30) * 30
    found = linear(bf16(x), torch.from_numpy(w).float(), torch.from_numpy(b).float())
    assert found.dtype == torch.bfloat16
    exact = x @ r(w).T + r(b)
    assert (plain(found) != r(exact)).mean() < 2e-3
    assert (r(r(x @ r(w).T) + r(b)) != r(exact)).mean() > 0.02  # two roundings would show


def reference_logits(w: dict[str, Array], row: tuple[Array, Array, Array]) -> Array:
    """S-12 with the roundings of S-19 for one row → (T, V)."""
    ids, segments, positions = row
    heads, kv_heads, width, base, eps, t = 4, 2, 4, 1000.0, 1e-5, len(row[0])  # of MODEL
    w = {name: r(one) for name, one in w.items()}

    def rms(x: Array, name: str) -> Array:
        scale = np.sqrt(np.mean(x * x, axis=-1, keepdims=True) + eps)
        return r(w[name] * r(x / scale))

    def rope(x: Array) -> Array:  # (T, heads, K)
        angles = positions[:, None] * base ** (-2 * np.arange(width // 2) / width)
        cos, sin = np.cos(angles)[:, None], np.sin(angles)[:, None]
        a, b = x[..., : width // 2], x[..., width // 2 :]
        return r(np.concatenate([a * cos - b * sin, b * cos + a * sin], axis=-1))

    h = w["model.embed_tokens.weight"][ids]
    seen = np.tril(segments[:, None] == segments[None, :])
    for number in range(2):
        at = f"model.layers.{number}."
        a = rms(h, at + "input_layernorm.weight")
        q, k, v = (
            r(a @ w[f"{at}self_attn.{one}_proj.weight"].T).reshape(t, -1, width) for one in "qkv"
        )
        q, k = rope(q), rope(k)
        out = np.zeros((t, heads, width))
        for n in range(heads):
            shared = n // (heads // kv_heads)
            scores = np.where(seen, q[:, n] @ k[:, shared].T / math.sqrt(width), -np.inf)
            weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
            weights /= weights.sum(axis=-1, keepdims=True)
            out[:, n] = r(r(weights) @ v[:, shared])
        h = r(h + r(out.reshape(t, -1) @ w[at + "self_attn.o_proj.weight"].T))
        m = rms(h, at + "post_attention_layernorm.weight")
        gate, up = (r(m @ w[f"{at}mlp.{one}_proj.weight"].T) for one in ("gate", "up"))
        silu = r(gate / (1 + np.exp(-gate)))
        h = r(h + r(r(silu * up) @ w[at + "mlp.down_proj.weight"].T))
    return r(rms(h, "model.norm.weight") @ w["model.embed_tokens.weight"].T)


@pytest.mark.parametrize("name", NARROW)
def test_logits_are_those_of_the_clause(tmp_path: Path, name: str) -> None:
    tensors = {key: one.numpy() for key, one in write_model(tmp_path, MODEL).items()}
    precision = PRECISIONS[name]
    checkpoint = load_checkpoint(tmp_path, precision.held)
    model = build_model(checkpoint, "eager", 16, precision, torch.device("cpu"))
    ids = np.random.default_rng(3).integers(0, 280, 12)
    segments, positions = np.array([1] * 7 + [2] * 5), np.array([*range(7), *range(5)])
    with torch.no_grad():
        logits = model(*(torch.from_numpy(one.astype(np.int32))[None]
                         for one in (ids, segments, positions)))  # fmt: skip
    assert logits.dtype == torch.bfloat16
    expected = reference_logits(tensors, (ids, segments, positions))
    wrong = plain(logits[0]) != expected
    assert wrong.mean() < 0.02, wrong.mean()
    np.testing.assert_allclose(plain(logits[0]), expected, rtol=2**-6, atol=2**-6)


@pytest.mark.parametrize("name", NARROW)
def test_fused_attention_agrees_to_its_rounding(small_run: Run, name: str) -> None:
    one, other = (
        run_steps(build(small_run(train__precision=name, model__attention=x)))
        for x in ("eager", "fused")
    )
    for eager, fused in zip(one, other, strict=True):
        assert eager["loss"] == pytest.approx(fused["loss"], rel=0.01)


def test_gradients_come_near_those_of_float32(small_run: Run) -> None:
    trainers = {x: build(small_run(train__precision=x)) for x in ("float32", *NARROW)}
    found = {}
    for name, trainer in trainers.items():
        batch = next(trainer.stream)
        trainer._backward(micro_batches(batch, trainer.device), batch.num_targets)
        found[name] = {key: one.double() for key, one in trainer.grads().items()}
        assert {one.dtype for one in trainer.grads().values()} == {trainer.precision.held}
    for name in NARROW:
        for key, exact in found["float32"].items():
            error = (found[name][key] - exact).norm() / exact.norm()
            assert error < 0.05, (name, key, float(error))


def test_pure_micro_batches_are_summed_in_float32_and_rounded_once(small_run: Run) -> None:
    trainer = build(small_run(train__precision="bfloat16_pure"))
    batch = next(trainer.stream)
    micros = micro_batches(batch, trainer.device)
    assert len(micros) == 2
    names, params = list(trainer.trainable), list(trainer.trainable.values())
    parts = []
    for micro in micros:
        share = micro_batch_sum(trainer.model, micro) / batch.num_targets
        parts.append([plain(one) for one in torch.autograd.grad(share, params)])
    trainer._backward(micros, batch.num_targets)
    for name, first, second in zip(names, *parts, strict=True):
        if name != "model.embed_tokens.weight":  # tied: each has two parts, not rounded between
            np.testing.assert_array_equal(plain(trainer.grads()[name]), r(first + second))


def test_a_pure_update_rounds_each_tensor_once() -> None:
    generator = np.random.default_rng(4)
    theta, m, v, g = (r(generator.normal(size=500) * s) for s in (1.0, 0.1, 0.01, 0.3))
    v = np.abs(v)
    parameter = nn.Parameter(bf16(theta))
    optimizer = AdamW([parameter], betas=(0.9, 0.99), weight_decay=0.1)
    set_moments(optimizer, parameter, bf16(m), bf16(v), 4)
    parameter.grad = bf16(g)
    widen_gradients([parameter])
    assert parameter.grad is not None
    scale_gradients([parameter.grad], 0.3)
    apply_update(optimizer, 0.01)
    g = g * 0.3  # in float32: clipping rounds nothing to bfloat16
    m, v = 0.9 * m + 0.1 * g, 0.99 * v + 0.01 * g * g
    hat = (m / (1 - 0.9**5)) / (np.sqrt(v / (1 - 0.99**5)) + 1e-8)
    theta = theta - 0.01 * (hat + 0.1 * theta)
    own_m, own_v = moments(optimizer, {"a": parameter})
    for found, exact in ((own_m["a"], m), (own_v["a"], v), (parameter, theta)):
        assert found.dtype == torch.bfloat16
        assert (plain(found) != r(exact)).mean() < 5e-3


def test_dtypes_are_read_from_the_tensors(small_run: Run) -> None:
    facts = {x: build(small_run(train__precision=x)).probe_dtypes() for x in NARROW}
    forward = {"activation": "bfloat16", "logits": "bfloat16", "loss": "float32"}
    held = ("param", "grad", "moment")
    assert facts["bfloat16"] == {**forward, **dict.fromkeys(held, "float32")}
    assert facts["bfloat16_pure"] == {**forward, **dict.fromkeys(held, "bfloat16")}


@pytest.mark.parametrize(
    ("name", "held"), [("bfloat16", torch.float32), ("bfloat16_pure", torch.bfloat16)]
)
def test_a_resumed_leg_ends_with_the_same_bits_and_dtypes(
    small_run: Run, tmp_path: Path, in_process: Main, name: str, held: torch.dtype
) -> None:
    from safetensors.torch import load_file

    config = small_run(train__precision=name)
    unbroken, out = tmp_path / "unbroken", tmp_path / "out"
    assert in_process(leg_arguments(config, unbroken)) == 0
    last = load_file(unbroken / "snapshots/00000007.safetensors")
    written = load_file(unbroken / "checkpoint/model.safetensors")
    assert {one.dtype for one in (*last.values(), *written.values())} == {held}
    assert document(unbroken / "checkpoint", "config")["dtype"] == str(held).split(".")[1]
    assert steps(unbroken)[-1]["loss"] < 0.9 * steps(unbroken)[0]["loss"]
    unbroken.rename(out)
    (out / "done.json").unlink()
    (out / "snapshots/00000007.safetensors").unlink()
    assert in_process([*leg_arguments(config, unbroken)]) == 0
    assert in_process([*leg_arguments(config, out), "--resume"]) == 0
    same_run(unbroken, out)
