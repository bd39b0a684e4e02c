"""Two traces as ordered pairs, one-sided ones included; nothing is judged here.

Steps are paired by number, examples by (split, id), tensors by (step, kind, name), never by row.
Columns of the pair end in `_a` and `_b`; `in_a` and `in_b` say on which side it is present.

The long columns of `tokens` (text, ids, mask) are compared through their digests.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import polars as pl

from oracle.columns import dtypes
from oracle.digests import LONG
from oracle.trace import Trace

SPLITS = ("train", "eval", "edge")
CHUNK_ROWS = 20_000  # rows of tensors with their sketches: 12 MB a leg


def align_steps(a: Trace, b: Trace) -> pl.DataFrame:
    """Return the steps of both legs, in order of step: `step`, `in_a`, `in_b`, columns a and b."""
    return _pair(a.steps, b.steps, ["step"]).sort("step")


def align_examples(a: Trace, b: Trace) -> pl.DataFrame:
    """Return every rendered example of both legs in causal order.

    Columns: `split`, `id`, `in_a`, `in_b`, `{text,ids,mask}_equal`, `num_tokens_{a,b}`, the short
    columns of both, and `first_step`, the first step that consumes it in either leg. Examples that
    are consumed come first, by step and place in the step; then the others by split and index.
    """
    pairs = _pair(a.digests, b.digests, ["split", "id"]).with_columns(
        (pl.col(f"{column}_a") == pl.col(f"{column}_b")).alias(f"{column}_equal") for column in LONG
    )
    return (
        pairs.drop(f"{column}_{leg}" for column in LONG for leg in "ab")
        .join(_consumption(a, b), on="id", how="left", maintain_order="left")
        .with_columns(
            pl.when(pl.col("split") == "train").then("first_step").alias("first_step"),
            place=pl.col("split").replace_strict(dict(zip(SPLITS, range(3), strict=True))),
            index=pl.min_horizontal("index_a", "index_b"),
        )
        .sort("first_step", "slot", "place", "index", nulls_last=True)
        .drop("slot", "place", "index")
    )


def example_rows(trace: Trace, ids: Sequence[str]) -> Mapping[str, Mapping[str, Any]]:
    """Return the whole rows of the examples with these ids, by id; ids and mask as arrays."""
    rows = trace.tokens.filter(pl.col("id").is_in(ids)).collect(engine="streaming")
    found = {}
    for row in rows.iter_rows(named=True):
        row["ids"] = np.asarray(row["ids"], dtype=np.int64)
        row["mask"] = np.asarray(row["mask"], dtype=np.int8)
        found[row["id"]] = row
    return found


def align_tensors(
    a: Trace, b: Trace, kinds: Sequence[str], columns: Sequence[str]
) -> Iterator[pl.DataFrame]:
    """Yield the tensor rows of both legs, some whole steps at a time, in ascending order of step.

    Only these columns are read, a segment at a time, so that no long trace is ever in memory.
    """
    keys = ["step", "kind", "name"]
    for left, right in _whole_steps(*(_by_step(t, kinds, [*keys, *columns]) for t in (a, b))):
        if left.select(keys).equals(right.select(keys)):
            yield _beside(left, right, keys)
        else:
            yield _pair(left, right, keys).sort("step")


def _whole_steps(*sides: Iterator[pl.DataFrame]) -> Iterator[list[pl.DataFrame]]:
    """Yield the rows of both sides that are of the same steps, no step in two parts."""
    held = [next(side) for side in sides]
    reached = [-1.0, -1.0]  # the step that a side may have more rows of; infinite at its end
    while min(reached) < math.inf:
        behind = reached.index(min(reached))
        batch = next(sides[behind], None)
        if batch is None:
            reached[behind] = math.inf
        elif batch.height:
            held[behind] = pl.concat([held[behind], batch])
            reached[behind] = float(batch["step"][-1])
        whole = pl.col("step") < min(reached)
        ready = [rows.filter(whole) for rows in held]
        if any(rows.height for rows in ready):
            yield ready
            held = [rows.filter(~whole) for rows in held]


def _by_step(trace: Trace, kinds: Sequence[str], columns: Sequence[str]) -> Iterator[pl.DataFrame]:
    """Yield no rows first, for their types, then all rows in ascending order of step."""
    types = dtypes("tensor_row")
    yield pl.DataFrame(schema={name: types[name] for name in columns})
    segments = trace.tensor_segments
    if not trace.tensors.select("step").collect(engine="streaming")["step"].is_sorted():
        # Nobody writes so, and nothing forbids it. Sorted once: slices of a sort may overlap.
        segments = [trace.tensors.select(columns).sort("step").collect().lazy()]
    for segment in segments:
        num_rows = segment.select(pl.len()).collect().item()
        for first in range(0, num_rows, CHUNK_ROWS):
            part = segment.select(columns).slice(first, CHUNK_ROWS)
            yield part.collect(engine="streaming").filter(pl.col("kind").is_in(kinds))


def _consumption(a: Trace, b: Trace) -> pl.DataFrame:
    """Return for each id the first step that consumes it in either leg, and its place there."""
    parts = [
        trace.steps.select("step", id="examples", slot=pl.int_ranges(pl.col("examples").list.len()))
        .explode("id", "slot")
        .drop_nulls("id")
        for trace in (a, b)
    ]
    return (
        pl.concat(parts)
        .sort("step", "slot")
        .group_by("id", maintain_order=True)
        .agg(first_step=pl.col("step").first(), slot=pl.col("slot").first())
    )


def _beside(left: pl.DataFrame, right: pl.DataFrame, keys: list[str]) -> pl.DataFrame:
    """Return what `_pair` does, of two sides that have the same keys in the same order."""
    values = [column for column in left.columns if column not in keys]
    return pl.DataFrame(
        [
            *left.select(keys),
            *left.select(pl.col(values).name.suffix("_a")),
            *right.select(pl.col(values).name.suffix("_b")),
        ]
    ).with_columns(in_a=True, in_b=True)


def _pair(left: pl.DataFrame, right: pl.DataFrame, keys: list[str]) -> pl.DataFrame:
    """Full join with every other column twice, and the two columns of presence."""

    def side(frame: pl.DataFrame, leg: str) -> pl.DataFrame:
        renamed = {name: f"{name}_{leg}" for name in frame.columns if name not in keys}
        return frame.rename(renamed).with_columns(pl.lit(True).alias(f"in_{leg}"))

    joined = side(left, "a").join(side(right, "b"), on=keys, how="full", coalesce=True)
    return joined.select(pl.exclude("in_a", "in_b"), pl.col("in_a", "in_b").fill_null(False))
