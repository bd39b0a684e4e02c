"""Both legs' step scalars side by side, and their compact form for the page.

N steps, the union of both legs' steps; what a leg does not have is NaN with `present` 0. Packed
columns are float64, exact: byte planes, the second leg XORed with the first (equal runs cost
nothing), deflated, base64.
"""

from __future__ import annotations

import base64
import zlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl

from oracle.align import align_steps
from oracle.report.curves import Array, kept
from oracle.trace import Trace

CURVES = ("loss", "grad_norm", "lr")
NUMBERS = (*CURVES, "clip_factor", "param_norm", "epoch", "num_tokens", "num_targets")
EXACT = ("examples", "batch_shape", "batch_sha256")
SPARSE = ("eval_loss", "eval_targets")
MOST_STEPS = 20_000  # more never fit: a step has 5 columns of 6.5 incompressible bytes
FEWEST_STEPS = 500


@dataclass(frozen=True, kw_only=True, eq=False)
class Series:
    """Step scalars of two legs. `a` and `b`: column -> (N,); `equal`: exact column -> bool (N,)."""

    steps: Array
    a: Mapping[str, Array]
    b: Mapping[str, Array]
    equal: Mapping[str, Array]


def relative_difference(a: Array, b: Array, scale: float | None = None) -> Array:
    """|a - b| / scale, by default of max(|a|, |b|), as `compare_numbers` has it; shape (N,).

    0 where both are the same number, infinite where only one is finite, nan where neither is.
    """
    with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
        size = np.fmax(np.abs(a), np.abs(b)) if scale is None else scale
        quotient: Array = np.where(a == b, 0.0, np.abs(a - b) / size)
    return np.where(np.isfinite(a) != np.isfinite(b), np.inf, quotient)


def scales(series: Series) -> dict[str, float]:
    """The scale of a column that has one for the whole run: the largest learning rate."""
    rates = np.abs(np.concatenate([series.a["lr"], series.b["lr"]]))
    largest = float(np.max(rates, where=np.isfinite(rates), initial=0.0))
    return {"lr": largest} if largest > 0 else {}


def paired(a: Trace, b: Trace) -> Series:
    """Align the steps of two traces by step number."""
    frame = align_steps(a, b)
    both = pl.col("in_a") & pl.col("in_b")
    equal = frame.select(
        both.and_(pl.col(f"{name}_a").eq_missing(pl.col(f"{name}_b"))).alias(name) for name in EXACT
    )
    return Series(
        steps=frame["step"].to_numpy(),
        a=_numbers(frame, "a"),
        b=_numbers(frame, "b"),
        equal={name: equal[name].to_numpy() for name in EXACT},
    )


def _numbers(frame: pl.DataFrame, leg: str) -> dict[str, Array]:
    columns = {
        name: frame[f"{name}_{leg}"].cast(pl.Float64).fill_null(np.nan).to_numpy()
        for name in NUMBERS
    }
    return columns | {"present": frame[f"in_{leg}"].cast(pl.Float64).to_numpy()}


def sparse(a: Trace, b: Trace) -> list[dict[str, Any]]:
    """Rows of the columns that only some steps have: `{"step", "name", "a", "b"}`."""
    rows = []
    for name in SPARSE:
        left, right = (
            dict(trace.steps.select("step", name).drop_nulls().iter_rows()) for trace in (a, b)
        )
        for step in sorted(left.keys() | right.keys()):
            rows.append({"step": step, "name": name, "a": left.get(step), "b": right.get(step)})
    return rows


def packed(
    series: Series, allowed: Mapping[str, Array], must: Iterable[int], max_bytes: int
) -> dict[str, Any]:
    """Return `{"bytes", "columns", "num", "num_steps"}`, thinned only when it would not fit.

    `allowed` gives tolerance curves (N,) by field; `must` are steps that are always kept.
    """
    curves = [leg[name] for name in CURVES for leg in (series.a, series.b)]
    curves += [
        relative_difference(series.a[name], series.b[name], scales(series).get(name))
        for name in CURVES
    ]
    places = np.searchsorted(series.steps, np.array(sorted(must), dtype=np.int64)).tolist()
    limit = min(len(series.steps), MOST_STEPS)
    while True:
        rows = kept(curves, must=places, limit=limit)
        document = _document(series, allowed, rows)
        if len(document["bytes"]) <= max_bytes or limit <= FEWEST_STEPS:
            return document
        limit = min(limit // 2, limit * max(0, max_bytes) // len(document["bytes"]))


def _document(series: Series, allowed: Mapping[str, Array], rows: Array) -> dict[str, Any]:
    planes: list[bytes] = []
    columns: list[dict[str, Any]] = []

    def put(name: str, leg: str | None, values: Array, base: Array | None = None) -> None:
        bits = np.ascontiguousarray(values[rows], dtype="<f8").view(np.uint64)
        if base is not None:
            bits = bits ^ np.ascontiguousarray(base[rows], dtype="<f8").view(np.uint64)
        planes.append(bits.view(np.uint8).reshape(-1, 8).T.tobytes())
        columns.append(
            {"name": name, "leg": leg, "xor": None if base is None else len(columns) - 1}
        )

    put("step", None, series.steps)
    for name in ("present", *NUMBERS):
        put(name, "a", series.a[name])
        put(name, "b", series.b[name], series.a[name])
    for name in EXACT:
        put(name, "equal", series.equal[name])
    for name, values in allowed.items():
        put(name, "allowed", values)
    content = base64.b64encode(zlib.compress(b"".join(planes), 6)).decode("ascii")
    return {
        "bytes": content,
        "columns": columns,
        "num": len(rows),
        "num_steps": len(series.steps),
    }
