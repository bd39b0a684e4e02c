"""One GGUF file of a Llama model, read as NumPy arrays under Hugging Face names.

The GGUF converter stores the query and key projections with the rows of each head interleaved,
(2, K/2) -> (K/2, 2), because its rotary embedding pairs neighbours; `unpermute` undoes it.
Source: `LlamaModel.permute` in llama.cpp's `convert_hf_to_gguf.py`.

Legend: H heads, K head width, D model width.
"""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import gguf
import numpy as np
from numpy.typing import NDArray

NAMES = {
    "token_embd.weight": "model.embed_tokens.weight",
    "output_norm.weight": "model.norm.weight",
    "output.weight": "lm_head.weight",
}
BLOCK_NAMES = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}


def hugging_face_name(name: str) -> str:
    """The Hugging Face name of a GGUF tensor; ValueError for one that a Llama does not have."""
    found = re.fullmatch(r"blk\.(\d+)\.(\w+)\.weight", name)
    if found and found[2] in BLOCK_NAMES:
        return f"model.layers.{found[1]}.{BLOCK_NAMES[found[2]]}.weight"
    if name in NAMES:
        return NAMES[name]
    raise ValueError(f"tensor {name} is not part of a Llama without biases")


def unpermute(weight: NDArray[np.float32], num_heads: int) -> NDArray[np.float32]:
    """Rows (H * K/2 * 2, D) of interleaved halves -> (H * 2 * K/2, D), as Hugging Face stores."""
    rows, width = weight.shape
    halves = weight.reshape(num_heads, rows // num_heads // 2, 2, width)  # (H, K/2, 2, D)
    return np.ascontiguousarray(halves.swapaxes(1, 2).reshape(rows, width))


class GgufFile:
    """The fields and tensors of a GGUF file."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._reader = gguf.GGUFReader(path)

    def field(self, key: str) -> Any:
        """A metadata value; KeyError when the file has none under this key."""
        return self._reader.fields[key].contents()

    def tensor_names(self) -> list[str]:
        """The Hugging Face name of each tensor."""
        return [hugging_face_name(tensor.name) for tensor in self._reader.tensors]

    def tensor_types(self) -> dict[str, int]:
        """How many tensors are stored in each GGUF type."""
        counts: dict[str, int] = {}
        for tensor in self._reader.tensors:
            counts[tensor.tensor_type.name] = counts.get(tensor.tensor_type.name, 0) + 1
        return dict(sorted(counts.items()))

    def tensors(self) -> Iterator[tuple[str, NDArray[np.float32]]]:
        """Each tensor under its Hugging Face name, dequantised to float32, (out, in)."""
        heads = {
            "attn_q": int(self.field("llama.attention.head_count")),
            "attn_k": int(self.field("llama.attention.head_count_kv")),
        }
        for tensor in self._reader.tensors:
            values = gguf.quants.dequantize(tensor.data, tensor.tensor_type).astype(np.float32)
            weight = values.reshape([int(size) for size in reversed(tensor.shape)])
            part = tensor.name.split(".")[-2]
            if part in heads:
                weight = unpermute(weight, heads[part])
            yield hugging_face_name(tensor.name), weight
