"""The examples of a trace without their long columns: text, ids and mask as 64-bit hashes.

Ten million ids are never in memory at once, and no comparison reads them again unless an example
parts. Two different rows that hash alike would pass: 5e-20 a pair.
"""

from __future__ import annotations

import polars as pl

from oracle.columns import dtypes

LONG = ("text", "ids", "mask")
SHORT = ("index", "num_tokens_before_truncation", "typed_control_tokens")

# Of a row of `tokens/`; `num_flags` is the length of its mask.
DIGESTS = (
    pl.col("split", "id", *SHORT),
    pl.col("ids").list.len().cast(pl.Int64).alias("num_tokens"),
    pl.col("mask").list.len().cast(pl.Int64).alias("num_flags"),
    pl.col(*LONG).hash(),
)
NO_DIGESTS = pl.DataFrame(schema=dtypes("token_row")).select(*DIGESTS)
