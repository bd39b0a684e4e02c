"""Two traces as ordered pairs, one-sided ones included; nothing is judged here.

Steps are paired by number, examples by (split, id), tensors by (step, kind, name), never by row.
Columns of the pair end in `_a` and `_b`; `in_a` and `in_b` say on which side it is present.

The long columns of `tokens` (text, ids, mask) are compared through their digests.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import polars as pl

from oracle.digests import LONG
from oracle.trace import Trace

SPLITS = ("train", "eval", "edge")
CHUNK_ROWS = 40_000  # rows of tensors with their sketches: 25 MB a leg


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


def align_tensors(a: Trace, b: Trace, kinds: Sequence[str]) -> Iterator[pl.DataFrame]:
    """Yield the tensor rows of both legs in order of step, kind and name, some steps at a time."""
    left = a.tensors.filter(pl.col("kind").is_in(kinds))
    right = b.tensors.filter(pl.col("kind").is_in(kinds))
    counts = (
        pl.concat([left.select("step"), right.select("step")])
        .group_by("step")
        .len()
        .sort("step")
        .collect(engine="streaming")
    )
    first, rows = 0, 0
    steps = counts["step"].to_list()
    for place, size in enumerate(counts["len"]):
        rows += size
        if rows >= CHUNK_ROWS or place == len(steps) - 1:
            span = pl.col("step").is_between(steps[first], steps[place])
            yield _pair(
                left.filter(span).collect(engine="streaming"),
                right.filter(span).collect(engine="streaming"),
                ["step", "kind", "name"],
            ).sort("step", "kind", "name")
            first, rows = place + 1, 0


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


def _pair(left: pl.DataFrame, right: pl.DataFrame, keys: list[str]) -> pl.DataFrame:
    """Full join with every other column twice, and the two columns of presence."""

    def side(frame: pl.DataFrame, leg: str) -> pl.DataFrame:
        renamed = {name: f"{name}_{leg}" for name in frame.columns if name not in keys}
        return frame.rename(renamed).with_columns(pl.lit(True).alias(f"in_{leg}"))

    joined = side(left, "a").join(side(right, "b"), on=keys, how="full", coalesce=True)
    return joined.with_columns(pl.col("in_a", "in_b").fill_null(False))
