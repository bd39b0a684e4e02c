"""`oracle compare` on long synthetic traces: seconds, peak memory, and the time of merely reading
the same files with the same library.

    python -m benchmarks.compare_speed [--quick]

Goals: 10,000 steps and 10 million ids under 3 s and 500 MB, at most twice the time of reading them
with Polars; linear up to a million steps. The command is timed whole, imports included. For the
ratio both sides are timed within their process, without imports.
"""

from __future__ import annotations

import argparse
import hashlib
import importlib
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks import legs

SEGMENT = 1000  # examples of a token segment, and steps of a tensor segment
REPEATS = 5
JUDGE = """
import sys, time
from pathlib import Path
from oracle.trace import read_trace
from oracle.verdict import judge
began = time.perf_counter()
a, b = (read_trace(Path(path)) for path in sys.argv[1:])
judge(a, b, purpose="self", names=("a", "b"), tolerances=None, floor=None, run=None)
print(time.perf_counter() - began)
"""
READ = """
import sys, time
from pathlib import Path
import polars as pl
from oracle.columns import dtypes
began = time.perf_counter()
kept = []
for path in map(Path, sys.argv[1:]):
    kept.append(pl.read_ndjson(path / "steps.jsonl", schema=dtypes("step")))
    for folder in ("tokens", "tensors"):
        kept.append(pl.read_parquet(sorted((path / folder).glob("*.parquet"))))
print(time.perf_counter() - began)
"""


@dataclass(frozen=True, kw_only=True)
class Size:
    """A pair of traces. Tensors are traced every `tensors_every` steps."""

    num_steps: int
    num_examples: int = 10_000
    num_tokens: int = 1_000  # of an example
    num_tensors: int = 40
    tensors_every: int = 200


SIZES = (
    Size(num_steps=10_000),
    Size(num_steps=100_000, tensors_every=2_000),
    Size(num_steps=1_000_000, tensors_every=20_000),
    Size(num_steps=10_000, num_tensors=300, tensors_every=50),
)


def main() -> None:
    """Measure every size and write the result."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="10,000 steps only, nothing written")
    quick = parser.parse_args().quick
    sys.path.insert(0, str(legs.ROOT / "tests"))
    synthetic = importlib.import_module("unit_oracle_judge.synthetic")
    found = []
    for size in SIZES[:1] if quick else SIZES:
        with tempfile.TemporaryDirectory() as folder:
            paths = [Path(folder) / name for name in ("a", "b")]
            for path in paths:
                _write(path, synthetic, size)
            found.append(_measure(size, paths))
            print(json.dumps(found[-1]), flush=True)
    if quick:
        return
    result = {
        "what": "oracle compare on synthetic traces",
        "goal": "10,000 steps: < 3 s, < 500 MB, <= 2 x reading; linear to a million steps",
        "load": os.getloadavg()[0],
        "seconds_a_step_at_a_million_over_ten_thousand": _slope(found),
        "sizes": found,
    }
    legs.write_result("compare_speed", result)


def _measure(size: Size, paths: list[Path]) -> dict[str, Any]:
    """Alternate the command, its two parts and the mere reading; medians decide."""
    whole, peaks, judged, read = [], [], [], []
    for _ in range(REPEATS):
        seconds, peak = _command(paths)
        whole.append(seconds)
        peaks.append(peak)
        judged.append(_inside(JUDGE, paths))
        read.append(_inside(READ, paths))
    rows = len(range(0, size.num_steps, size.tensors_every)) * size.num_tensors * 5
    return {
        "num_steps": size.num_steps,
        "num_ids": size.num_examples * size.num_tokens,
        "num_tensor_rows": rows,
        "seconds": legs.summary(whole),
        "peak_mb": legs.summary(peaks),
        "judge_seconds": legs.summary(judged),
        "read_seconds": legs.summary(read),
        "ratio_to_reading": statistics.median(judged) / statistics.median(read),
    }


def _command(paths: list[Path]) -> tuple[float, float]:
    """Run `oracle compare`; returns its seconds and its peak memory in MB."""
    oracle = str(Path(sys.executable).with_name("oracle"))
    argv = [oracle, "compare", *map(str, paths), "--purpose", "self", "--floor", "none", "--json"]
    began = time.perf_counter()
    process = subprocess.Popen(argv, cwd=legs.ROOT, stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode not in (0, 3):  # nothing parts; the bare traces lack some channels
        raise RuntimeError(f"oracle compare ended with {process.returncode}")
    return time.perf_counter() - began, usage.ru_maxrss / 1024


def _inside(program: str, paths: list[Path]) -> float:
    argv = [sys.executable, "-c", program, *map(str, paths)]
    ended = subprocess.run(argv, cwd=legs.ROOT, check=True, capture_output=True, text=True)
    return float(ended.stdout)


def _slope(found: list[dict[str, Any]]) -> float:
    """Return how the time of a step grows from ten thousand to a million steps; 1 is linear.

    All three have the same ids and tensor rows, so differences between them are of steps alone.
    """
    small, middle, large = (entry["judge_seconds"]["median"] for entry in found[:3])
    return float((large - middle) / 900_000 / ((middle - small) / 90_000))


def _write(path: Path, synthetic: Any, size: Size) -> None:
    made = synthetic.documents(num_steps=1, num_train=14)
    header, template = made["header"], made["steps"][0]
    header["facts"]["num_examples"] = {"train": size.num_examples, "eval": 0, "edge": 0}
    header["facts"]["num_steps"] = size.num_steps
    files: dict[str, Path] = {}
    path.mkdir()
    (path / "header.json").write_text(json.dumps(header))
    files["header.json"] = path / "header.json"
    rng = np.random.default_rng(0)
    with (path / "steps.jsonl").open("w") as stream:
        for step in range(size.num_steps):
            first = 8 * step
            noise = rng.random()
            row = template | {
                "step": step,
                "examples": [f"train-{(first + k) % size.num_examples}" for k in range(8)],
                "batch_sha256": hashlib.sha256(str(step).encode()).hexdigest(),
                "loss": 2 + noise,
                "grad_norm": 1 + noise,
                "param_norm": 10 + noise,
                "wall_seconds": 0.1 * step,
            }
            stream.write(json.dumps(row) + "\n")
    files["steps.jsonl"] = path / "steps.jsonl"
    for folder, tables in (
        ("tokens", _tokens(rng, synthetic, size)),
        ("tensors", _tensors(rng, synthetic, size)),
    ):
        (path / folder).mkdir()
        for place, table in enumerate(tables):
            name = f"{folder}/{place:08d}.parquet"
            pq.write_table(table, path / name)
            files[name] = path / name
    done = {
        "nonce": header["nonce"],
        "mode": "train",
        "num_steps": size.num_steps,
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


def _tokens(rng: np.random.Generator, synthetic: Any, size: Size) -> Iterator[Any]:
    long = size.num_tokens
    for start in range(0, size.num_examples, SEGMENT):
        rows = range(start, min(start + SEGMENT, size.num_examples))
        ids = rng.integers(3, 4096, (len(rows), long), dtype=np.int32)
        yield pa.table(
            {
                "split": ["train"] * len(rows),
                "index": list(rows),
                "id": [f"train-{row}" for row in rows],
                "text": [f"{row} " + "fever and cough " * (long // 4) for row in rows],
                "ids": list(ids),
                "mask": list((ids % 2).astype(np.int8)),
                "num_tokens_before_truncation": [long] * len(rows),
                "typed_control_tokens": [0] * len(rows),
            },
            schema=synthetic.TOKENS,
        )


def _tensors(rng: np.random.Generator, synthetic: Any, size: Size) -> Iterator[Any]:
    """Yield segments of SEGMENT steps, of one traced step where fewer are traced."""
    names = [f"model.layers.{i}.mlp.up_proj.weight" for i in range(size.num_tensors)]
    traced = range(0, size.num_steps, size.tensors_every)
    by_segment = max(1, SEGMENT // size.tensors_every)
    for start in range(0, len(traced), by_segment):
        places = [(0, "init")] if start == 0 else []
        places += [
            (step, kind)
            for step in traced[start : start + by_segment]
            for kind in ("grad", "m", "v", "update", "param")
        ]
        sketches = rng.normal(size=(len(places) * len(names), 64))
        count = len(places) * len(names)
        hashes = ["f" * 64 if kind == "init" else None for _, kind in places for _ in names]
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
                "sha256": hashes,
            },
            schema=synthetic.TENSORS,
        )


if __name__ == "__main__":
    main()
