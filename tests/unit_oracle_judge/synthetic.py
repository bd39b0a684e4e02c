"""Synthetic traces, written to disk from S-24 alone: nothing of the oracle is used to make them.

`documents()` is a whole trace as plain values, which a test mutates; `write` puts it on disk with a
footer that holds; `read` is the oracle's own reader.
"""

from __future__ import annotations

import copy
import hashlib
import json
import math
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

if TYPE_CHECKING:
    from oracle.trace import Trace

CONTROL = {"<|endoftext|>": 0, "<|im_start|>": 1, "<|im_end|>": 2}
NAMES = ("torch", "jax")
CONFIG = "c" * 64
INPUT = b"of every input file"
ROWS = 4  # rows of a step: 2 micro-batches of 2
PARAMETERS = {
    "model.embed_tokens.weight": [16, 4],
    "model.layers.0.self_attn.k_proj.bias": [4],
    "model.layers.0.self_attn.q_proj.weight": [4, 4],
    "model.layers.2.mlp.up_proj.weight": [8, 4],
    "model.layers.10.mlp.up_proj.weight": [8, 4],
    "model.norm.weight": [4],
}
MODEL_CONFIG = {
    "model_type": "llama", "hidden_size": 4, "intermediate_size": 8, "num_hidden_layers": 11,
    "num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 2, "vocab_size": 16,
    "rope_theta": 10000.0, "rms_norm_eps": 1e-6, "tie_word_embeddings": True, "hidden_act": "silu",
}  # fmt: skip
NUMBERS = ("lr", "loss", "grad_norm", "clip_factor", "param_norm", "eval_loss")

Documents = dict[str, Any]


def documents(
    num_steps: int = 8,
    num_train: int = 14,
    *,
    stack: str = "torch",
    precision: str = "float64",
    seed: int = 7,
    mode: str = "train",
    tensors_every: int = 4,
) -> Documents:
    """Return a trace of `num_steps` steps: header, steps, tokens, tensors, final hashes."""
    tokens = [example("train", i, seed) for i in range(num_train)]
    tokens += [example("eval", i, seed) for i in range(3)]
    tokens += [example("edge", i, seed) for i in range(3)]
    if mode == "render":
        header = _header(stack, precision, seed, num_train, num_steps, mode)
        return {"header": header, "steps": [], "tokens": tokens, "tensors": [], "final": None}
    made = {
        "header": _header(stack, precision, seed, num_train, num_steps, mode),
        "steps": _steps(num_steps, tokens[:num_train], seed),
        "tokens": tokens,
        "tensors": list(_tensors(num_steps, tensors_every, seed)),
        "final": {f"{kind}_sha256": set_hash(held) for kind, held in moments(seed).items()}
        | {"params_sha256": set_hash(weights(seed))},
        "checkpoint": weights(seed),
    }
    return copy.deepcopy(made)


def example(split: str, index: int, seed: int) -> dict[str, Any]:
    """Return a rendered conversation of two turns; ordinary ids are the characters' code points."""
    rng = np.random.default_rng([seed, index, len(split)])
    words = ["fever", "cough", "gout", "angina", "sepsis", "anaemia"]
    question, answer, more = (" ".join(rng.choice(words, size=3)) for _ in range(3))
    turns = [("user", question), ("assistant", answer), ("user", "why?"), ("assistant", more)]
    return {
        "split": split,
        "index": index,
        "id": f"{split}-{index:03d}",
        **rendered(turns),
        "typed_control_tokens": 0,
    }


def rendered(turns: list[tuple[str, str]]) -> dict[str, Any]:
    """Return text, ids and mask of a ChatML-like rendering; answers and their end are targets."""
    text, ids, mask = "", [], []
    for role, content in turns:
        head, target = f"{role}\n{content}", role == "assistant"
        text += f"<|im_start|>{head}<|im_end|>\n"
        ids += [1, *map(ord, head), 2, ord("\n")]
        mask += [0] * (len(role) + 2) + [int(target)] * (len(content) + 1) + [0]
    return {"text": text, "ids": ids, "mask": mask, "num_tokens_before_truncation": len(ids)}


def order(ids: list[str], seed: int, epoch: int) -> list[str]:
    """Return the order of an epoch (S-08)."""
    return sorted(ids, key=lambda i: hashlib.sha256(f"{seed}:{epoch}:{i}".encode()).hexdigest())


def weights(seed: int) -> dict[str, np.ndarray]:
    """Return the final parameters."""
    rng = np.random.default_rng([seed, 2])
    return {name: rng.normal(size=shape) for name, shape in PARAMETERS.items()}


def moments(seed: int) -> dict[str, dict[str, np.ndarray]]:
    """Return the final moments `m` and `v`."""
    final = weights(seed).items()
    return {kind: {n: values + i for n, values in final} for i, kind in enumerate("mv", start=1)}


def set_hash(tensors: dict[str, np.ndarray]) -> str:
    """Return the hash of a set of tensors (S-22)."""
    parts = (name.encode() + b"\0" + tensors[name].tobytes() for name in sorted(tensors))
    return hashlib.sha256(b"".join(parts)).hexdigest()


def safetensors(tensors: dict[str, np.ndarray], dtype: str = "F64") -> bytes:
    """Return a safetensors file."""
    header, body = {}, b""
    for name, values in tensors.items():
        end = len(body) + values.nbytes
        header[name] = {"dtype": dtype, "shape": values.shape, "data_offsets": [len(body), end]}
        body += values.tobytes()
    text = json.dumps(header).encode()
    return len(text).to_bytes(8, "little") + text + body


def write(path: Path, made: Documents) -> Path:
    """Write a finished trace with a footer that holds."""
    path.mkdir(parents=True)
    files = {"header.json": json.dumps(made["header"]).encode()}
    if made["header"]["mode"] == "train":
        lines = "".join(json.dumps(_plain(row)) + "\n" for row in made["steps"])
        files["steps.jsonl"] = lines.encode()
    files["tokens/00000.parquet"] = _parquet(made["tokens"], TOKENS)
    if made["tensors"]:
        files["tensors/00000000.parquet"] = _parquet(made["tensors"], TENSORS)
    for name, content in files.items():
        (path / name).parent.mkdir(exist_ok=True)
        (path / name).write_bytes(content)
    if made.get("checkpoint"):
        folder = path / "checkpoint"
        folder.mkdir()
        (folder / "model.safetensors").write_bytes(safetensors(made["checkpoint"]))
        (folder / "config.json").write_text(json.dumps(MODEL_CONFIG))
        for name in ("tokenizer.json", "chat_template.jinja"):
            (folder / name).write_bytes(INPUT)
    done = {
        "nonce": made["header"]["nonce"],
        "mode": made["header"]["mode"],
        "num_steps": len(made["steps"]),
        "num_examples": made["header"]["facts"]["num_examples"],
        "files": {
            name: {"sha256": hashlib.sha256(content).hexdigest(), "num_bytes": len(content)}
            for name, content in files.items()
        },
        "final": made["final"],
    }
    (path / "done.json").write_text(json.dumps(done))
    return path


def read(path: Path, made: Documents) -> Trace:
    """Write a trace and read it with the oracle's reader."""
    from oracle.trace import read_trace

    return read_trace(write(path, made))


def count_again(made: Documents) -> Documents:
    """Set the number of examples and their indices after rows were added or removed."""
    for split in ("train", "eval", "edge"):
        rows = [row for row in made["tokens"] if row["split"] == split]
        for index, row in enumerate(rows):
            row["index"] = index
        made["header"]["facts"]["num_examples"][split] = len(rows)
    return made


def row_of(made: Documents, name: str) -> dict[str, Any]:
    """Return the token row of an example."""
    return next(row for row in made["tokens"] if row["id"] == name)


def _header(
    stack: str, precision: str, seed: int, num_train: int, num_steps: int, mode: str
) -> dict[str, Any]:
    digest = hashlib.sha256(INPUT).hexdigest()
    facts: dict[str, Any] = {
        "seed": seed,
        "files": {
            "train": [digest],
            "eval": [digest],
            "edge": [digest],
            "template": digest,
            "tokenizer": digest,
        },
        "num_examples": {"train": num_train, "eval": 3, "edge": 3},
        "special_ids": dict(CONTROL),
        "pad_id": 0,
    }
    if mode == "train":
        facts["files"] |= {"model_config": digest, "weights": {"model.safetensors": digest}}
        facts |= {
            "rows_per_step": ROWS,
            "steps_per_epoch": math.ceil(num_train / ROWS),
            "num_steps": num_steps,
            "parameters": {
                name: {"shape": shape, "trainable": True, "decay": len(shape) == 2}
                for name, shape in PARAMETERS.items()
            },
            "num_parameters": sum(math.prod(s) for s in PARAMETERS.values()),
            "num_trainable_parameters": sum(math.prod(s) for s in PARAMETERS.values()),
            "model": {
                "hidden_size": 4, "intermediate_size": 8, "num_layers": 11, "num_heads": 2,
                "num_kv_heads": 1, "head_dim": 2, "vocab_size": 16, "rope_base": 10000.0,
                "rms_norm_eps": 1e-6, "tied": True,
            },
            "optimizer": {
                "name": "adamw", "beta1": 0.9, "beta2": 0.999, "epsilon": 1e-8, "weight_decay": 0.1,
            },
            "dtypes": dict.fromkeys(
                ("param", "grad", "moment", "activation", "logits", "loss"), precision
            ),
        }  # fmt: skip
    return {
        "trace_version": "1",
        "contract": "1",
        "mode": mode,
        "nonce": f"nonce-{stack}",
        "config_sha256": CONFIG,
        "facts": facts,
        "provenance": {
            "stack": stack, "code_sha256": _hash(stack), "code_path": f"/code/{stack}",
            "config_path": "/runs/synthetic.toml", "python": "3.11.0",
            "versions": {"numpy": "2.4.6"},
            "machine": {"system": "Linux", "processor": "x86_64", "cores": 2},
            "device": "cpu", "threads": 1, "attention": "eager", "compile": False,
            "started": "2026-01-01T00:00:00Z", "process_id": 1,
        },
    }  # fmt: skip


def _steps(num_steps: int, train: list[dict[str, Any]], seed: int) -> list[dict[str, Any]]:
    rng = np.random.default_rng(seed)
    by_id = {row["id"]: row for row in train}
    per_epoch = math.ceil(len(train) / ROWS)
    rows = []
    for step in range(num_steps):
        epoch, place = divmod(step, per_epoch)
        taken = order(list(by_id), seed, epoch)[place * ROWS : (place + 1) * ROWS]
        grad_norm = float(rng.uniform(0.5, 3.0))
        last = step == num_steps - 1
        rows.append(
            {
                "step": step,
                "epoch": epoch,
                "examples": taken,
                "batch_shape": [2, 2, 128],
                "batch_sha256": _hash(" ".join(taken)),
                "num_tokens": sum(len(by_id[i]["ids"]) for i in taken),
                "num_targets": sum(sum(by_id[i]["mask"]) for i in taken),
                "lr": 1e-3 * (1 + math.cos(math.pi * step / num_steps)) / 2,
                "loss": 3.0 - 0.1 * step + float(rng.uniform(0, 0.05)),
                "grad_norm": grad_norm,
                "clip_factor": min(1.0, 1.0 / (grad_norm + 1e-6)),
                "param_norm": 10.0 + 0.01 * step,
                "eval_loss": 2.5 + float(rng.uniform(0, 0.1)) if last else None,
                "eval_targets": sum(sum(r["mask"]) for r in train[:3]) if last else None,
                "wall_seconds": 0.1 * step,
            }
        )
    return rows


def _tensors(num_steps: int, every: int, seed: int) -> Any:
    rng = np.random.default_rng([seed, 1])
    at = [s for s in range(num_steps) if every and (s % every == 0 or s == num_steps - 1)]
    left = {"param": weights(seed), **moments(seed)}  # what the last step leaves behind
    for step, kind in [(0, "init")] + [
        (s, k) for s in at for k in ("grad", "m", "v", "update", "param")
    ]:
        for name, shape in PARAMETERS.items():
            sketch = np.where(np.arange(64) < math.prod(shape), rng.normal(size=64), 0.0)
            if step == num_steps - 1 and kind in left:
                sketch = sketch_of(name, left[kind][name])
            yield {
                "step": step, "kind": kind, "name": name, "shape": shape,
                "norm": float(np.linalg.norm(sketch)), "mean": float(sketch.mean()),
                "max_abs": float(np.abs(sketch).max()), "sketch": sketch.tolist(),
                "sha256": _hash(f"{name}{seed}") if kind == "init" else None,
            }  # fmt: skip


def sketch_of(name: str, values: np.ndarray) -> np.ndarray:
    """Return the sketch of a tensor (S-21), entry by entry with Python's integers."""
    key = int.from_bytes(hashlib.sha256(name.encode()).digest()[:4], "big")
    found = np.zeros(64)
    for i, value in enumerate(values.ravel()):
        z = (i * 0x9E3779B1) % 2**32 ^ key
        z = (z ^ z >> 16) * 0x85EBCA6B % 2**32
        z = (z ^ z >> 13) * 0xC2B2AE35 % 2**32
        z ^= z >> 16
        found[i % 64] += -value if z >> 31 else value
    return found


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def _plain(row: dict[str, Any]) -> dict[str, Any]:
    """Return a row with what is not finite as a string (S-24)."""
    words = {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}
    return {
        key: words[str(value)] if isinstance(value, float) and not math.isfinite(value) else value
        for key, value in row.items()
    }


TOKENS = pa.schema(
    [
        ("split", pa.string()), ("index", pa.int64()), ("id", pa.string()), ("text", pa.string()),
        ("ids", pa.list_(pa.int32())), ("mask", pa.list_(pa.int8())),
        ("num_tokens_before_truncation", pa.int64()), ("typed_control_tokens", pa.int64()),
    ]
)  # fmt: skip
TENSORS = pa.schema(
    [
        ("step", pa.int64()), ("kind", pa.string()), ("name", pa.string()),
        ("shape", pa.list_(pa.int64())), ("norm", pa.float64()), ("mean", pa.float64()),
        ("max_abs", pa.float64()), ("sketch", pa.list_(pa.float64())), ("sha256", pa.string()),
    ]
)  # fmt: skip


def _parquet(rows: list[dict[str, Any]], schema: pa.Schema) -> bytes:
    sink = pa.BufferOutputStream()
    pq.write_table(pa.Table.from_pylist(rows, schema=schema), sink)
    return bytes(sink.getvalue())
