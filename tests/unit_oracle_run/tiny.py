"""A tiny run whose files are all valid, legs that behave as told, and traces that are right.

Nothing here trains: the legs are small scripts, so these tests need neither torch nor jax.
"""

from __future__ import annotations

import json
import struct
import sys
from pathlib import Path
from typing import Any

import tomli_w

from tests.unit_oracle_run import fake_leg

TEMPLATE = (
    "{% for m in messages %}{% if m['role'] == 'assistant' %}{% generation %}{{ m['content'] }}"
    "{% endgeneration %}{% else %}{{ m['content'] }}{% endif %}{% endfor %}\n"
)
MODEL = {
    "model_type": "llama",
    "hidden_size": 8,
    "intermediate_size": 12,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "vocab_size": 260,
    "rms_norm_eps": 1e-5,
    "tie_word_embeddings": True,
    "hidden_act": "silu",
    "rope_theta": 10000.0,
}
SHAPES = {
    "model.embed_tokens.weight": [260, 8],
    "model.layers.0.input_layernorm.weight": [8],
    "model.layers.0.self_attn.q_proj.weight": [8, 8],
    "model.layers.0.self_attn.k_proj.weight": [4, 8],
    "model.layers.0.self_attn.v_proj.weight": [4, 8],
    "model.layers.0.self_attn.o_proj.weight": [8, 8],
    "model.layers.0.post_attention_layernorm.weight": [8],
    "model.layers.0.mlp.gate_proj.weight": [12, 8],
    "model.layers.0.mlp.up_proj.weight": [12, 8],
    "model.layers.0.mlp.down_proj.weight": [8, 12],
    "model.norm.weight": [8],
}


def values() -> dict[str, Any]:
    """A valid run config of four steps."""
    return {
        "contract": "1",
        "name": "tiny",
        "seed": 3,
        "data": {
            "train": ["train.jsonl"],
            "eval": ["eval.jsonl"],
            "edge": ["edge.jsonl"],
            "template": "chat.jinja",
            "tokenizer": "tokenizer.json",
            "bos_token": "",
            "eos_token": "<end>",
            "pad_token": "<pad>",
            "mask": "assistant",
            "max_length": 16,
            "truncation_side": "right",
            "padding_side": "right",
            "pad_multiple": 4,
            "packing": False,
        },
        "model": {"checkpoint": "checkpoint", "attention": "eager"},
        "train": {
            "precision": "float64",
            "num_steps": 4,
            "micro_batch_size": 2,
            "accumulation_steps": 1,
        },
        "optimizer": {
            "learning_rate": 1e-3,
            "beta1": 0.9,
            "beta2": 0.99,
            "epsilon": 1e-8,
            "weight_decay": 0.0,
            "decay": "all",
            "frozen": [],
            "clip_norm": 1.0,
        },
        "schedule": {"kind": "constant", "warmup_steps": 1, "min_ratio": 0.0},
        "eval": {"every_steps": 0, "num_examples": 1},
        "snapshot": {"every_steps": 0},
        "trace": {"tensors_every": 0},
        "runtime": {"device": "cpu", "threads": 1, "compile": False},
    }


def safetensors(shapes: dict[str, list[int]], fill: float = 0.5) -> bytes:
    """A float32 safetensors file."""
    header, body = {}, b""
    for name, shape in shapes.items():
        num = 1
        for size in shape:
            num *= size
        end = len(body) + 4 * num
        header[name] = {"dtype": "F32", "shape": shape, "data_offsets": [len(body), end]}
        body += struct.pack("<f", fill) * num
    text = json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + body


def tokenizer() -> dict[str, Any]:
    return {
        "version": "1.0",
        "added_tokens": [
            {"id": 256, "content": "<pad>", "special": True},
            {"id": 257, "content": "<end>", "special": True},
        ],
        "normalizer": None,
        "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": False},
        "model": {"type": "BPE", "vocab": {chr(65 + i): i for i in range(200)}, "merges": []},
    }


def conversation(example_id: str, question: str = "What?", answer: str = "That.") -> dict[str, Any]:
    messages = [
        {"role": "user", "content": question},
        {"role": "assistant", "content": answer},
    ]
    return {"id": example_id, "messages": messages}


def lines(*documents: object) -> str:
    return "".join(json.dumps(document) + "\n" for document in documents)


class TinyRun:
    """A config and its files in a folder; change `values` or files, then `write`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.values = values()
        self.config = folder / "run.toml"
        self.model: dict[str, Any] = dict(MODEL)
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "checkpoint").mkdir()
        self.put("train.jsonl", lines(*(conversation(f"t{i}") for i in range(5))))
        self.put("eval.jsonl", lines(conversation("e0")))
        self.put("edge.jsonl", lines(conversation("x0")))
        self.put("chat.jinja", TEMPLATE)
        self.put("tokenizer.json", json.dumps(tokenizer()))
        (folder / "checkpoint" / "model.safetensors").write_bytes(safetensors(SHAPES))
        self.write()

    def put(self, name: str, text: str) -> Path:
        path = self.folder / name
        path.write_text(text, "utf-8")
        return path

    def set(self, dotted: str, value: object) -> None:
        table, _, key = dotted.rpartition(".")
        (self.values[table] if table else self.values)[key] = value
        self.write()

    def write(self) -> None:
        self.config.write_text(tomli_w.dumps(self.values), "utf-8")
        self.put("checkpoint/config.json", json.dumps(self.model))


def stacks_file(folder: Path, **behaviours: str) -> Path:
    """A stacks file whose entries start `fake_leg.py` with a behaviour each."""
    script = str(Path(fake_leg.__file__).resolve())
    entries = {
        name: {"argv": [sys.executable, "-S", script, name, behaviour], "env": {}}
        for name, behaviour in behaviours.items()
    }
    path = folder / "legs" / "stacks.toml"
    path.parent.mkdir(exist_ok=True)
    path.write_text(tomli_w.dumps(entries), "utf-8")
    return path


def write_trace(tiny: TinyRun, out: Path, *, name: str = "one", nonce: str = "n1") -> Path:
    """A whole, valid trace of the tiny run."""
    fake_leg.train(
        fake_leg.Options(
            name=name,
            behaviour="good",
            mode="train",
            config=tiny.config,
            root=tiny.folder,
            out=out,
            nonce=nonce,
            resume=False,
        )
    )
    return out


def relist(trace: Path) -> None:
    """Bring the sizes and hashes of `done.json` up to what the files are now."""
    done = json.loads((trace / "done.json").read_text())
    done["files"] = {name: fake_leg.listing(trace / name) for name in done["files"]}
    (trace / "done.json").write_text(json.dumps(done))
