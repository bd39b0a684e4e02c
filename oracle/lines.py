"""Rows of a JSONL table decoded many at once: types by msgspec, other demands column by column.

What is refused here is only suspect: the caller then reads the lines one by one, strictly by the
schema, and says what is wrong. So this must never accept what that refuses.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from itertools import chain
from types import GenericAlias
from typing import Any, Literal

import msgspec
import numpy as np
import polars as pl

from oracle.columns import Column, Definition, columns
from oracle.document import as_float

PLAIN: dict[str, Any] = {"integer": int, "number": float, "string": str}
# Half of a surrogate pair can only be escaped; whether it is one, the strict reader knows.
ESCAPED_SURROGATE = (b"\\ud", b"\\uD")


class _SuspectError(Exception):
    """A value that may break the schema."""


def decode(lines: Sequence[bytes], definition: Definition) -> pl.DataFrame | None:
    """Return the rows of these lines as a table, or None when one may break the schema."""
    if any(escape in line for line in lines for escape in ESCAPED_SURROGATE):
        return None
    decoder = _decoder(definition)
    try:
        rows = [decoder.decode(line) for line in lines]
        return pl.DataFrame(
            [
                _series(column, [getattr(row, column.name) for row in rows])
                for column in columns(definition)
            ]
        )
    except (_SuspectError, ValueError, TypeError, OverflowError, pl.exceptions.PolarsError):
        return None  # msgspec's errors are ValueErrors


@functools.cache
def _decoder(definition: Definition) -> msgspec.json.Decoder[Any]:
    fields = [(column.name, _type(column)) for column in columns(definition)]
    row = msgspec.defstruct(definition, fields, forbid_unknown_fields=True, gc=False)
    return msgspec.json.Decoder(row)


def _type(column: Column) -> Any:
    scalar = PLAIN[column.base]
    if column.non_finite:
        scalar |= Literal["NaN", "Infinity", "-Infinity"]
    whole: Any = GenericAlias(list, (scalar,)) if column.is_list else scalar
    return whole | None if column.nullable else whole


def _series(column: Column, values: list[Any]) -> pl.Series:
    return _lists(column, values) if column.is_list else _scalars(column, values)


def _scalars(column: Column, values: list[Any]) -> pl.Series:
    if column.non_finite and str in set(map(type, values)):
        values = [None if value is None else as_float(value) for value in values]
    made = pl.Series(column.name, values, dtype=column.scalar)
    if made.to_frame().select(column.check_scalar(pl.col(column.name)).any()).item():
        raise _SuspectError
    return made


def _lists(column: Column, values: list[list[Any]]) -> pl.Series:
    if None in values:
        raise _SuspectError
    counts = np.fromiter(map(len, values), dtype=np.int64, count=len(values))
    if (counts < column.min_items).any():
        raise _SuspectError
    if column.max_items is not None and (counts > column.max_items).any():
        raise _SuspectError
    flat = _scalars(column, list(chain.from_iterable(values)))
    # A list of Python lists is turned into a column value by value, ten times as slow as this.
    rows = pl.DataFrame({"row": np.arange(len(values))})
    entries = pl.DataFrame({"row": np.repeat(np.arange(len(values)), counts), column.name: flat})
    grouped = entries.group_by("row", maintain_order=True).agg(column.name)
    made = rows.join(grouped, on="row", how="left", maintain_order="left")[column.name]
    return made.fill_null(pl.Series([[]], dtype=column.dtype)) if made.null_count() else made
