"""Tensors: initial weights exactly (S-13, S-22), and the distance of two by their sketches (S-21).

The distance of two sketches estimates that of the tensors; a difference of the norms counts only
beyond their promised accuracy (S-15). It is relative to the larger norm, or to `guard` times the
norm of all tensors of the kind at the step if that is larger: a gradient that is zero in exact
arithmetic is rounding noise of the size eps x the whole.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator
from dataclasses import replace

import numpy as np
import polars as pl

from oracle.align import align_tensors
from oracle.compare_numbers import Cells, cells
from oracle.contract import Consequence, Divergence, phases
from oracle.outcome import (
    Outcome,
    divergence,
    explained_by_facts,
    grouped,
    in_model_order,
    outcome,
)
from oracle.statistics import NUM_BUCKETS
from oracle.tolerance import Floats
from oracle.trace import Trace

KINDS = {
    field.removeprefix("tensors."): phase.name
    for phase in phases()
    for field in phase.fields
    if field.startswith("tensors.") and not phase.exact
}
NORM_ACCURACY = 1e-7  # relative, S-15: a sum of squares in plain order is far less exact than eps


def compare_weights(
    a: Trace, b: Trace, *, names: tuple[str, str], parted_facts: Collection[str]
) -> Outcome:
    """Compare shape and hash of every initial tensor."""
    wanted = ("shape", "norm", "max_abs", "sha256")
    chunks = align_tensors(a, b, ["init"], wanted)
    rows = [row for chunk in chunks for row in chunk.iter_rows(named=True)]
    rows.sort(key=lambda row: in_model_order(row["name"]))
    hashes = [{row[f"sha256_{leg}"]: row["name"] for row in rows} for leg in "ab"]
    parted = [row for row in rows if _parts(row)]
    found = []
    for row in parted:
        hint = _weights_hint(row, hashes, names)
        if hint is None:
            hint = "all others are equal" if len(parted) == 1 < len(rows) else None
        found.append(replace(_of_weights(row), hint=hint))
    explained = explained_by_facts("weights", parted_facts)
    return outcome(
        "weights",
        num_compared=len(rows),
        num_agreeing=len(rows) - len(parted),
        divergences=[] if explained else grouped(found),
        consequences=[
            Consequence(
                phase="weights", first_step=0, num=len(parted) if explained else 0, because="echo"
            )
        ],
    )


def tensor_cells(a: Trace, b: Trace, *, guard: float) -> Iterator[Cells]:
    """Yield the cells of every kind that both legs recorded, tensors in the model's order."""
    kinds = sorted(recorded_kinds(a) & recorded_kinds(b) & KINDS.keys())
    parts: dict[str, list[pl.DataFrame]] = {kind: [] for kind in kinds}
    for chunk in align_tensors(a, b, kinds, ("norm", "sketch")):
        measured = _measure(chunk, guard)
        for kind in kinds:
            parts[kind].append(measured.filter(pl.col("kind") == kind).drop("kind"))
    for kind, found in parts.items():
        rows = pl.concat(found)
        order = {name: place for place, name in enumerate(_in_order(rows["name"]))}
        rows = rows.sort("step", pl.col("name").replace_strict(order, return_dtype=pl.Int64))
        yield cells(
            KINDS[kind],
            f"tensors.{kind}",
            steps=rows["step"].to_numpy(),
            tensors=rows["name"].to_numpy().astype(object),
            a=rows["norm_a"].to_numpy(),
            b=rows["norm_b"].to_numpy(),
            scale=rows["scale"].to_numpy(),
            distance=rows["distance"].to_numpy(),
            absent=(~rows["in_a"].to_numpy(), ~rows["in_b"].to_numpy()),
        )


def recorded_kinds(trace: Trace) -> set[str]:
    """Return the kinds of tensors that a trace holds."""
    kinds = trace.tensors.select(pl.col("kind").unique()).collect(engine="streaming")
    return set(kinds["kind"].to_list())


def _measure(chunk: pl.DataFrame, guard: float) -> pl.DataFrame:
    """Return step, kind, name, norms (nan where absent), distance and scale of each pair."""
    norms = [chunk[f"norm_{leg}"].fill_null(math.nan).to_numpy() for leg in "ab"]
    sketches = [_sketches(chunk[f"sketch_{leg}"]) for leg in "ab"]
    # Squares of numbers under 1e-154 or over 1e154 leave float64: norms are taken of quotients.
    sizes = np.max(np.abs(sketches[0]), axis=1), np.max(np.abs(sketches[1]), axis=1)
    unit = np.nan_to_num(np.fmax(*sizes), posinf=1.0)
    unit[unit == 0] = 1.0
    quotients = [sketch / unit[:, None] for sketch in sketches]
    with np.errstate(over="ignore", invalid="ignore"):  # what is not finite, in a leg or both
        apart = np.linalg.norm(quotients[0] - quotients[1], axis=1) * unit
        by_norm = np.abs(norms[0] - norms[1])
        counts = by_norm > NORM_ACCURACY * np.maximum(norms[0], norms[1])
        distance = np.maximum(np.nan_to_num(apart, nan=math.inf), np.where(counts, by_norm, 0.0))
    measured = chunk.select("step", "kind", "name", "in_a", "in_b").with_columns(
        pl.Series("norm_a", norms[0]),
        pl.Series("norm_b", norms[1]),
        pl.Series("distance", distance),
    )
    whole = [_root_of_squares(pl.col(f"norm_{leg}").fill_nan(0.0)) for leg in "ab"]
    return measured.with_columns(
        scale=pl.max_horizontal(
            pl.col("norm_a").fill_nan(0.0),
            pl.col("norm_b").fill_nan(0.0),
            guard * pl.max_horizontal(*whole).over("step", "kind"),
        )
    )


def _root_of_squares(norms: pl.Expr) -> pl.Expr:
    largest = norms.max()
    return ((norms / largest).fill_nan(0.0) ** 2).sum().sqrt() * largest


def _sketches(column: pl.Series) -> Floats:
    """Return the sketches as (R, 64), zeros where the row is absent."""
    filled = column.fill_null([0.0] * NUM_BUCKETS) if column.null_count() else column
    return filled.explode().to_numpy().reshape(-1, NUM_BUCKETS)


def _in_order(names: pl.Series) -> list[str]:
    return sorted(names.unique().to_list(), key=in_model_order)


def _parts(row: dict[str, object]) -> bool:
    return row["sha256_a"] != row["sha256_b"] or row["shape_a"] != row["shape_b"]


def _of_weights(row: dict[str, object]) -> Divergence:
    field = "shape" if row["shape_a"] != row["shape_b"] else "sha256"
    shown = [
        ("absent" if row[f"{field}_{leg}"] is None else f"{row[f'{field}_{leg}']}") for leg in "ab"
    ]
    a, b = (text[:12] if field == "sha256" else text for text in shown)
    return divergence(
        "weights", field=f"tensors.init.{field}", a=a, b=b, step=0, tensor=f"{row['name']}"
    )


def _weights_hint(
    row: dict[str, object], hashes: list[dict[object, str]], names: tuple[str, str]
) -> str | None:
    """Say when a tensor is another one, or the same entries in another order."""
    if row["sha256_a"] is None or row["sha256_b"] is None:
        return f"{names[row['sha256_a'] is not None]} has no such tensor"
    if (other := hashes[0].get(row["sha256_b"])) is not None and other != row["name"]:
        return f"{names[1]} holds {other} of {names[0]} under this name"
    if (other := hashes[1].get(row["sha256_a"])) is not None and other != row["name"]:
        return f"{names[0]} holds {other} of {names[1]} under this name"
    if row["max_abs_a"] == row["max_abs_b"]:
        norms = row["norm_a"], row["norm_b"]
        if all(isinstance(n, float) for n in norms) and math.isclose(*norms, rel_tol=1e-12):  # type: ignore[arg-type]
            return "the same entries in another order: transposed, or rows permuted"
    return None
