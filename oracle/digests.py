"""The tables of a trace without their long columns, made in the one pass that checks every row.

Of an example, text, ids and mask as 64-bit hashes: ten million ids are never in memory at once, and
no comparison reads them again unless an example parts. Two different rows that hash alike would
pass: 5e-20 a pair. Of a tensor's statistics, the length of the sketch over the norm.
"""

from __future__ import annotations

import numpy as np
import polars as pl

from oracle.columns import Definition, dtypes
from oracle.statistics import NUM_BUCKETS

LONG = ("text", "ids", "mask")
SHORT = ("index", "num_tokens_before_truncation", "typed_control_tokens")


def _reach(rows: pl.Series) -> pl.Series:
    """Return |sketch| / norm of rows with the fields `norm` and `sketch`."""
    norms, sketches = rows.struct.field("norm").to_numpy(), rows.struct.field("sketch")
    if not len(rows) or (sketches.list.len() != NUM_BUCKETS).any():
        return pl.Series([None] * len(rows), dtype=pl.Float64)  # refused by the check beside it
    # In quotients of the norm: squares of numbers under 1e-154 or over 1e154 leave float64.
    with np.errstate(all="ignore"):
        quotients = sketches.explode().to_numpy().reshape(-1, NUM_BUCKETS) / norms[:, None]
        return pl.Series(np.sqrt(np.einsum("ij,ij->i", quotients, quotients)))


# `num_flags` is the length of a mask, `reach` that of a sketch over the norm.
DIGESTS: dict[Definition, tuple[pl.Expr, ...]] = {
    "token_row": (
        pl.col("split", "id", *SHORT),
        pl.col("ids").list.len().cast(pl.Int64).alias("num_tokens"),
        pl.col("mask").list.len().cast(pl.Int64).alias("num_flags"),
        pl.col(*LONG).hash(),
    ),
    "tensor_row": (
        pl.col("step", "kind", "name", "norm"),
        pl.struct("norm", "sketch")
        .map_batches(_reach, return_dtype=pl.Float64, is_elementwise=True)
        .alias("reach"),
    ),
}


def digest(rows: pl.LazyFrame, definition: Definition) -> pl.DataFrame:
    """Return the digests of rows that are known to be right."""
    return rows.select(*DIGESTS[definition]).collect(engine="streaming")


def nothing(definition: Definition) -> pl.DataFrame:
    """Return the digests of no rows."""
    return digest(pl.LazyFrame(schema=dtypes(definition)), definition)
