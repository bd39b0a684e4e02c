"""Writes the trace of one leg as JSON lines (docs/trace-format.md); copy it, or translate it.

Written for one tensor and one example a step, so that the format is not hidden by loops.
"""

import argparse
import hashlib
import json
import os
import platform
import sys
import time
import tomllib
from datetime import UTC, datetime
from pathlib import Path

import numpy as np

SPLITS = ("train", "eval", "edge")


def digest(content):
    """SHA-256 in lower-case hexadecimal."""
    return hashlib.sha256(content).hexdigest()


def statistics(step, kind, name, array):
    """One row of tensors/ (S-21), with the tensor's hash where the kind is `init`."""
    i = np.arange(array.size, dtype=np.uint32)
    z = i * np.uint32(0x9E3779B1) ^ np.uint32(int(digest(name.encode())[:8], 16))
    z = (z ^ z >> 16) * np.uint32(0x85EBCA6B)
    z = (z ^ z >> 13) * np.uint32(0xC2B2AE35)
    signed = np.where((z ^ z >> 16) >> 31, -1.0, 1.0) * array.ravel()
    row = {"step": step, "kind": kind, "name": name, "shape": list(array.shape)}
    row |= {"norm": float(np.linalg.norm(array)), "mean": float(array.mean())}
    row |= {"max_abs": float(abs(array).max())}
    row["sketch"] = np.pad(signed, (0, -array.size % 64)).reshape(-1, 64).sum(0).tolist()
    return row | {"sha256": digest(array.astype("<f8").tobytes()) if kind == "init" else None}


class TraceWriter:
    """Files of a trace directory; `done` lists them with size and hash."""

    def __init__(self):
        parser = argparse.ArgumentParser()
        parser.add_argument("mode", choices=["train"])
        for option in ("--config", "--root", "--out", "--nonce"):
            parser.add_argument(option, required=True)
        self.args = parser.parse_args()
        self.out, self.root = Path(self.args.out), Path(self.args.root)
        self.out.mkdir(parents=True, exist_ok=True)
        if any(self.out.iterdir()):
            sys.exit(f"{self.out} is not empty; choose another --out")
        self.raw = Path(self.args.config).read_bytes()
        self.config = tomllib.loads(self.raw.decode())
        self.listed, self.rows, self.started = {}, [], time.monotonic()

    def lines(self, name, rows, mode="wb"):
        """Write (or append) one JSON document a line, and keep the file's size and hash."""
        path = self.out / name
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open(mode) as stream:
            stream.writelines(json.dumps(row).encode() + b"\n" for row in rows)
        content = path.read_bytes()
        self.listed[name] = {"sha256": digest(content), "num_bytes": len(content)}

    def tokens(self, encode, max_length):
        """Write every example of the three splits; returns the rows of `train`."""
        data, rows = self.config["data"], []
        self.files = {s: [(self.root / name).read_bytes() for name in data[s]] for s in SPLITS}
        for split in SPLITS:
            lines = [x for content in self.files[split] for x in content.split(b"\n") if x]  # S-02
            for index, example in enumerate(map(json.loads, lines)):
                text, ids = encode(example["messages"])
                row = {"split": split, "index": index, "id": example["id"], "text": text}
                row |= {"num_tokens_before_truncation": len(ids), "typed_control_tokens": 0}
                ids = ids[:max_length]
                rows.append(row | {"ids": ids, "mask": [1] * len(ids)})
        self.lines("tokens/00000.jsonl", rows)
        self.num_examples = {s: sum(row["split"] == s for row in rows) for s in SPLITS}
        return [row for row in rows if row["split"] == "train"]

    def header(self, stack, name, array, model):
        """Facts are read back from live objects where there are any, never from the config."""
        data, opt, dtype = self.config["data"], self.config["optimizer"], str(array.dtype)
        self.inputs = {k: (self.root / data[k]).read_bytes() for k in ("template", "tokenizer")}
        files = {s: [digest(content) for content in self.files[s]] for s in SPLITS}
        files |= {key: digest(content) for key, content in self.inputs.items()}
        files |= {"model_config": digest(b""), "weights": {}}
        facts = {"seed": self.config["seed"], "files": files, "num_examples": self.num_examples}
        facts |= {"special_ids": {}, "pad_id": 0, "rows_per_step": 1, "model": model}
        facts |= {"steps_per_epoch": self.num_examples["train"], "num_parameters": array.size}
        facts |= {"num_steps": self.config["train"]["num_steps"]}
        facts |= {"num_trainable_parameters": array.size}
        entry = {"shape": list(array.shape), "trainable": True, "decay": False}
        facts["parameters"] = {name: entry}
        facts["optimizer"] = {k: opt[k] for k in ("beta1", "beta2", "epsilon")}
        facts["optimizer"] |= {"name": "adamw", "weight_decay": 0.0}
        kinds = ("param", "grad", "moment", "activation", "logits", "loss")
        facts["dtypes"] = dict.fromkeys(kinds, dtype)
        code = sorted(Path(sys.argv[0]).parent.glob("*.py"))
        hashed = [p.name.encode() + b"\0" + p.read_bytes() + b"\0" for p in code]  # S-25
        machine = {"system": platform.system(), "processor": platform.machine() or "unknown"}
        provenance = {"stack": stack, "code_path": str(code[0].parent), "device": "cpu"}
        provenance |= {"code_sha256": digest(b"".join(hashed))}
        provenance |= {"config_path": self.args.config, "python": platform.python_version()}
        provenance |= {"versions": {"numpy": np.__version__}, "threads": 1, "compile": False}
        provenance |= {"machine": machine | {"cores": os.cpu_count() or 1}, "attention": "none"}
        provenance |= {"started": datetime.now(UTC).isoformat(), "process_id": os.getpid()}
        head = {"trace_version": "1", "contract": "1", "mode": "train", "nonce": self.args.nonce}
        head |= {"config_sha256": digest(self.raw), "facts": facts, "provenance": provenance}
        self.lines("header.json", [head])
        self.rows.append(statistics(0, "init", name, array))

    def tensors(self, step, name, **arrays):
        """Keep the statistics of a step, where they are due (S-21)."""
        every, last = self.config["trace"]["tensors_every"], self.config["train"]["num_steps"] - 1
        if every and (step % every == 0 or step == last):
            self.rows += [statistics(step, kind, name, array) for kind, array in arrays.items()]

    def step(self, step, epoch, example, targets, scalars):
        """Write the line of one step of one example."""
        ids = np.array(example["ids"], "<i4")
        row = {"step": step, "epoch": epoch, "examples": [example["id"]]} | scalars
        row |= {"batch_shape": [1, 1, len(ids)], "batch_sha256": digest(ids.tobytes())}
        row |= {"num_tokens": len(ids), "num_targets": len(targets)}
        row |= {"eval_loss": None, "eval_targets": None}
        self.lines("steps.jsonl", [row | {"wall_seconds": time.monotonic() - self.started}], "ab")

    def done(self, name, **final):
        """Tensors, checkpoint (S-13), and the footer last and by rename: without it all is void."""
        self.lines("tensors/00000000.jsonl", self.rows)
        folder, params = self.out / "checkpoint", final["params"]
        folder.mkdir()
        entry = {"dtype": "F64", "shape": params.shape, "data_offsets": [0, params.nbytes]}
        head = json.dumps({name: entry}).encode()
        content = len(head).to_bytes(8, "little") + head + params.astype("<f8").tobytes()
        (folder / "model.safetensors").write_bytes(content)
        (folder / "tokenizer.json").write_bytes(self.inputs["tokenizer"])
        (folder / "chat_template.jinja").write_bytes(self.inputs["template"])
        hashed = {k: name.encode() + b"\0" + a.astype("<f8").tobytes() for k, a in final.items()}
        footer = {"nonce": self.args.nonce, "mode": "train", "num_examples": self.num_examples}
        footer |= {"num_steps": self.config["train"]["num_steps"], "files": self.listed}
        footer |= {"final": {f"{kind}_sha256": digest(content) for kind, content in hashed.items()}}
        (self.out / "done.tmp").write_text(json.dumps(footer))
        (self.out / "done.tmp").rename(self.out / "done.json")
