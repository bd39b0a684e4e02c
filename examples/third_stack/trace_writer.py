"""Writes the trace of one leg as JSON lines (docs/trace-format.md); copy it, or translate it."""

import hashlib
import json
import os
import platform
import sys
from datetime import UTC, datetime
from pathlib import Path

import numpy as np


def digest(content):
    """SHA-256 in lower-case hexadecimal."""
    return hashlib.sha256(content).hexdigest()


def set_hash(name, array):
    """S-22 for a set of one tensor."""
    return digest(name.encode() + b"\0" + array.astype("<f8").tobytes())


def statistics(step, kind, name, array):
    """One row of tensors/ (S-21), with the tensor's hash where the kind is `init`."""
    i = np.arange(array.size, dtype=np.uint32)
    z = i * np.uint32(0x9E3779B1) ^ np.uint32(int(digest(name.encode())[:8], 16))
    z = (z ^ z >> 16) * np.uint32(0x85EBCA6B)
    z = (z ^ z >> 13) * np.uint32(0xC2B2AE35)
    signed = np.where((z ^ z >> 16) >> 31, -1.0, 1.0) * array.ravel()
    return {
        "step": step,
        "kind": kind,
        "name": name,
        "shape": list(array.shape),
        "norm": float(np.linalg.norm(array)),
        "mean": float(array.mean()),
        "max_abs": float(abs(array).max()),
        "sketch": np.pad(signed, (0, -array.size % 64)).reshape(-1, 64).sum(0).tolist(),
        "sha256": digest(array.astype("<f8").tobytes()) if kind == "init" else None,
    }


class TraceWriter:
    """Files of a trace directory; `done` lists them with size and hash."""

    def __init__(self, out, nonce):
        self.out, self.nonce, self.listed = Path(out), nonce, {}
        self.out.mkdir(parents=True, exist_ok=True)
        if any(self.out.iterdir()):
            sys.exit(f"{out} is not empty; choose another --out")

    def lines(self, name, rows, mode="wb"):
        """Write (or append) one JSON document a line, and keep the file's size and hash."""
        path = self.out / name
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open(mode) as stream:
            stream.writelines(json.dumps(row).encode() + b"\n" for row in rows)
        content = path.read_bytes()
        self.listed[name] = {"sha256": digest(content), "num_bytes": len(content)}

    def header(self, config_path, facts, stack, code):
        """`facts` are read back from live objects, never from the config (S-25)."""
        machine = {"system": platform.system(), "processor": platform.machine() or "unknown"}
        provenance = {
            "stack": stack,
            "code_sha256": digest(b"".join(p.read_bytes() for p in code)),
            "code_path": str(code[0].parent),
            "config_path": str(config_path),
            "python": platform.python_version(),
            "versions": {"numpy": np.__version__},
            "machine": machine | {"cores": os.cpu_count() or 1},
            "device": "cpu",
            "threads": 1,
            "attention": "none",
            "compile": False,
            "started": datetime.now(UTC).isoformat(),
            "process_id": os.getpid(),
        }
        head = {"trace_version": "1", "contract": "1", "mode": "train", "nonce": self.nonce}
        head["config_sha256"] = digest(Path(config_path).read_bytes())
        self.lines("header.json", [head | {"facts": facts, "provenance": provenance}])

    def done(self, num_steps, num_examples, final):
        """The footer, last and by rename: a trace without it is not finished."""
        footer = {"nonce": self.nonce, "mode": "train", "num_steps": num_steps, "final": final}
        footer |= {"num_examples": num_examples, "files": self.listed}
        (self.out / "done.tmp").write_text(json.dumps(footer))
        (self.out / "done.tmp").rename(self.out / "done.json")
