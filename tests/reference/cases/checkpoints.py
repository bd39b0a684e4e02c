"""The tiny checkpoints of the vectors, in the Hugging Face layout.

Values come from SHA-256 of a name and a counter, so they depend on no generator of any library.
"""

import hashlib
import json
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tests.reference import tensorfile
from tests.reference.checkpoint import EMBED, HEAD, parse_config, shapes
from tests.reference.tensorfile import Tensor

Record = dict[str, Any]
Files = dict[str, bytes]

LLAMA: Record = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 16,
    "intermediate_size": 20,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 13,
    "rms_norm_eps": 1e-5,
    "tie_word_embeddings": True,
    "hidden_act": "silu",
    "rope_theta": 10000.0,
    "max_position_embeddings": 128,
    "initializer_range": 0.02,
    "use_cache": True,
    "dtype": "float32",
}
SMALL = LLAMA | {
    "hidden_size": 4,
    "intermediate_size": 4,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "vocab_size": 5,
}
QWEN = {
    "architectures": ["Qwen2ForCausalLM"],
    "model_type": "qwen2",
    "use_sliding_window": False,
    "sliding_window": None,
    "max_window_layers": 2,
    "attention_dropout": 0.0,
}


def uniform(name: str, shape: tuple[int, ...]) -> Tensor:
    """Numbers in [-1, 1) from SHA-256 of `name:counter`, eight of 32 bits a block, exact."""
    size = int(np.prod(shape))
    data = b"".join(hashlib.sha256(f"{name}:{i}".encode()).digest() for i in range(-(-size // 8)))
    words = np.frombuffer(data, dtype=">u4")[:size].astype(np.float64)
    values: Tensor = (words / 2**31 - 1).reshape(shape)
    return values


def draw(name: str, shape: tuple[int, ...], gain: float) -> Tensor:
    """A parameter as after some training: norms about 1, biases small, matrices of unit gain."""
    values = uniform(name, shape)
    if name.endswith("norm.weight"):
        return 1 + values / 2
    if name.endswith("bias"):
        return values / 2
    fan_in = 1.0 if name == EMBED else shape[-1]
    return values * float(gain * np.sqrt(3.0 / fan_in))


@dataclass(frozen=True, kw_only=True)
class Checkpoint:
    """A folder: its config, the dtype of each tensor, and what is spoilt on purpose."""

    config: Record
    dtype: str = "F32"
    gain: float = 1.0
    num_shards: int = 1
    alter: Callable[[dict[str, Tensor]], None] = lambda tensors: None
    spoil: Callable[[Files], None] = lambda files: None
    like: Record = field(default_factory=dict)  # the config that sets the shapes, where it differs

    def files(self) -> Files:
        """Name below the folder -> bytes."""
        model = parse_config(self.config | self.like)
        tensors = {n: draw(n, shape, self.gain) for n, shape in shapes(model).items()}
        self.alter(tensors)
        files = {"config.json": (json.dumps(self.config, indent=1) + "\n").encode()}
        if self.num_shards == 1:
            files["model.safetensors"] = self.pack(tensors)
        else:
            self.add_shards(files, tensors)
        self.spoil(files)
        return files

    def pack(self, tensors: dict[str, Tensor]) -> bytes:
        """One safetensors file."""
        return tensorfile.write(tensors, dict.fromkeys(tensors, self.dtype))

    def add_shards(self, files: Files, tensors: dict[str, Tensor]) -> None:
        """Tensors dealt to the shards in turn, and the index."""
        place: dict[str, str] = {}
        for shard in range(self.num_shards):
            file = f"model-{shard + 1:05d}-of-{self.num_shards:05d}.safetensors"
            part = dict(list(tensors.items())[shard :: self.num_shards])
            files[file] = self.pack(part)
            place |= dict.fromkeys(part, file)
        size = sum(t.size for t in tensors.values()) * tensorfile.SIZES[self.dtype]
        index = {"metadata": {"total_size": size}, "weight_map": dict(sorted(place.items()))}
        files["model.safetensors.index.json"] = (json.dumps(index, indent=1) + "\n").encode()


def without(config: Record, *keys: str) -> Record:
    """The config without these keys."""
    return {key: value for key, value in config.items() if key not in keys}


def add_head_copy(tensors: dict[str, Tensor]) -> None:
    """A tied model whose file repeats the embedding, and an old buffer of RoPE."""
    tensors[HEAD] = tensors[EMBED].copy()
    tensors["model.layers.0.self_attn.rotary_emb.inv_freq"] = np.ones(2)


def add_other_head(tensors: dict[str, Tensor]) -> None:
    """A tied model whose file holds another head."""
    tensors[HEAD] = tensors[EMBED].copy()
    tensors[HEAD][-1, -1] += 1.0


def drop_norm(tensors: dict[str, Tensor]) -> None:
    """A tensor is missing."""
    del tensors["model.layers.0.post_attention_layernorm.weight"]


def add_unknown(tensors: dict[str, Tensor]) -> None:
    """A tensor too many."""
    tensors["model.layers.1.input_layernorm.weight"] = np.ones(4)


def add_bias(tensors: dict[str, Tensor]) -> None:
    """A bias that the config does not have."""
    tensors["model.layers.0.self_attn.q_proj.bias"] = np.ones(4)


def transpose_gate(tensors: dict[str, Tensor]) -> None:
    """Another shape with the same number of entries."""
    name = "model.layers.0.mlp.gate_proj.weight"
    tensors[name] = np.ascontiguousarray(tensors[name].T)


def cut_off(files: Files) -> None:
    """The file ends in its last tensor."""
    files["model.safetensors"] = files["model.safetensors"][:-3]


def cut_header(files: Files) -> None:
    """The file ends in its header."""
    files["model.safetensors"] = files["model.safetensors"][:40]


def add_index(files: Files) -> None:
    """An index beside the single file, that leads to a shard that is not there."""
    index = {
        "metadata": {"total_size": 4},
        "weight_map": {EMBED: "model-00001-of-00001.safetensors"},
    }
    files["model.safetensors.index.json"] = (json.dumps(index, indent=1) + "\n").encode()


def drop_from_index(files: Files) -> None:
    """The index does not list a tensor that the model needs and a shard holds."""
    index = json.loads(files["model.safetensors.index.json"])
    del index["weight_map"]["model.layers.0.self_attn.q_proj.weight"]
    files["model.safetensors.index.json"] = (json.dumps(index, indent=1) + "\n").encode()


def add_head_copy_to_shard(files: Files) -> None:
    """A shard of a tied model repeats the embedding as its head; the index does not list it."""
    name = "model-00001-of-00002.safetensors"
    held = tensorfile.read(files[name], name)
    held[HEAD] = held[EMBED]
    files[name] = tensorfile.write(held, dict.fromkeys(held, "F32"))


def add_output_bias(tensors: dict[str, Tensor]) -> None:
    """A bias on o, which qwen2 has not."""
    tensors["model.layers.0.self_attn.o_proj.bias"] = np.ones(4)


def drop_shard(files: Files) -> None:
    """A shard is missing."""
    del files["model-00002-of-00002.safetensors"]


def drop_weights(files: Files) -> None:
    """There is no tensor file at all."""
    del files["model.safetensors"]


def changed(**changes: Any) -> Record:
    """The tied model with changes."""
    return LLAMA | changes


VALID: dict[str, Checkpoint] = {
    "tied": Checkpoint(config=LLAMA),
    "trained": Checkpoint(config=LLAMA, gain=2.0),
    "untied": Checkpoint(
        config=without(LLAMA, "rope_theta")
        | {
            "tie_word_embeddings": False,
            "hidden_size": 12,
            "head_dim": 6,
            "num_key_value_heads": 1,
            "num_hidden_layers": 1,
            "attention_bias": True,
            "rope_parameters": {"rope_theta": 500.0, "rope_type": "default"},
            "rms_norm_eps": 0.1,
        },
        dtype="F64",
        gain=1.5,
    ),
    "qwen": Checkpoint(
        # biases on q, k and v whatever `attention_bias` says
        config=LLAMA
        | QWEN
        | {"hidden_size": 8, "num_attention_heads": 2, "rope_theta": 1e6, "attention_bias": False},
        dtype="BF16",
        num_shards=2,
        gain=1.5,
    ),
    "square": Checkpoint(
        config=LLAMA
        | {
            "hidden_size": 8,
            "intermediate_size": 8,
            "num_attention_heads": 4,
            "num_key_value_heads": 4,
            "vocab_size": 8,
            "tie_word_embeddings": False,
            "head_dim": None,
            "rope_scaling": None,
            "attention_bias": None,
            "mlp_bias": False,
        },
        dtype="F16",
        gain=1.5,
    ),
    "head-copy": Checkpoint(
        config=SMALL | {"rope_scaling": {"rope_type": "default"}}, alter=add_head_copy
    ),
    "old-scaling": Checkpoint(
        config=SMALL
        | {"rope_scaling": {"type": "default"}, "rope_parameters": {"rope_theta": None}}
    ),
    "both-bases": Checkpoint(
        config=SMALL
        | {"rope_theta": 500, "rope_parameters": {"rope_theta": 500.0, "rope_type": "default"}}
    ),
    "single-and-index": Checkpoint(config=SMALL, spoil=add_index),
}

BROKEN_CONFIGS: dict[str, Checkpoint] = {
    "two-bases": Checkpoint(
        config=SMALL | {"rope_parameters": {"rope_theta": 500.0, "rope_type": "default"}},
        like={"rope_parameters": None},
    ),
    "two-bases-nearly-equal": Checkpoint(
        config=SMALL | {"rope_theta": 10000, "rope_parameters": {"rope_theta": 10000.5}},
        like={"rope_parameters": None},
    ),
    "qwen-output-bias": Checkpoint(
        config=SMALL | QWEN | {"attention_bias": True}, alter=add_output_bias
    ),
}
LLAMA3 = {"rope_type": "llama3", "factor": 8.0}
BROKEN: dict[str, Checkpoint] = {
    "missing-tensor": Checkpoint(config=SMALL, alter=drop_norm),
    "unknown-tensor": Checkpoint(config=SMALL, alter=add_unknown),
    "unknown-bias": Checkpoint(config=SMALL, alter=add_bias),
    "missing-bias": Checkpoint(
        config=SMALL | {"attention_bias": True}, like={"attention_bias": False}
    ),
    "missing-qwen-bias": Checkpoint(config=SMALL | QWEN, like={"model_type": "llama"}),
    "other-shape": Checkpoint(config=SMALL | {"intermediate_size": 6}, alter=transpose_gate),
    "other-vocabulary": Checkpoint(config=SMALL | {"vocab_size": 6}, like={"vocab_size": 5}),
    "untied-without-head": Checkpoint(
        config=SMALL | {"tie_word_embeddings": False}, like={"tie_word_embeddings": True}
    ),
    "tied-with-another-head": Checkpoint(config=SMALL, alter=add_other_head),
    "cut-off": Checkpoint(config=SMALL, spoil=cut_off),
    "cut-header": Checkpoint(config=SMALL, spoil=cut_header),
    "missing-shard": Checkpoint(config=SMALL, num_shards=2, spoil=drop_shard),
    "no-weights": Checkpoint(config=SMALL, spoil=drop_weights),
    "not-in-the-index": Checkpoint(config=SMALL, num_shards=2, spoil=drop_from_index),
    "head-copy-not-in-the-index": Checkpoint(
        config=SMALL, num_shards=2, spoil=add_head_copy_to_shard
    ),
    "model-type": Checkpoint(config=SMALL | {"model_type": "mistral"}, like=LLAMA | SMALL),
    "activation": Checkpoint(config=SMALL | {"hidden_act": "gelu"}, like=SMALL),
    "mlp-bias": Checkpoint(config=SMALL | {"mlp_bias": True}, like={"mlp_bias": False}),
    "dropout": Checkpoint(config=SMALL | {"attention_dropout": 0.1}, like={"attention_dropout": 0}),
    "sliding-window": Checkpoint(
        config=SMALL | QWEN | {"use_sliding_window": True}, like={"use_sliding_window": False}
    ),
    "rope-scaling": Checkpoint(
        config=SMALL | {"rope_scaling": LLAMA3}, like={"rope_scaling": None}
    ),
    "rope-type": Checkpoint(
        config=SMALL | {"rope_parameters": {"rope_theta": 1e4, "rope_type": "yarn"}},
        like={"rope_parameters": None},
    ),
    "no-epsilon": Checkpoint(config=without(SMALL, "rms_norm_eps"), like=SMALL),
    "no-rope-base": Checkpoint(config=without(SMALL, "rope_theta"), like=SMALL),
    "no-tie-key": Checkpoint(config=without(SMALL, "tie_word_embeddings"), like=SMALL),
    "heads": Checkpoint(
        config=SMALL | {"num_attention_heads": 3, "head_dim": 2, "num_key_value_heads": 2},
        like={"num_key_value_heads": 3},
    ),
    "odd-head": Checkpoint(config=SMALL | {"head_dim": 3}, like={"head_dim": 2}),
}

RUNS: dict[str, Checkpoint] = {
    "run-tied": Checkpoint(
        config=changed(hidden_size=8, intermediate_size=12, vocab_size=272), dtype="F32"
    ),
    "run-untied": Checkpoint(
        config=changed(
            hidden_size=8,
            intermediate_size=12,
            num_attention_heads=4,
            num_key_value_heads=2,
            head_dim=4,
            vocab_size=272,
            tie_word_embeddings=False,
            rope_theta=300.0,
        ),
        dtype="F32",
        gain=1.5,
    ),
    "run-qwen": Checkpoint(
        config=LLAMA
        | QWEN
        | {"hidden_size": 8, "num_attention_heads": 2, "num_key_value_heads": 1, "vocab_size": 280},
        dtype="BF16",
    ),
}


def files() -> Files:
    """Path below the vectors' folder -> bytes."""
    groups = (("", VALID), ("broken-", BROKEN | BROKEN_CONFIGS), ("", RUNS))
    return {
        f"checkpoints/{prefix}{name}/{file}": data
        for prefix, group in groups
        for name, checkpoint in group.items()
        for file, data in checkpoint.files().items()
    }
