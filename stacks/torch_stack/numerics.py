"""Norms, tensor statistics and tensor hashes (S-15, S-21, S-22).

Everything here accumulates in float64 and reads tensors without changing them.
"""

import hashlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

NUM_BUCKETS = 64


@torch.no_grad()
def global_norm(tensors: Sequence[Tensor]) -> float:
    """`sqrt(sum of squares of all entries)`, accumulated in float64 (S-15)."""
    if not tensors:
        return 0.0
    norms = torch._foreach_norm(list(tensors), 2, dtype=torch.float64)
    return float(torch.linalg.vector_norm(torch.stack(norms)))


@dataclass(frozen=True, kw_only=True)
class Statistics:
    """S-21: of all entries of a tensor."""

    norm: float
    mean: float
    max_abs: float
    sketch: tuple[float, ...]  # 64


class Sketcher:
    """Computes statistics; the signs of a tensor are computed once and kept, a byte an entry."""

    def __init__(self) -> None:
        self._signs: dict[str, Tensor] = {}

    def describe(self, name: str, tensor: Tensor) -> Statistics:
        """Statistics of the tensor called `name`, of any shape."""
        n = tensor.numel()
        if n == 0:
            return Statistics(norm=0.0, mean=0.0, max_abs=0.0, sketch=(0.0,) * NUM_BUCKETS)
        if name not in self._signs:
            self._signs[name] = torch.from_numpy(signs(name, n)).to(tensor.device)
        values = tensor.detach().reshape(-1).to(torch.float64)
        signed = values * self._signs[name]
        whole = n - n % NUM_BUCKETS
        sketch = signed[:whole].view(-1, NUM_BUCKETS).sum(0)
        sketch[: n - whole] += signed[whole:]
        return Statistics(
            norm=float(torch.linalg.vector_norm(values)),
            mean=float(values.mean()),
            max_abs=float(torch.linalg.vector_norm(values, math.inf)),
            sketch=tuple(sketch.tolist()),
        )


def signs(name: str, num_entries: int) -> np.typing.NDArray[np.int8]:
    """The sign of each entry, (n,): an integer mix of its index and the tensor's name (S-21)."""
    k = np.uint32(int.from_bytes(hashlib.sha256(name.encode()).digest()[:4], "big"))
    z = np.arange(num_entries, dtype=np.uint32) * np.uint32(0x9E3779B1)  # modulo 2^32
    z ^= k
    z ^= z >> np.uint32(16)
    z *= np.uint32(0x85EBCA6B)
    z ^= z >> np.uint32(13)
    z *= np.uint32(0xC2B2AE35)
    z ^= z >> np.uint32(16)
    return np.where(z >> np.uint32(31), np.int8(-1), np.int8(1))


def tensor_sha256(tensor: Tensor) -> str:
    """Hash of the values, widened to float64, little-endian, row-major (S-22)."""
    return hashlib.sha256(_value_bytes(tensor)).hexdigest()


def tensors_sha256(tensors: Mapping[str, Tensor]) -> str:
    """Hash of a set of tensors: name, 0x00, values, by ascending bytes of the names (S-22)."""
    digest = hashlib.sha256()
    for name in sorted(tensors, key=str.encode):
        digest.update(name.encode() + b"\0")
        digest.update(_value_bytes(tensors[name]))
    return digest.hexdigest()


def _value_bytes(tensor: Tensor) -> memoryview:
    values = tensor.detach().to("cpu", torch.float64).contiguous().numpy()
    return np.ascontiguousarray(values, "<f8").reshape(-1).view(np.uint8).data
