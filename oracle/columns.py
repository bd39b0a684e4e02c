"""Columns of the trace's tables (S-24), derived from `trace.schema.json`: types and checks.

One definition serves both forms: values of a parsed JSON line (`fits`) and Parquet columns
(`check`).
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import polars as pl

from oracle.contract import schema
from oracle.document import NON_FINITE, as_float, kind, matches

Definition = Literal["step", "token_row", "tensor_row"]

# Narrow inner types of lists by field; everything else is Int64 (S-24, description of the schema).
INNER: Mapping[str, Any] = {"ids": pl.Int32, "mask": pl.Int8}
BITS = {pl.Int8: 8, pl.Int32: 32, pl.Int64: 64}
WORDS = {"integer": "an integer", "number": "a number", "string": "text"}


@dataclass(frozen=True, kw_only=True)
class Column:
    """One field of a table: a scalar or a list of scalars of `base` type."""

    name: str
    base: Literal["integer", "number", "string"]
    is_list: bool
    nullable: bool
    non_finite: bool
    minimum: int | None
    allowed: tuple[Any, ...]
    pattern: str | None
    min_length: int
    max_length: int | None
    min_items: int
    max_items: int | None

    @property
    def scalar(self) -> Any:
        """Polars type of one value."""
        if self.base == "integer":
            return INNER.get(self.name, pl.Int64)
        return pl.Float64 if self.base == "number" else pl.String

    @property
    def dtype(self) -> Any:
        """Polars type of the column."""
        return pl.List(self.scalar) if self.is_list else self.scalar

    @property
    def words(self) -> str:
        """What the column should hold, in words."""
        text = WORDS[self.base]
        if self.allowed:
            text = "one of " + ", ".join(map(str, self.allowed))
        elif self.minimum is not None:
            text += f" of at least {self.minimum}"
        elif self.max_length:
            text = f"text of {self.min_length} to {self.max_length} characters"
            # The one pattern that a text of bounded length has: that of an id (S-02).
            text += ", none of them a control character" if self.pattern else ""
        elif self.pattern:
            text += f" matching {self.pattern}"
        elif self.min_length:
            text = "non-empty text"
        if self.is_list:
            size = f" of {self.min_items}" if self.min_items and self.max_items else ""
            text = f"a list{size}, each {text}"
        return text + (" or null" if self.nullable else "")

    def fits(self, value: object) -> bool:
        """Whether a value of a JSON line satisfies the column."""
        if value is None:
            return self.nullable
        if not self.is_list:
            return self._fits_scalar(value)
        if not isinstance(value, list) or len(value) < self.min_items:
            return False
        if self.max_items is not None and len(value) > self.max_items:
            return False
        # Plain integers are judged by their set of types and their ends: a tenth of the time.
        if self.base == "integer" and set(map(type, value)) <= {int}:
            return not value or (self._fits_scalar(min(value)) and self._fits_scalar(max(value)))
        return all(map(self._fits_scalar, value))

    def _fits_scalar(self, value: object) -> bool:
        if self.base == "string":
            return (
                isinstance(value, str)
                and len(value) >= self.min_length
                and (self.max_length is None or len(value) <= self.max_length)
                and (not self.allowed or value in self.allowed)
                and (self.pattern is None or matches(self.pattern, value))
            )
        if isinstance(value, str):
            return self.non_finite and value in NON_FINITE
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            return False
        if self.base == "integer" and not (
            float(value).is_integer() and abs(value) < 2 ** (BITS[self.scalar] - 1)
        ):
            return False
        if self.allowed and value not in self.allowed:
            return False
        return self.minimum is None or value >= self.minimum

    def parsed(self, value: Any) -> Any:
        """Return a fitting JSON value as its column's type: non-finite strings become floats."""
        if value is None or self.base == "string":
            return value
        if not self.is_list:
            return self._number(value)
        plain = int if self.base == "integer" else float
        if set(map(type, value)) <= {plain}:
            return value
        return [self._number(entry) for entry in value]

    def _number(self, value: Any) -> Any:
        return int(value) if self.base == "integer" else as_float(value)

    def check(self) -> pl.Expr:
        """Return an expression that is true in rows which break the column's demands."""
        column = pl.col(self.name)
        bad = pl.lit(False) if self.nullable else column.is_null()
        if self.is_list:
            return bad | self._check_list(column).fill_null(False)
        return bad | self.check_scalar(column)

    def check_scalar(self, value: pl.Expr) -> pl.Expr:
        """Return an expression that is true where a value breaks the demands; null breaks none."""
        bad = pl.lit(False)
        if self.minimum is not None:
            bad = bad | (value < self.minimum).fill_null(False)
        if self.allowed:
            bad = bad | ~value.is_in(self.allowed).fill_null(True)
        if self.pattern:
            bad = bad | ~value.str.contains(self.pattern).fill_null(True)
        if self.min_length:
            bad = bad | (value.str.len_chars() < self.min_length).fill_null(False)
        if self.max_length:
            bad = bad | (value.str.len_chars() > self.max_length).fill_null(False)
        return bad

    def _check_list(self, column: pl.Expr) -> pl.Expr:
        size = column.list.len()
        bad = column.list.eval(pl.element().is_null()).list.any().fill_null(False)
        if self.min_items:
            bad = bad | (size < self.min_items)
        if self.max_items is not None:
            bad = bad | (size > self.max_items)
        least = min(self.allowed) if self.allowed else self.minimum
        if least is not None:
            bad = bad | (column.list.min() < least).fill_null(False)
        if self.allowed:  # only 0 and 1 (mask): the ends of the range are the whole range
            bad = bad | (column.list.max() > max(self.allowed)).fill_null(False)
        return bad


def _column(name: str, field: Mapping[str, Any]) -> Column:
    base: Any
    options = field.get("oneOf", [field])
    nullable = any(option.get("type") == "null" for option in options)
    main = next(option for option in options if option.get("type") != "null")
    is_list = main.get("type") == "array"
    item = main["items"] if is_list else main
    options = item.get("oneOf", options if not is_list else [item])
    non_finite = any("NaN" in option.get("enum", []) for option in options)
    allowed = tuple(item.get("enum", ()))
    base = item.get("type") or ("string" if isinstance((allowed or (0.5,))[0], str) else "integer")
    if non_finite:
        base, allowed = "number", ()
    return Column(
        name=name,
        base=base,
        is_list=is_list,
        nullable=nullable,
        non_finite=non_finite,
        minimum=item.get("minimum"),
        allowed=allowed,
        pattern=item.get("pattern"),
        min_length=item.get("minLength", 0),
        max_length=item.get("maxLength"),
        min_items=main.get("minItems", 0),
        max_items=main.get("maxItems"),
    )


@functools.cache
def columns(definition: Definition) -> tuple[Column, ...]:
    """Return the columns of a table in the order of the schema."""
    fields = schema("trace")["$defs"][definition]["properties"]
    return tuple(_column(name, field) for name, field in fields.items())


def dtypes(definition: Definition) -> dict[str, Any]:
    """Return the Polars schema of a table."""
    return {column.name: column.dtype for column in columns(definition)}


def misfit(definition: Definition, row: object) -> str | None:
    """Return why a parsed JSON line is no row of the table, or None; shows kinds, not values."""
    if not isinstance(row, dict):
        return f"is {kind(row)} and should be a table"
    wanted = columns(definition)
    if row.keys() != {column.name for column in wanted}:
        names = {column.name for column in wanted}
        if missing := sorted(names - row.keys()):
            return f"lacks {', '.join(map(repr, missing))}"
        return f"has unknown {', '.join(map(repr, sorted(row.keys() - names)))}"
    for column in wanted:
        if not column.fits(row[column.name]):
            return f"has {column.name} as {kind(row[column.name])} that is not {column.words}"
    return None
