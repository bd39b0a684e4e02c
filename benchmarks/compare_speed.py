"""How long `judge` takes on two long traces, and how much memory: 10,000 steps, 10 million ids.

    python benchmarks/compare_speed.py [--steps 10000] [--examples 10000] [--tokens 1000]

Writes two equal synthetic traces, judges them in a fresh process, prints seconds and peak memory.
Goal: under 3 seconds and 500 MB.
"""

from __future__ import annotations

import argparse
import hashlib
import importlib
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

ROOT = Path(__file__).resolve().parent.parent
SEGMENT = 1000  # examples of a token segment
JUDGE = """
import resource, sys, time
from pathlib import Path
from oracle.trace import read_trace
from oracle.verdict import judge
start = time.perf_counter()
a, b = (read_trace(Path(path)) for path in sys.argv[1:])
read = time.perf_counter()
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
verdict = judge(
    a, b, purpose="self", names=("a", "b"), tolerances=None, floor=None, run=None
)
end = time.perf_counter()
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
print(f"{verdict.verdict}: read {read - start:.2f} s, judge {end - read:.2f} s, "
      f"peak {peak / 1024:.0f} MB ({before / 1024:.0f} MB after reading)")
"""


def main() -> None:
    """Write the traces and time the judge."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=10_000)
    parser.add_argument("--examples", type=int, default=10_000)
    parser.add_argument("--tokens", type=int, default=1_000)
    parser.add_argument("--tensors", type=int, default=40, help="tensors of the model")
    parser.add_argument("--tensors-every", type=int, default=200, help="steps")
    options = parser.parse_args()
    sys.path.insert(0, str(ROOT / "tests"))
    synthetic = importlib.import_module("unit_oracle_judge.synthetic")

    with tempfile.TemporaryDirectory() as folder:
        paths = [Path(folder) / name for name in ("a", "b")]
        for path in paths:
            _write(path, synthetic, options)
        print(
            f"{options.steps} steps, {options.examples * options.tokens / 1e6:g} million ids, "
            f"{options.steps // options.tensors_every * options.tensors * 5} tensor rows"
        )
        for _ in range(3):
            subprocess.run([sys.executable, "-c", JUDGE, *map(str, paths)], check=True, cwd=ROOT)


def _write(path: Path, synthetic: Any, options: argparse.Namespace) -> None:
    made = synthetic.documents(num_steps=options.steps, num_train=14)
    header = made["header"]
    header["facts"]["num_examples"] = {"train": options.examples, "eval": 0, "edge": 0}
    files: dict[str, Path] = {}
    path.mkdir()
    (path / "header.json").write_text(json.dumps(header))
    files["header.json"] = path / "header.json"
    with (path / "steps.jsonl").open("w") as stream:
        for step in made["steps"]:
            first = 8 * step["step"]
            step["examples"] = [f"train-{(first + k) % options.examples}" for k in range(8)]
            stream.write(json.dumps(step) + "\n")
    files["steps.jsonl"] = path / "steps.jsonl"
    rng = np.random.default_rng(0)
    for folder, tables in (
        ("tokens", _tokens(rng, synthetic, options)),
        ("tensors", _tensors(rng, synthetic, options)),
    ):
        (path / folder).mkdir()
        for place, table in enumerate(tables):
            name = f"{folder}/{place:08d}.parquet"
            pq.write_table(table, path / name)
            files[name] = path / name
    done = {
        "nonce": header["nonce"],
        "mode": "train",
        "num_steps": options.steps,
        "num_examples": header["facts"]["num_examples"],
        "files": {
            name: {
                "sha256": hashlib.sha256(file.read_bytes()).hexdigest(),
                "num_bytes": file.stat().st_size,
            }
            for name, file in files.items()
        },
        "final": made["final"],
    }
    (path / "done.json").write_text(json.dumps(done))


def _tokens(rng: np.random.Generator, synthetic: Any, options: argparse.Namespace) -> Any:
    size = options.tokens
    for start in range(0, options.examples, SEGMENT):
        rows = range(start, min(start + SEGMENT, options.examples))
        ids = rng.integers(3, 4096, (len(rows), size), dtype=np.int32)
        yield pa.table(
            {
                "split": ["train"] * len(rows),
                "index": list(rows),
                "id": [f"train-{row}" for row in rows],
                "text": ["fever and cough " * (size // 4) for _ in rows],
                "ids": list(ids),
                "mask": list((ids % 2).astype(np.int8)),
                "num_tokens_before_truncation": [size] * len(rows),
                "typed_control_tokens": [0] * len(rows),
            },
            schema=synthetic.TOKENS,
        )


def _tensors(rng: np.random.Generator, synthetic: Any, options: argparse.Namespace) -> Any:
    names = [f"model.layers.{i}.mlp.up_proj.weight" for i in range(options.tensors)]
    places = [(0, "init")] + [
        (step, kind)
        for step in range(0, options.steps, options.tensors_every)
        for kind in ("grad", "m", "v", "update", "param")
    ]
    sketches = rng.normal(size=(len(places) * len(names), 64))
    count = len(places) * len(names)
    yield pa.table(
        {
            "step": [step for step, _ in places for _ in names],
            "kind": [kind for _, kind in places for _ in names],
            "name": names * len(places),
            "shape": [[8, 8]] * count,
            "norm": np.linalg.norm(sketches, axis=1),
            "mean": sketches.mean(axis=1),
            "max_abs": np.abs(sketches).max(axis=1),
            "sketch": list(sketches),
            "sha256": ["f" * 64 if kind == "init" else None for _, kind in places for _ in names],
        },
        schema=synthetic.TENSORS,
    )


if __name__ == "__main__":
    main()
