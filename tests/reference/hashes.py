"""Hashes of tensors and of sets of tensors (S-22)."""

import hashlib
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

Tensor = npt.NDArray[np.floating[Any]]


def value_bytes(values: Tensor) -> bytes:
    """The values widened to float64, little-endian, row-major."""
    return np.ascontiguousarray(values).astype("<f8").tobytes()


def tensor_sha256(values: Tensor) -> str:
    """The hash of one tensor: of its values alone."""
    return hashlib.sha256(value_bytes(values)).hexdigest()


def tensors_sha256(tensors: Mapping[str, Tensor]) -> str:
    """The hash of a set: name, 0x00, values, in ascending order of the names' UTF-8 bytes."""
    digest = hashlib.sha256()
    for name in sorted(tensors, key=lambda text: text.encode()):
        digest.update(name.encode() + b"\x00" + value_bytes(tensors[name]))
    return digest.hexdigest()
