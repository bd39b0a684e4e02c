"""Small runs for the PyTorch stack's tests: a model, a tokenizer, conversations, a config.

The tokenizer is the 256 byte characters with a few merges and three added tokens; the model has
two query heads to a key/value head. Everything is made here, nothing is read from `data/`.
"""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["TOKENIZERS_PARALLELISM"] = "false"
ROOT = Path(__file__).parents[2]
TEMPLATE = (
    "{% for message in messages %}"
    "<|start|>{{ message['role'] }}:"
    "{% if message['role'] == 'assistant' %}"
    "{% generation %}{{ message['content'] }}<|end|>{% endgeneration %}"
    "{% else %}{{ message['content'] }}<|end|>{% endif %}"
    "{% endfor %}\n"
)
MODEL = {
    "model_type": "llama",
    "hidden_size": 16,
    "intermediate_size": 24,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 280,
    "rms_norm_eps": 1e-5,
    "rope_theta": 1000.0,
    "tie_word_embeddings": True,
    "hidden_act": "silu",
    "torch_dtype": "float32",
}
CONFIG: dict[str, dict[str, Any]] = {
    "data": {
        "train": ["train.jsonl"],
        "eval": ["eval.jsonl"],
        "edge": ["edge.jsonl"],
        "template": "chat.jinja",
        "tokenizer": "tokenizer.json",
        "bos_token": "",
        "eos_token": "<|end|>",
        "pad_token": "<|pad|>",
        "mask": "assistant",
        "max_length": 48,
        "truncation_side": "right",
        "padding_side": "right",
        "pad_multiple": 8,
        "packing": False,
    },
    "model": {"checkpoint": "checkpoint", "attention": "eager"},
    "train": {
        "precision": "float64",
        "num_steps": 7,
        "micro_batch_size": 2,
        "accumulation_steps": 2,
    },
    "optimizer": {
        "learning_rate": 0.01,
        "beta1": 0.9,
        "beta2": 0.99,
        "epsilon": 1e-8,
        "weight_decay": 0.1,
        "decay": "projections",
        "frozen": [],
        "clip_norm": 1.0,
    },
    "schedule": {"kind": "cosine", "warmup_steps": 2, "min_ratio": 0.1},
    "eval": {"every_steps": 3, "num_examples": 5},
    "snapshot": {"every_steps": 3},
    "trace": {"tensors_every": 2},
    "runtime": {"device": "cpu", "threads": 1, "compile": False},
}


def byte_alphabet() -> list[str]:
    """The usual alphabet of byte-level BPE, built as GPT-2's encoder does."""
    kept = [*range(33, 127), *range(161, 173), *range(174, 256)]
    table, extra = {}, 0
    for byte in range(256):
        if byte in kept:
            table[byte] = chr(byte)
        else:
            table[byte] = chr(256 + extra)
            extra += 1
    return [table[byte] for byte in range(256)]


def tokenizer_document() -> dict[str, Any]:
    """A `tokenizer.json`: ids 0..255 are the bytes."""
    merges = [["a", "n"], ["an", "s"], ["Ġ", "t"], ["e", "r"]]
    vocab = {character: number for number, character in enumerate(byte_alphabet())}
    for left, right in merges:
        vocab[left + right] = len(vocab)
    flags = {"lstrip": False, "rstrip": False, "single_word": False, "normalized": False}
    names = ["<|start|>", "<|end|>", "<|pad|>"]
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [
            {"id": 270 + number, "content": name, "special": True, **flags}
            for number, name in enumerate(names)
        ],
        "normalizer": None,
        "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True},
        "post_processor": {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True},
        "decoder": None,
        "model": {"type": "BPE", "vocab": vocab, "merges": merges},
    }


def conversations(prefix: str, count: int) -> str:
    """JSONL lines of different lengths."""
    lines = []
    for number in range(count):
        messages = [
            {"role": "user", "content": f"what is {number * 37} then?"},
            {"role": "assistant", "content": f"é {'answer ' * (number % 4)}{number}"},
        ]
        lines.append(json.dumps({"id": f"{prefix}-{number}", "messages": messages}))
    return "\n".join(lines) + "\n"


def parameter_shapes(config: dict[str, Any]) -> dict[str, tuple[int, ...]]:
    """Names and shapes of S-13, written out from the clause."""
    d, f, v = config["hidden_size"], config["intermediate_size"], config["vocab_size"]
    h, g = config["num_attention_heads"], config["num_key_value_heads"]
    k = config.get("head_dim") or d // h
    shapes: dict[str, tuple[int, ...]] = {"model.embed_tokens.weight": (v, d)}
    qkv_bias = config["model_type"] == "qwen2" or config.get("attention_bias", False)
    for layer in range(config["num_hidden_layers"]):
        at = f"model.layers.{layer}."
        for name, heads in (("q", h), ("k", g), ("v", g)):
            shapes[f"{at}self_attn.{name}_proj.weight"] = (heads * k, d)
            if qkv_bias:
                shapes[f"{at}self_attn.{name}_proj.bias"] = (heads * k,)
        shapes[f"{at}self_attn.o_proj.weight"] = (d, h * k)
        if config["model_type"] == "llama" and config.get("attention_bias", False):
            shapes[f"{at}self_attn.o_proj.bias"] = (d,)
        shapes[f"{at}mlp.gate_proj.weight"] = shapes[f"{at}mlp.up_proj.weight"] = (f, d)
        shapes[f"{at}mlp.down_proj.weight"] = (d, f)
        shapes[f"{at}input_layernorm.weight"] = (d,)
        shapes[f"{at}post_attention_layernorm.weight"] = (d,)
    shapes["model.norm.weight"] = (d,)
    if not config["tie_word_embeddings"]:
        shapes["lm_head.weight"] = (v, d)
    return shapes


def write_model(folder: Path, config: dict[str, Any], seed: int = 0) -> dict[str, torch.Tensor]:
    """A checkpoint with random weights, none of them trivial; returns them."""
    from safetensors.torch import save_file

    folder.mkdir(exist_ok=True)
    generator = torch.Generator().manual_seed(seed)
    tensors = {}
    for name, shape in parameter_shapes(config).items():
        noise = torch.randn(shape, generator=generator, dtype=torch.float32)
        tensors[name] = 1 + 0.3 * noise if "norm" in name else 0.2 * noise
    (folder / "config.json").write_text(json.dumps(config))
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    return tensors


def write_toml(path: Path, tables: dict[str, dict[str, Any]]) -> None:
    """The subset of TOML that a run config needs."""
    lines = ['contract = "1"', 'name = "small"', "seed = 5"]
    for name, table in tables.items():
        lines.append(f"[{name}]")
        lines += [f"{key} = {json.dumps(value)}" for key, value in table.items()]
    path.write_text("\n".join(lines) + "\n")


Run = Callable[..., Path]
Main = Callable[[list[str]], int]


@pytest.fixture
def small_run(tmp_path: Path) -> Run:
    """Writes a whole run below `tmp_path`; keywords "table__key" change the config."""

    def write(**changes: Any) -> Path:
        tables = {name: dict(table) for name, table in CONFIG.items()}
        for key, value in changes.items():
            table, _, name = key.partition("__")
            tables.setdefault(table, {})[name] = value
        (tmp_path / "train.jsonl").write_text(conversations("t", 11))
        (tmp_path / "eval.jsonl").write_text(conversations("v", 6))
        (tmp_path / "edge.jsonl").write_text(conversations("x", 2))
        (tmp_path / "chat.jinja").write_text(TEMPLATE)
        (tmp_path / "tokenizer.json").write_text(json.dumps(tokenizer_document()))
        write_model(tmp_path / "checkpoint", MODEL)
        path = tmp_path / "run.toml"
        write_toml(path, tables)
        return path

    return write


def run_leg(*arguments: str | Path, env: dict[str, str] | None = None) -> Any:
    """The stack as a process of its own."""
    return subprocess.run(
        [sys.executable, "-m", "stacks.torch_stack", *map(str, arguments)],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT), **(env or {})},
        check=False,
    )


@pytest.fixture
def in_process() -> Iterator[Main]:
    """Calls the command in this process, and puts back what belongs to a process of its own."""
    from stacks.torch_stack.__main__ import main

    handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    mask, environment, dtype = os.umask(0o022), dict(os.environ), torch.get_default_dtype()
    os.umask(mask)
    yield main
    os.umask(mask)
    os.environ.clear()
    os.environ.update(environment)
    torch.set_default_dtype(dtype)
    for number, handler in handlers.items():
        signal.signal(number, handler)


def leg_arguments(config: Path, out: Path, verb: str = "train") -> list[str]:
    """Arguments of a leg whose root is the config's folder."""
    root = str(config.parent)
    return [verb, "--config", str(config), "--root", root, "--out", str(out), "--nonce", "n"]
