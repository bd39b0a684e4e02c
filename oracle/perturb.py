"""Variants of a run that mean the same: what a leg is compared with to measure its own noise.

A variant is a run config of its own with absolute paths. The weights of one are moved by one unit
in the last place of the run's dtype, up or down by a seeded coin, zeros excepted.
"""

from __future__ import annotations

import copy
import hashlib
import json
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import tomli_w

from oracle.config import RunConfig
from oracle.errors import DataError
from oracle.files import naming, write_atomic
from oracle.safetensors_header import StoredTensor, read_header, read_values
from oracle.tolerance import DTYPES

VARIANTS = ("repeat", "threads", "attention", "ulp")
NAMES = {"float64": "F64", "float32": "F32"}


def write_variants(
    config: RunConfig, folder: Path, variants: Sequence[str] = VARIANTS
) -> Mapping[str, Path]:
    """Write the config of the base run and of each variant; returns their paths by name.

    What is there already is written again with the same bytes, so a leg can be resumed on it.
    """
    base = config.absolute_values()
    threads, attention = base["runtime"]["threads"], base["model"]["attention"]
    moved = folder / "moved-weights"
    if "ulp" in variants and not moved.exists():
        half = folder / "half-moved-weights"  # a killed call leaves none that looks whole
        shutil.rmtree(half, ignore_errors=True)
        with naming(moved):
            move_weights(Path(base["model"]["checkpoint"]), half, precision=config.precision)
        half.rename(moved)
    changes: dict[str, dict[str, dict[str, Any]]] = {
        "base": {},
        "repeat": {},
        "threads": {"runtime": {"threads": 1 if threads > 1 else 2}},
        "attention": {"model": {"attention": "fused" if attention == "eager" else "eager"}},
        "ulp": {"model": {"checkpoint": str(moved)}},
    }
    paths = {}
    for name in ("base", *variants):
        values = copy.deepcopy(base)
        for table, entries in changes[name].items():
            values[table] |= entries
        paths[name] = folder / f"{name}.toml"
        write_atomic(paths[name], tomli_w.dumps(values).encode())
    return paths


def move_weights(source: Path, target: Path, *, precision: str) -> None:
    """Write a checkpoint whose weights are one unit in the last place of `precision` away."""
    target.mkdir()
    shutil.copyfile(source / "config.json", target / "config.json")
    tied = json.loads((source / "config.json").read_text("utf-8"))["tie_word_embeddings"]
    stored: dict[str, StoredTensor] = {}
    for path in sorted(source.glob("*.safetensors")):
        stored |= read_header(path)
    if not stored:
        raise DataError(f"checkpoint {source} holds no safetensors file.")
    moved = {
        name: _moved(name, read_values(tensor), precision)
        for name, tensor in stored.items()
        if not name.endswith("rotary_emb.inv_freq") and not (tied and name == "lm_head.weight")
    }
    _write_safetensors(target / "model.safetensors", moved, NAMES[precision])


def _moved(name: str, values: npt.NDArray[Any], precision: str) -> npt.NDArray[Any]:
    held = values.astype(DTYPES[precision])
    seed = int.from_bytes(hashlib.sha256(name.encode()).digest()[:8], "big")
    up = np.random.default_rng(seed).random(held.shape) < 0.5
    toward = np.where(up, np.inf, -np.inf).astype(held.dtype)
    return np.where(held == 0, held, np.nextafter(held, toward))


def _write_safetensors(path: Path, tensors: Mapping[str, npt.NDArray[Any]], dtype: str) -> None:
    header, end = {}, 0
    for name, values in tensors.items():
        begin, end = end, end + values.nbytes
        header[name] = {"dtype": dtype, "shape": list(values.shape), "data_offsets": [begin, end]}
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with path.open("wb") as stream:
        stream.write(len(text).to_bytes(8, "little") + text)
        for values in tensors.values():
            stream.write(np.ascontiguousarray(values).tobytes())
