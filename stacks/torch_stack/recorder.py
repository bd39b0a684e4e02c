"""Describes the tensors of a step for the trace, without changing them (S-21)."""

from collections.abc import Mapping

import torch
from torch import Tensor

from stacks.torch_stack.numerics import Sketcher, tensor_sha256
from stacks.torch_stack.trace import TensorRow, TensorTable
from stacks.torch_stack.train import Trainer


class Recorder:
    """The watch of a traced leg."""

    def __init__(self, table: TensorTable) -> None:
        self._table = table
        self._sketcher = Sketcher()
        self._before: dict[str, Tensor] = {}

    def describe_start(self, trainer: Trainer) -> None:
        """The initial parameters, with their hashes, at step 0."""
        self._add(0, "init", trainer.parameters, hashed=True)

    def before_clipping(self, t: int, trainer: Trainer) -> None:
        """The gradients of the step; the parameters are kept to see the update."""
        self._add(t, "grad", trainer.grads())
        self._before = {name: one.detach().clone() for name, one in trainer.trainable.items()}

    @torch.no_grad()
    def after_update(self, t: int, trainer: Trainer) -> None:
        """Moments, the difference of the parameters, and the new parameters."""
        m, v = trainer.moments()
        self._add(t, "m", m)
        self._add(t, "v", v)
        after = trainer.trainable
        self._add(
            t, "update", {name: _difference(after[name], old) for name, old in self._before.items()}
        )
        self._add(t, "param", trainer.parameters)
        self._before = {}

    def _add(self, t: int, kind: str, named: Mapping[str, Tensor], hashed: bool = False) -> None:
        for name, statistics in self._sketcher.describe(named).items():
            row = TensorRow(
                step=t,
                kind=kind,
                name=name,
                shape=tuple(named[name].shape),
                statistics=statistics,
                sha256=tensor_sha256(named[name]) if hashed else None,
            )
            self._table.add(row)


def _difference(new: Tensor, old: Tensor) -> Tensor:
    wide = torch.promote_types(new.dtype, torch.float32)
    return new.to(wide) - old.to(wide)  # exact for what is held in bfloat16
