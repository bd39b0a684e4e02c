import hashlib
import struct

import numpy as np
import pytest

from tests.reference.hashes import tensor_sha256, tensors_sha256
from tests.reference.statistics import name_key, sign, tensor_statistics


def test_signs_of_the_first_entries_of_w_by_hand() -> None:
    assert name_key("w") == 0x50E721E4
    assert [sign(i, 0x50E721E4) for i in range(4)] == [1, 1, -1, 1]


def test_signs_are_those_of_unsigned_arithmetic_in_numpy() -> None:
    key = name_key("model.norm.weight")
    z = np.arange(5000, dtype=np.uint32) * np.uint32(0x9E3779B1) ^ np.uint32(key)
    z = (z ^ (z >> np.uint32(16))) * np.uint32(0x85EBCA6B)
    z = (z ^ (z >> np.uint32(13))) * np.uint32(0xC2B2AE35)
    z ^= z >> np.uint32(16)
    expected = np.where(z >> np.uint32(31), -1, 1)
    assert [sign(i, key) for i in range(5000)] == expected.tolist()
    assert abs(int(expected.sum())) < 250


def test_the_sketch_estimates_the_distance() -> None:
    rng = np.random.default_rng(3)
    x, y = rng.normal(size=4096), rng.normal(size=4096)
    a, b = (np.array(tensor_statistics("w", t).sketch) for t in (x, y))
    estimate, truth = np.linalg.norm(a - b), np.linalg.norm(x - y)
    assert abs(estimate / truth - 1) < 0.35
    assert not np.allclose(a, np.array(tensor_statistics("w", x[::-1]).sketch))


def test_norm_mean_and_maximum_are_numpys() -> None:
    x = np.random.default_rng(4).normal(size=(13, 7))
    record = tensor_statistics("t", x)
    assert record.norm == pytest.approx(np.linalg.norm(x), rel=1e-14)
    assert record.mean == pytest.approx(x.mean(), rel=1e-12)
    assert record.max_abs == np.abs(x).max()


def test_hashes_are_hashlibs_on_packed_numbers() -> None:
    assert tensor_sha256(np.array([[1.5, -2.0]])) == (
        hashlib.sha256(struct.pack("<2d", 1.5, -2.0)).hexdigest()
    )
    literal = b"a\x00" + struct.pack("<d", 1.0) + b"b\x00" + struct.pack("<2d", 2.0, -0.0)
    held = {"b": np.array([2.0, -0.0]), "a": np.array(1.0)}
    assert tensors_sha256(held) == hashlib.sha256(literal).hexdigest()


def test_narrow_values_are_widened_exactly() -> None:
    narrow = np.array([0.1, 1 / 3], dtype=np.float32)
    assert tensor_sha256(narrow) == tensor_sha256(narrow.astype(np.float64))
