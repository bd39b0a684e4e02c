"""Norms, sketches and hashes against plain Python and NumPy (S-15, S-21, S-22)."""

import hashlib
import math
import struct

import numpy as np
import pytest
import torch

from stacks.torch_stack.numerics import (
    Sketcher,
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


@pytest.mark.parametrize("shape", [(), (1,), (63,), (64,), (5, 40)])
def test_statistics_of_a_tensor(shape: tuple[int, ...]) -> None:
    tensor = torch.randn(shape, generator=torch.Generator().manual_seed(1))
    values = tensor.double().flatten().tolist()
    sketch = [0.0] * 64
    for i, x in enumerate(values):
        sketch[i % 64] += sign("w", i) * x
    found = Sketcher().describe("w", tensor)
    assert found.norm == pytest.approx(math.sqrt(math.fsum(x * x for x in values)), rel=1e-14)
    assert found.mean == pytest.approx(math.fsum(values) / len(values), rel=1e-12)
    assert found.max_abs == max(map(abs, values))
    assert found.sketch == pytest.approx(sketch, rel=1e-13, abs=1e-15)


def test_a_transposed_tensor_is_read_row_by_row() -> None:
    tensor = torch.arange(12.0).view(3, 4).T
    assert Sketcher().describe("w", tensor) == Sketcher().describe("w", tensor.contiguous())
    assert tensor_sha256(tensor) == tensor_sha256(tensor.contiguous())


def test_a_tensor_without_entries_has_zeros() -> None:
    found = Sketcher().describe("w", torch.zeros(0, 3))
    assert (found.norm, found.mean, found.max_abs, found.sketch) == (0, 0, 0, (0.0,) * 64)


def test_describing_changes_nothing() -> None:
    tensor = torch.randn(100, dtype=torch.float64)
    before = tensor.clone()
    Sketcher().describe("w", tensor)
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
