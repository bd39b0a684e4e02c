"""Judged run directories, small and written by hand: nothing of the oracle is used to make them."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

COMMIT = "c" * 40
LARGE = 5 << 20  # bytes of a file that the store links instead of copying it


def run_name(number: int, config: str = "tiny") -> str:
    """The id of the run of a number: one a minute."""
    day, minute = divmod(number, 1440)
    time = f"{minute // 60:02d}{minute % 60:02d}00"
    return f"{config}-202601{day + 1:02d}T{time}Z-{number * 40503 % 65536:04x}"


def created(number: int) -> str:
    day, minute = divmod(number, 1440)
    return f"2026-01-{day + 1:02d}T{minute // 60:02d}:{minute % 60:02d}:00+00:00"


def manifest(number: int, *, config: str = "tiny", **changes: Any) -> dict[str, Any]:
    legs = ("torch", "jax")
    return {
        "run": run_name(number, config),
        "created": created(number),
        "mode": "train",
        "purpose": "cross",
        "status": "finished",
        "contract": "1",
        "config_path": "/nowhere/configs/tiny.toml",
        "config_sha256": "d" * 64,
        "root": "/nowhere/configs",
        "stacks_file": "/nowhere/stacks.toml",
        "git_commit": COMMIT,
        "legs": {
            leg: {"stack": leg, "argv": [leg], "nonce": f"nonce-{leg}", "process_id": None}
            for leg in legs
        },
        "manifest_version": "1",
    } | changes


def verdict(number: int, *, config: str = "tiny", name: str = "AGREE") -> dict[str, Any]:
    legs = ("torch", "jax")
    parted = name == "DIVERGED"
    first = {
        **{"id": "d1", "phase": "mask", "step": 3, "split": "train", "example": "t1"},
        **{"position": 7, "tensor": None, "field": "tokens.mask", "a": "target", "b": "ignored"},
        **{"absolute": None, "relative": None, "ulps": None, "allowed": None, "hint": None},
        **{"rule": "float64.toml: mask is exact", "clause": "S-06", "num_like_it": 0, "diff": None},
    }
    return {
        "verdict_version": "1",
        "verdict": name,
        "exit_code": {"AGREE": 0, "DIVERGED": 1, "ERROR": 2, "INCONCLUSIVE": 3}[name],
        "purpose": "cross",
        "mode": "train",
        "headline": f"torch and jax part in mask at step 3 (run {number})"
        if parted
        else f"torch and jax agree on 4 steps (run {number})",
        "run": run_name(number, config),
        "created": created(number),
        "contract": "1",
        "config": {"name": config, "sha256": "d" * 64, "precision": "float64", "num_steps": 4},
        "legs": [
            {
                "name": leg,
                "stack": leg,
                "trace": f"runs/{leg}",
                "code_sha256": str(place) * 64,
                "versions": {},
                "trace_sha256": "e" * 64,
                "error": None,
            }
            for place, leg in enumerate(legs)
        ],
        "tolerances": {"file": "float64.toml", "sha256": "f" * 64},
        "floor": None,
        "first": first if parted else None,
        "divergences": [first] if parted else [],
        "consequences": [],
        "phases": [
            {
                **{"phase": phase, "status": "diverged" if parted and phase == "mask" else "agree"},
                **{"unit": "examples", "num_compared": 4, "num_agreeing": 4, "agreement": 1.0},
                **{"first_step": None, "worst_relative": None, "worst_step": None, "reason": None},
            }
            for phase in ("text", "ids", "mask")
        ],
        "reasons": [],
        "warnings": [],
        "summary": {
            "num_steps": 4,
            "num_examples": 5,
            "num_tokens": 60,
            "mean_relative_loss_difference": 1e-16,
            "max_relative_loss_difference": 2e-16,
            "max_relative_grad_norm_difference": 3e-16,
        },
    }


def make_run(
    out: Path,
    number: int,
    *,
    config: str = "tiny",
    name: str = "AGREE",
    large: bytes | None = None,
    **changes: Any,
) -> Path:
    """Write the run directory of a number; `large` is the content of a snapshot in both traces."""
    path = out / run_name(number, config)
    dice = random.Random(number)
    put(path / "bundle" / "run.toml", b"name = 'tiny'\n")  # the same in all runs
    for leg in ("torch", "jax"):
        put(path / leg / "steps.jsonl", dice.randbytes(2000))
        put(path / leg / "tokens" / "00000.parquet", b"tokens of the leg " + leg.encode())
        if large is not None:
            put(path / leg / "snapshots" / "00000004.safetensors", large)
        put(path / leg / "done.json", json.dumps({"number": number, "leg": leg}).encode())
    put(path / "run.json", json.dumps(manifest(number, config=config, **changes)).encode())
    put(path / "verdict.json", json.dumps(verdict(number, config=config, name=name)).encode())
    return path


def write_verdict(path: Path, document: dict[str, Any]) -> None:
    """Write verdict.json as the oracle does: whole, by a rename."""
    fresh = put(path / "verdict.fresh", json.dumps(document).encode())
    fresh.replace(path / "verdict.json")


def put(path: Path, content: bytes) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    return path
