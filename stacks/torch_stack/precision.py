"""The dtypes of a run, by the name of its precision (S-19)."""

from dataclasses import dataclass

import torch


@dataclass(frozen=True, kw_only=True)
class Precision:
    """Which tensors of a step have which dtype."""

    held: torch.dtype  # parameters, gradients of the step, moments
    forward: torch.dtype  # activations and logits
    wide: torch.dtype  # loss, RoPE tables, and the arithmetic of the update

    @property
    def is_rounded(self) -> bool:
        """Whether the forward pass is narrower than the arithmetic of the update."""
        return self.forward != self.wide


PRECISIONS = {
    "float64": Precision(held=torch.float64, forward=torch.float64, wide=torch.float64),
    "float32": Precision(held=torch.float32, forward=torch.float32, wide=torch.float32),
    "bfloat16": Precision(held=torch.float32, forward=torch.bfloat16, wide=torch.float32),
    "bfloat16_pure": Precision(held=torch.bfloat16, forward=torch.bfloat16, wide=torch.float32),
}


def dtype_name(dtype: torch.dtype) -> str:
    """The name that checkpoints and facts use: `float32`."""
    return str(dtype).removeprefix("torch.")
