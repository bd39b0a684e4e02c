"""What a leg leaves behind, held against what it recorded: statistics rows and snapshots.

`compare_checkpoint` holds `checkpoint/` against the footer; a footer that was written after the
weights were changed fits them. The rows of tensors/ were written by the steps themselves, so they
are a second witness: the delivered weights must be those of the last step, and a snapshot must hold
parameters and moments of its step (S-21, S-23).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

import numpy as np
import polars as pl

from oracle.checkpoint import HEAD, stored_tensors
from oracle.compare_checkpoint import has_checkpoint, tensors_sha256
from oracle.contract import Divergence
from oracle.errors import DataError
from oracle.outcome import divergence
from oracle.safetensors_header import StoredTensor, read_header, read_values
from oracle.statistics import sketch
from oracle.trace import Trace

# Two sums of the same float64 products in another order: sqrt(n) units for n = 1e8 are 2e-12.
SAME = 1e-9
PHASES = {"param": "params", "m": "moments", "v": "moments"}
FINAL = {"param": "params_sha256", "m": "m_sha256", "v": "v_sha256"}


def compare_deliverables(a: Trace, b: Trace, *, names: tuple[str, str]) -> list[Divergence]:
    """Hold each leg's checkpoint and snapshots against its own rows and footer."""
    found = []
    for place, (trace, name) in enumerate(zip((a, b), names, strict=True)):
        for phase, clause, field, step, fault in (*_checkpoint(trace), *_snapshots(trace)):
            shown = ["as it should be", "as it should be"]
            shown[place] = "not what was trained"
            made = divergence(
                phase,
                field=field,
                a=shown[0],
                b=shown[1],
                step=step,
                rule="what a leg leaves is what its last step made",
                hint=f"{name}: {fault}",
            )
            found.append(replace(made, clause=clause))
    return found


Fault = tuple[str, str, str, int, str]  # phase, clause, field, step, sentence


def _checkpoint(trace: Trace) -> Iterator[Fault]:
    last = trace.done["num_steps"] - 1
    rows = _rows(trace, last, "param")
    if not has_checkpoint(trace) or not rows:
        return
    try:
        stored = stored_tensors(trace.path / "checkpoint")
    except DataError:
        return  # `compare_checkpoint` says what is wrong with it
    if trace.header["facts"]["model"]["tied"]:
        stored.pop(HEAD, None)
    for tensor in _apart(stored, rows):
        yield (
            "params", "S-13", "checkpoint", last,
            f"{tensor} in checkpoint/ is not the tensor of the last step, though done.json fits it",
        )  # fmt: skip
        return


def _snapshots(trace: Trace) -> Iterator[Fault]:
    for path in sorted((trace.path / "snapshots").glob("[0-9]*.safetensors")):
        if not path.stem.isdigit():
            continue
        num_updates = int(path.stem)
        try:
            stored = read_header(path)
        except DataError as error:
            yield "params", "S-23", "snapshots", num_updates - 1, str(error).rstrip(".")
            continue
        for kind, phase in PHASES.items():
            fault = _snapshot_fault(trace, num_updates, kind, _of_kind(stored, kind))
            if fault is not None:
                where = f"snapshots/{path.name}: {fault}"
                yield phase, "S-23", f"snapshots.{kind}", num_updates - 1, where


def _snapshot_fault(
    trace: Trace, num_updates: int, kind: str, stored: Mapping[str, StoredTensor]
) -> str | None:
    final = trace.done["final"]
    if num_updates == trace.done["num_steps"] and final is not None:
        found, stated = tensors_sha256(stored), final[FINAL[kind]]
        if found != stated:
            return f"{kind} has the hash {found[:12]} and done.json states {stated[:12]}"
    if _was_replaced(trace, num_updates):
        return None  # a follower took an anchor over before it wrote this snapshot (S-30)
    apart = next(iter(_apart(stored, _rows(trace, num_updates - 1, kind))), None)
    return None if apart is None else f"{kind}/{apart} is not the tensor of step {num_updates - 1}"


def _was_replaced(trace: Trace, num_updates: int) -> bool:
    trajectory = trace.header.get("trajectory")
    if trajectory is None or trajectory["role"] != "follower":
        return False
    return bool(num_updates % trajectory["anchor_every"] == 0)


def _of_kind(stored: Mapping[str, StoredTensor], kind: str) -> Mapping[str, StoredTensor]:
    prefix = f"{kind}/"
    return {
        name.removeprefix(prefix): tensor
        for name, tensor in stored.items()
        if name.startswith(prefix)
    }


def _rows(trace: Trace, step: int, kind: str) -> Mapping[str, tuple[float, list[float]]]:
    """Return norm and sketch of each tensor of a kind at a step; nothing where none was traced."""
    rows = (
        trace.tensors.filter((pl.col("step") == step) & (pl.col("kind") == kind))
        .select("name", "norm", "sketch")
        .collect(engine="streaming")
    )
    return {name: (norm, sketch) for name, norm, sketch in rows.iter_rows()}


def _apart(
    stored: Mapping[str, StoredTensor], rows: Mapping[str, tuple[float, list[float]]]
) -> Iterator[str]:
    """Yield each tensor of a file whose sketch is not that of its row; one without a row passes."""
    for name, tensor in stored.items():
        if name not in rows:
            continue
        norm, recorded = rows[name]
        values = read_values(tensor)
        with np.errstate(over="ignore", invalid="ignore"):
            distance = float(np.linalg.norm(sketch(name, values) - np.asarray(recorded)))
        finite = bool(np.isfinite(values).all()) and np.isfinite(norm)
        dead = not any(recorded)  # `health_tensors` says so: such a row is no witness
        if finite and not dead and not distance <= SAME * norm:
            yield name
