"""Norms, sketches and hashes against plain Python and NumPy (S-15, S-21, S-22)."""

import hashlib
import math
import struct

import numpy as np
import pytest
import torch

from stacks.torch_stack import numerics
from stacks.torch_stack.numerics import (
    Sketcher,
    Statistics,
    global_norm,
    signs,
    tensor_sha256,
    tensors_sha256,
)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_norms_are_accurate_in_every_precision(dtype: torch.dtype) -> None:
    generator = torch.Generator().manual_seed(0)
    tensors = [torch.randn(n, 1000, generator=generator).to(dtype) for n in (2000, 3)]
    tensors[0][0, 0] = 3e4
    exact = math.sqrt(math.fsum(x * x for one in tensors for x in one.double().flatten().tolist()))
    assert global_norm(tensors) == pytest.approx(exact, rel=1e-12)
    assert global_norm([]) == 0.0


def test_norms_do_not_hide_what_is_not_finite() -> None:
    assert math.isnan(global_norm([torch.tensor([1.0, math.nan])]))
    assert global_norm([torch.tensor([1.0, math.inf])]) == math.inf
    assert global_norm([torch.tensor([1e200], dtype=torch.float64)]) == math.inf  # overflow
    assert global_norm([torch.tensor([1e30, 1e30])]) == pytest.approx(math.sqrt(2) * 1e30)


def sign(name: str, i: int) -> int:
    """S-21 in plain integers."""
    mask = 2**32 - 1
    z = (i * 0x9E3779B1 & mask) ^ int.from_bytes(hashlib.sha256(name.encode()).digest()[:4], "big")
    z ^= z >> 16
    z = z * 0x85EBCA6B & mask
    z ^= z >> 13
    z = z * 0xC2B2AE35 & mask
    z ^= z >> 16
    return -1 if z >> 31 else 1


def test_signs_are_those_of_the_integer_mix() -> None:
    for name in ("model.norm.weight", "é"):
        assert signs(name, 300).tolist() == [sign(name, i) for i in range(300)]


SHAPES = [(), (1,), (63,), (0, 3), (64,), (5, 40)]


def tensors() -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(1)
    return {f"w{n}": torch.randn(shape, generator=generator) for n, shape in enumerate(SHAPES)}


def check(name: str, tensor: torch.Tensor, found: Statistics) -> None:
    values = tensor.double().flatten().tolist()
    sketch = [0.0] * 64
    for i, x in enumerate(values):
        sketch[i % 64] += sign(name, i) * x
    assert found.norm == pytest.approx(math.sqrt(math.fsum(x * x for x in values)), rel=1e-14)
    mean = math.fsum(values) / len(values) if values else 0.0
    assert found.mean == pytest.approx(mean, rel=1e-12)
    assert found.max_abs == max(map(abs, values), default=0.0)
    assert found.sketch.tolist() == pytest.approx(sketch, rel=1e-13, abs=1e-15)


@pytest.mark.parametrize("pack_entries", [1 << 20, 100, 1])
def test_statistics_of_tensors(monkeypatch: pytest.MonkeyPatch, pack_entries: int) -> None:
    monkeypatch.setattr(numerics, "_PACK_ENTRIES", pack_entries)
    named, sketcher = tensors(), Sketcher()
    for round_number in range(2):  # work space is used again
        found = sketcher.describe(named)
        assert list(found) == list(named)
        for name, one in named.items():
            check(name, one, found[name])
        named = {name: one * 3 + round_number for name, one in named.items()}


def test_a_result_does_not_change_when_another_tensor_is_described() -> None:
    sketcher, named = Sketcher(), tensors()
    first = sketcher.describe(named)["w5"].sketch
    before = first.tolist()
    sketcher.describe({name: one + 1 for name, one in named.items()})
    assert first.tolist() == before


def test_a_transposed_tensor_is_read_row_by_row() -> None:
    tensor = torch.arange(12.0).view(3, 4).T
    found, plain = (Sketcher().describe({"w": one})["w"] for one in (tensor, tensor.contiguous()))
    assert found.sketch.tolist() == plain.sketch.tolist()
    assert tensor_sha256(tensor) == tensor_sha256(tensor.contiguous())


def test_what_is_not_finite_stays_in_its_tensor() -> None:
    named = {
        "a": torch.tensor([1.0, -math.inf]),
        "b": torch.tensor([3.0, 4.0]),
        "c": torch.tensor([1.0, math.nan]),
    }
    found = Sketcher().describe(named)
    assert (found["a"].norm, found["a"].max_abs, found["a"].mean) == (
        math.inf,
        math.inf,
        -math.inf,
    )
    check("b", named["b"], found["b"])
    assert math.isnan(found["c"].norm)
    assert math.isnan(found["c"].max_abs)


def test_describing_changes_nothing() -> None:
    tensor = torch.randn(100, dtype=torch.float64)
    before = tensor.clone()
    Sketcher().describe({"w": tensor})
    global_norm([tensor])
    assert torch.equal(tensor, before)


def test_hashes_are_of_widened_values() -> None:
    values = [1.5, -0.0, 3.0, 0.1]
    single = struct.pack("<4d", *np.array(values, np.float32).astype(np.float64))
    named = {"é": torch.tensor(values).view(2, 2), "z": torch.ones(()), "Z": torch.zeros(0)}
    assert tensor_sha256(named["é"]) == hashlib.sha256(single).hexdigest()
    fed = b"Z\0" + b"z\0" + struct.pack("<d", 1.0) + "é".encode() + b"\0" + single
    assert tensors_sha256(named) == hashlib.sha256(fed).hexdigest()
    assert tensors_sha256({}) == hashlib.sha256(b"").hexdigest()
