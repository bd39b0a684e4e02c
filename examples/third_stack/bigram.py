"""A trainer of another kind behind the oracle: bytes, a table of bigram logits, AdamW in NumPy.

    bigram.py train --config FILE --root DIR --out DIR --nonce TEXT      (S-26)

The logits of the byte after `x` are row `x` of a (V, V) table, V = 256. A step is one example.
"""

import argparse
import json
import time
import tomllib
from pathlib import Path

import numpy as np
from trace_writer import TraceWriter, digest, set_hash, statistics

V, NAME, SPLITS = 256, "bigram.weight", ("train", "eval", "edge")
parser = argparse.ArgumentParser()
parser.add_argument("mode", choices=["train"])
for option in ("--config", "--root", "--out", "--nonce"):
    parser.add_argument(option, required=True)
args = parser.parse_args()
config = tomllib.loads(Path(args.config).read_text("utf-8"))
data, opt, num_steps = config["data"], config["optimizer"], config["train"]["num_steps"]
writer = TraceWriter(args.out, args.nonce)

files = {s: [(Path(args.root) / name).read_bytes() for name in data[s]] for s in SPLITS}
rows = []  # of tokens/
for split in SPLITS:
    lines = [line for content in files[split] for line in content.split(b"\n") if line]
    for index, example in enumerate(map(json.loads, lines)):
        text = "\n".join(message["content"] for message in example["messages"])
        ids = list(text.encode())[: data["max_length"]]
        row = {"split": split, "index": index, "id": example["id"], "text": text, "ids": ids}
        row |= {"mask": [1] * len(ids), "num_tokens_before_truncation": len(text.encode())}
        rows.append(row | {"typed_control_tokens": 0})
writer.lines("tokens/00000.jsonl", rows)
train = [row for row in rows if row["split"] == "train"]
num_examples = {s: sum(row["split"] == s for row in rows) for s in SPLITS}

theta, m, v = (np.zeros((V, V)) for _ in range(3))
writer.header(
    args.config,
    stack="bigram",
    code=sorted(Path(__file__).parent.glob("*.py")),
    facts={
        "seed": config["seed"],
        "files": {s: [digest(content) for content in files[s]] for s in SPLITS}
        | {k: digest((Path(args.root) / data[k]).read_bytes()) for k in ("template", "tokenizer")}
        | {"model_config": digest(b""), "weights": {}},
        "num_examples": num_examples,
        "special_ids": {},
        "pad_id": 0,
        "rows_per_step": 1,
        "steps_per_epoch": len(train),
        "num_steps": num_steps,
        "parameters": {NAME: {"shape": list(theta.shape), "trainable": True, "decay": False}},
        "num_parameters": theta.size,
        "num_trainable_parameters": theta.size,
        # A bigram table has no layers: the sizes that it lacks are 1.
        "model": dict.fromkeys(
            ("intermediate_size", "num_layers", "num_heads", "num_kv_heads", "head_dim"), 1
        )
        | {"hidden_size": V, "vocab_size": V, "rope_base": 0, "rms_norm_eps": 0, "tied": True},
        "optimizer": {"name": "adamw", "beta1": opt["beta1"], "beta2": opt["beta2"]}
        | {"epsilon": opt["epsilon"], "weight_decay": 0.0},
        "dtypes": {
            **{"param": str(theta.dtype), "grad": str(theta.dtype), "moment": str(m.dtype)},
            **{"activation": "float64", "logits": "float64", "loss": "float64"},
        },
    },
)

tensors, started = [statistics(0, "init", NAME, theta)], time.monotonic()
for t in range(num_steps):
    epoch, place = divmod(t, len(train))
    if place == 0:  # S-08
        train.sort(key=lambda row: digest(f"{config['seed']}:{epoch}:{row['id']}".encode()))
    ids = np.array(train[place]["ids"])
    x, y, at = ids[:-1], ids[1:], np.arange(len(ids) - 1)
    p = np.exp(theta[x])  # (T, V)
    p /= p.sum(axis=1, keepdims=True)
    loss, grad = float(-np.log(p[at, y]).mean()), np.zeros_like(theta)
    p[at, y] -= 1
    np.add.at(grad, x, p / len(y))
    m = opt["beta1"] * m + (1 - opt["beta1"]) * grad
    v = opt["beta2"] * v + (1 - opt["beta2"]) * grad**2
    m_hat, v_hat = m / (1 - opt["beta1"] ** (t + 1)), v / (1 - opt["beta2"] ** (t + 1))
    theta -= opt["learning_rate"] * m_hat / (np.sqrt(v_hat) + opt["epsilon"])
    tensors.append(statistics(t, "grad", NAME, grad))
    step = {"step": t, "epoch": epoch, "examples": [train[place]["id"]], "loss": loss}
    step |= {"batch_shape": [1, 1, len(ids)], "batch_sha256": digest(ids.astype("<i4").tobytes())}
    step |= {"num_tokens": len(ids), "num_targets": len(y), "lr": opt["learning_rate"]}
    step |= {"grad_norm": float(np.linalg.norm(grad)), "clip_factor": 1.0, "eval_loss": None}
    step |= {"param_norm": float(np.linalg.norm(theta)), "eval_targets": None}
    writer.lines("steps.jsonl", [step | {"wall_seconds": time.monotonic() - started}], "ab")
writer.lines("tensors/00000000.jsonl", tensors)
final = {"params": theta, "m": m, "v": v}
final = {f"{kind}_sha256": set_hash(NAME, array) for kind, array in final.items()}
writer.done(num_steps, num_examples, final)
