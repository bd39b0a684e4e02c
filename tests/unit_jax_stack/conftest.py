"""Small inputs for a leg, built here: a tokenizer, a checkpoint, conversations, a run config."""

import os

os.environ.update({"NPROC": "1", "PJRT_NPROC": "1"})  # before jax starts

import json
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
from jaxtyping import install_import_hook

# In tests the shapes that annotations state are checked whenever a function is called or traced.
SHAPED = ("attention", "batch", "loss", "model", "numerics", "precision", "step")
install_import_hook([f"stacks.jax_stack.{name}" for name in SHAPED], "beartype.beartype")

SETTINGS = {
    "jax_enable_x64": True,
    # The same program is compiled once for all tests of a session; legs in processes of their own
    # compile for themselves.
    "jax_compilation_cache_dir": tempfile.mkdtemp(prefix="programs-"),
    "jax_persistent_cache_min_compile_time_secs": 0,
    "jax_persistent_cache_min_entry_size_bytes": -1,
}
for name, value in SETTINGS.items():
    jax.config.update(name, value)  # type: ignore[no-untyped-call]

from stacks.jax_stack.encode import ALPHABET  # noqa: E402
from stacks.jax_stack.safetensors import write_tensors  # noqa: E402

ROOT = Path(__file__).resolve().parents[2]
SPECIAL = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
MERGES = [("h", "e"), ("l", "l"), ("he", "ll"), ("Ġ", "w"), ("Ġw", "o"), ("t", "h"), ("Ġ", "th")]
TEMPLATE = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n"
    "{%- if m.role == 'assistant' %}{% generation %}{{ m.content }}<|im_end|>{% endgeneration %}\n"
    "{%- else %}{{ m.content }}<|im_end|>{% endif %}{% endfor %}\n"
)


def tokenizer_table(**changes: Any) -> dict[str, Any]:
    """A byte-level tokenizer of 3 + 256 + 7 tokens."""
    tokens = [*SPECIAL, *ALPHABET.values(), *(left + right for left, right in MERGES)]
    table = {
        "normalizer": None,
        "pre_tokenizer": {
            "type": "ByteLevel",
            "add_prefix_space": False,
            "trim_offsets": True,
            "use_regex": True,
        },
        "added_tokens": [
            {
                "id": i,
                "content": content,
                "special": True,
                "normalized": False,
                "lstrip": False,
                "rstrip": False,
                "single_word": False,
            }
            for i, content in enumerate(SPECIAL)
        ],
        "model": {
            "type": "BPE",
            "vocab": {token: i for i, token in enumerate(tokens)},
            "merges": [list(pair) for pair in MERGES],
        },
    }
    return table | changes


def checkpoint_shapes(*, vocab: int = 270, tied: bool = True, layers: int = 1) -> dict[str, Any]:
    """Shapes of a model of width 8, 2 heads over 1, head width 4, feed-forward width 12."""
    shapes: dict[str, Any] = {"model.embed_tokens.weight": (vocab, 8), "model.norm.weight": (8,)}
    for layer in range(layers):
        prefix = f"model.layers.{layer}."
        shapes |= {
            prefix + "input_layernorm.weight": (8,),
            prefix + "post_attention_layernorm.weight": (8,),
            prefix + "self_attn.q_proj.weight": (8, 8),
            prefix + "self_attn.k_proj.weight": (4, 8),
            prefix + "self_attn.v_proj.weight": (4, 8),
            prefix + "self_attn.o_proj.weight": (8, 8),
            prefix + "mlp.gate_proj.weight": (12, 8),
            prefix + "mlp.up_proj.weight": (12, 8),
            prefix + "mlp.down_proj.weight": (8, 12),
        }
    return shapes if tied else shapes | {"lm_head.weight": (vocab, 8)}


def model_table(**changes: Any) -> dict[str, Any]:
    """The `config.json` of `checkpoint_shapes`."""
    return {
        "model_type": "llama",
        "hidden_size": 8,
        "intermediate_size": 12,
        "num_hidden_layers": 1,
        "num_attention_heads": 2,
        "num_key_value_heads": 1,
        "vocab_size": 270,
        "rms_norm_eps": 1e-5,
        "tie_word_embeddings": True,
        "hidden_act": "silu",
        "rope_theta": 10000.0,
        "torch_dtype": "float32",
    } | changes


def write_model(folder: Path, *, seed: int = 0, tied: bool = True, **changes: Any) -> Path:
    """A random checkpoint in `folder`."""
    folder.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(seed)
    tensors = {
        name: (rng.normal(size=shape) * 0.3 + (len(shape) == 1)).astype(np.float32)
        for name, shape in checkpoint_shapes(tied=tied).items()
    }
    write_tensors(folder / "model.safetensors", tensors, {"format": "pt"})
    table = model_table(tie_word_embeddings=tied, **changes)
    (folder / "config.json").write_text(json.dumps(table))
    return folder


def conversation(id: str, *contents: str) -> str:
    """A line of JSONL whose roles alternate, the user first."""
    roles = ("user", "assistant")
    messages = [{"role": roles[i % 2], "content": text} for i, text in enumerate(contents)]
    return json.dumps({"id": id, "messages": messages}) + "\n"


def config_text(**changes: Any) -> str:
    """A run config as TOML; `changes` are `section_key=value`, value as TOML text."""
    tables: dict[str, dict[str, str]] = {
        "": {"contract": '"1"', "name": '"tiny"', "seed": "3"},
        "data": {
            "train": '["train.jsonl"]',
            "eval": '["eval.jsonl"]',
            "edge": '["edge.jsonl"]',
            "template": '"chat.jinja"',
            "tokenizer": '"tokenizer.json"',
            "bos_token": '""',
            "eos_token": '"<|im_end|>"',
            "pad_token": '"<|endoftext|>"',
            "mask": '"assistant"',
            "max_length": "40",
            "truncation_side": '"right"',
            "padding_side": '"right"',
            "pad_multiple": "40",
            "packing": "false",
        },
        "model": {"checkpoint": '"model"', "attention": '"eager"'},
        "train": {
            "precision": '"float64"',
            "num_steps": "6",
            "micro_batch_size": "2",
            "accumulation_steps": "2",
        },
        "optimizer": {
            "learning_rate": "1e-2",
            "beta1": "0.9",
            "beta2": "0.99",
            "epsilon": "1e-8",
            "weight_decay": "0.1",
            "decay": '"projections"',
            "frozen": "[]",
            "clip_norm": "1.0",
        },
        "schedule": {"kind": '"cosine"', "warmup_steps": "2", "min_ratio": "0.1"},
        "eval": {"every_steps": "3", "num_examples": "3"},
        "snapshot": {"every_steps": "2"},
        "trace": {"tensors_every": "2"},
        "runtime": {"device": '"cpu"', "threads": "1", "compile": "false"},
    }
    for key, value in changes.items():
        section, _, name = key.partition("_") if key.partition("_")[0] in tables else ("", "", key)
        tables[section][name] = value
    parts = [
        (f"[{section}]\n" if section else "") + "".join(f"{k} = {v}\n" for k, v in table.items())
        for section, table in tables.items()
    ]
    return "\n".join(parts)


@dataclass(frozen=True, kw_only=True)
class Finished:
    """A leg that has ended."""

    code: int
    stderr: str
    out: Path

    def json(self, name: str) -> Any:
        return json.loads((self.out / name).read_text())

    def steps(self) -> list[dict[str, Any]]:
        lines = (self.out / "steps.jsonl").read_bytes().splitlines()
        return [json.loads(line) for line in lines]


@dataclass(frozen=True, kw_only=True)
class Workshop:
    """A folder with all inputs of a leg, and the means to run one."""

    root: Path

    def write_config(self, **changes: Any) -> Path:
        path = self.root / "run.toml"
        path.write_text(config_text(**changes))
        return path

    def argv(self, verb: str, out: str, *flags: str) -> list[str]:
        names = {"--config": self.root / "run.toml", "--root": self.root, "--out": self.root / out}
        options = [str(part) for pair in names.items() for part in pair]
        return ["-m", "stacks.jax_stack", verb, *options, "--nonce", "n-1", *flags]

    def start(self, verb: str, out: str, *flags: str) -> "subprocess.Popen[str]":
        environment = {**os.environ, "PYTHONPATH": str(ROOT)}
        environment.pop("ORACLE_DEBUG", None)
        return subprocess.Popen(
            [sys.executable, *self.argv(verb, out, *flags)],
            cwd=self.root,
            env=environment,
            stderr=subprocess.PIPE,
            text=True,
        )

    def run(self, verb: str, out: str, *flags: str) -> Finished:
        process = self.start(verb, out, *flags)
        _, stderr = process.communicate(timeout=120)
        return Finished(code=process.returncode, stderr=stderr, out=self.root / out)


def fill_workshop(root: Path) -> Workshop:
    """Writes all inputs below `root`."""
    root.mkdir(parents=True, exist_ok=True)
    words = ["hello", "the world", "why", "ééé", "tell me all", "ok", "no"]
    lines = [conversation(f"t{i}", words[i % 7] + "?", words[(i * 3 + 1) % 7]) for i in range(10)]
    (root / "train.jsonl").write_text("".join(lines))
    (root / "eval.jsonl").write_text(
        "".join(conversation(f"e{i}", words[i], words[i + 1]) for i in range(4))
    )
    (root / "edge.jsonl").write_text(conversation("x0", "<|im_end|> typed", "fine"))
    (root / "chat.jinja").write_text(TEMPLATE)
    (root / "tokenizer.json").write_text(json.dumps(tokenizer_table()))
    write_model(root / "model")
    shop = Workshop(root=root)
    shop.write_config()
    return shop


@pytest.fixture
def workshop(tmp_path: Path) -> Workshop:
    return fill_workshop(tmp_path / "shop")


@pytest.fixture(scope="session")
def make_workshop(tmp_path_factory: pytest.TempPathFactory) -> Callable[[], Workshop]:
    return lambda: fill_workshop(tmp_path_factory.mktemp("shop"))
