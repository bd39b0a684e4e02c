"""Norms, tensor statistics and tensor hashes (S-15, S-21, S-22).

Everything here accumulates in float64 and reads tensors without changing them.
"""

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

NUM_BUCKETS = 64
_PACK_ENTRIES = 1 << 20

Sketch = npt.NDArray[np.float64]


@torch.no_grad()
def global_norm(tensors: Sequence[Tensor]) -> float:
    """`sqrt(sum of squares of all entries)`, accumulated in float64 (S-15)."""
    if not tensors:
        return 0.0
    norms = torch._foreach_norm(list(tensors), 2, dtype=torch.float64)
    return float(torch.stack(norms).square().sum().sqrt())  # overflows as the clause says


@dataclass(frozen=True, kw_only=True)
class Statistics:
    """S-21: of all entries of a tensor."""

    norm: float
    mean: float
    max_abs: float
    sketch: Sketch  # (64,)


class Sketcher:
    """Computes the statistics of many tensors at a time.

    Tensors are laid out one after another in rows of 64, so that a column is a bucket of the
    sketch and the sums of all of them take a few operations. Signs (a byte an entry) and work
    space are made once and kept: fresh memory would cost more than the sums.
    """

    def __init__(self) -> None:
        self._signs: dict[tuple[str, ...], Tensor] = {}
        self._space: Tensor | None = None

    @torch.no_grad()
    def describe(self, named: Mapping[str, Tensor]) -> dict[str, Statistics]:
        """Statistics of tensors of any shape, by name."""
        zeros = Statistics(norm=0.0, mean=0.0, max_abs=0.0, sketch=np.zeros(NUM_BUCKETS))
        found = dict.fromkeys(named, zeros)
        for pack in _packs(named):
            found |= self._describe(pack)
        return found

    def _describe(self, pack: Mapping[str, Tensor]) -> dict[str, Statistics]:
        sizes = [one.numel() for one in pack.values()]
        num_rows = [-(-size // NUM_BUCKETS) for size in sizes]
        device = next(iter(pack.values())).device
        values, work = self._work_space(sum(num_rows), device)  # each (rows, 64)
        values.zero_()
        parts = torch.split(values, num_rows)
        for part, size, one in zip(parts, sizes, pack.values(), strict=True):
            part.view(-1)[:size].copy_(one.reshape(-1))
        torch.mul(values, self._signs_of(pack, num_rows, device), out=work)
        sketches = torch.stack([part.sum(0) for part in torch.split(work, num_rows)]).cpu().numpy()
        torch.abs(values, out=work)
        lengths = torch.tensor(num_rows, device=device)
        scalars = (
            torch.stack(torch._foreach_norm(parts, 2)),
            torch.segment_reduce(values.sum(1), "sum", lengths=lengths, unsafe=True),
            torch.stack(torch._foreach_max(torch.split(work, num_rows))),
        )
        norms, sums, maxima = torch.stack(scalars).tolist()
        columns = zip(norms, sums, sizes, maxima, sketches, strict=True)
        return {
            name: Statistics(norm=norm, mean=total / size, max_abs=maximum, sketch=sketch)
            for name, (norm, total, size, maximum, sketch) in zip(pack, columns, strict=True)
        }

    def _work_space(self, num_rows: int, device: torch.device) -> tuple[Tensor, Tensor]:
        if self._space is None or self._space.shape[1] < num_rows:
            size = (2, num_rows, NUM_BUCKETS)
            self._space = torch.empty(size, dtype=torch.float64, device=device)
        return self._space[0, :num_rows], self._space[1, :num_rows]

    def _signs_of(
        self, pack: Mapping[str, Tensor], num_rows: list[int], device: torch.device
    ) -> Tensor:
        key = tuple(pack)
        if key not in self._signs:
            entries = [
                signs(name, rows * NUM_BUCKETS) for name, rows in zip(pack, num_rows, strict=True)
            ]
            flat = torch.from_numpy(np.concatenate(entries)).view(-1, NUM_BUCKETS)
            self._signs[key] = flat.to(device)
        return self._signs[key]


def _packs(named: Mapping[str, Tensor]) -> Iterator[dict[str, Tensor]]:
    """The tensors that have entries, in groups of about `_PACK_ENTRIES`."""
    pack: dict[str, Tensor] = {}
    room = _PACK_ENTRIES
    for name, one in named.items():
        if one.numel() == 0:
            continue
        if pack and one.numel() > room:
            yield pack
            pack, room = {}, _PACK_ENTRIES
        pack[name] = one
        room -= one.numel()
    if pack:
        yield pack


def signs(name: str, num_entries: int, first: int = 0) -> npt.NDArray[np.int8]:
    """The sign of each entry from `first` on, (n,): a mix of its index and the name (S-21)."""
    k = np.uint32(int.from_bytes(hashlib.sha256(name.encode()).digest()[:4], "big"))
    z = np.arange(num_entries, dtype=np.uint32) + np.uint32(first % 2**32)  # modulo 2^32
    z *= np.uint32(0x9E3779B1)
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
