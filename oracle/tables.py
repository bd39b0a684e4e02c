"""Tables of a trace (S-24) from Parquet or JSONL segments, every row checked against the schema.

Parquet is checked column by column in streaming passes and stays on disk; JSONL is read in chunks
into compact columns. A message names file, line or row, field and kinds of values, never text or
ids of an example.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import polars as pl

from oracle.columns import Definition, columns, dtypes, misfit
from oracle.digests import DIGESTS, digest, nothing
from oracle.document import loads_text
from oracle.errors import TraceError
from oracle.lines import decode

CHUNK_ROWS = 4096


def read_tables(
    paths: Sequence[Path], definition: Definition
) -> tuple[list[pl.LazyFrame], pl.DataFrame]:
    """Return the rows of each segment, and the digests of all, made in the pass that checks.

    Raises TraceError at the first bad row.
    """
    segments, digests = [], [nothing(definition)]
    for path in paths:
        if path.suffix == ".parquet":
            rows, found = _digest_parquet(path, definition)
        else:
            rows = read_jsonl(path, definition).lazy()
            found = digest(rows, definition)
        segments.append(rows)
        digests.append(found)
    return segments, pl.concat(digests)


def read_jsonl(path: Path, definition: Definition) -> pl.DataFrame:
    """Read a JSONL table; raises TraceError with the 1-based number of the first bad line."""
    frames = [pl.DataFrame(schema=dtypes(definition))]
    for first, lines in _chunks(path):
        frame = decode(lines, definition)
        frames.append(_judged(path, first, lines, definition) if frame is None else frame)
    return pl.concat(frames)


def _chunks(path: Path) -> Iterator[tuple[int, list[bytes]]]:
    """Yield lines, some thousand at a time, with the 1-based number of the first."""
    lines: list[bytes] = []
    number = 0
    with path.open("rb") as stream:
        for number, line in enumerate(stream, start=1):
            if not line.endswith(b"\n"):
                raise TraceError(
                    f"{path}:{number}: the last line has no line end, so it was cut in the middle; "
                    "the leg must be resumed or run again."
                )
            lines.append(line)
            if len(lines) == CHUNK_ROWS:
                yield number - len(lines) + 1, lines
                lines = []
    yield number - len(lines) + 1, lines


def _judged(path: Path, first: int, lines: list[bytes], definition: Definition) -> pl.DataFrame:
    """Read lines one by one: what is wrong is said of the line that it is in."""
    wanted = columns(definition)
    rows = []
    for number, line in enumerate(lines, start=first):
        try:
            row = loads_text(line)
        except ValueError as error:
            reason = getattr(error, "msg", None) or "not valid JSON"
            raise TraceError(f"{path}:{number}: the line is not JSON ({reason}).") from None
        if (reason := misfit(definition, row)) is not None:
            raise TraceError(
                f"{path}:{number}: the row {reason} (trace.schema.json, {definition})."
            )
        rows.append(row)
    data = {column.name: [column.parsed(row[column.name]) for row in rows] for column in wanted}
    return pl.DataFrame(data, schema=dtypes(definition))


def _digest_parquet(path: Path, definition: Definition) -> tuple[pl.LazyFrame, pl.DataFrame]:
    scan = _typed(path, definition)
    bad = pl.any_horizontal(column.check() for column in columns(definition))
    found = _collect(path, scan.select(*DIGESTS[definition], bad=bad))
    if found["bad"].any():
        _check_rows(path, scan, definition)
    return scan, found.drop("bad")


def _typed(path: Path, definition: Definition) -> pl.LazyFrame:
    try:
        found = pl.read_parquet_schema(path)
    except (pl.exceptions.PolarsError, OSError):
        raise TraceError(f"{path} cannot be read as Parquet: it is damaged or cut.") from None
    _check_types(path, dict(found), definition)
    return pl.scan_parquet(path).select(pl.col(c.name).cast(c.dtype) for c in columns(definition))


def _collect(path: Path, scan: pl.LazyFrame) -> pl.DataFrame:
    try:
        return scan.collect(engine="streaming")
    except (pl.exceptions.PolarsError, OSError):
        raise TraceError(
            f"{path} cannot be read as Parquet: it is damaged, or a number does not fit its type."
        ) from None


def _check_rows(path: Path, scan: pl.LazyFrame, definition: Definition) -> None:
    wanted = columns(definition)
    bad = _collect(path, scan.select(c.check().sum().alias(c.name) for c in wanted))
    for column in wanted:
        if bad.item(0, column.name):
            row = scan.with_row_index("row").filter(column.check()).select("row").head(1).collect()
            raise TraceError(
                f"{path}: row {row.item()} has a {column.name} that is not {column.words} "
                f"({bad.item(0, column.name)} such rows; trace.schema.json, {definition})."
            )


def _check_types(path: Path, found: dict[str, Any], definition: Definition) -> None:
    wanted = dtypes(definition)
    if missing := sorted(wanted.keys() - found.keys()):
        raise TraceError(f"{path} lacks the columns {', '.join(missing)} ({definition}).")
    if unknown := sorted(found.keys() - wanted.keys()):
        raise TraceError(f"{path} has unknown columns {', '.join(unknown)} ({definition}).")
    for name, dtype in wanted.items():
        if not _readable(found[name], dtype):
            raise TraceError(
                f"{path}: column {name} is {found[name]} and should be {dtype} (S-24)."
            )


def _readable(found: Any, wanted: Any) -> bool:
    """Whether a stored type may be read as the wanted one without a change of any value."""
    if isinstance(wanted, pl.List):
        is_list = isinstance(found, (pl.List, pl.Array))  # Array: a list of fixed size
        return is_list and _readable(found.inner, wanted.inner)
    if wanted == pl.String:
        return bool(found in (pl.String, pl.Null) or isinstance(found, (pl.Categorical, pl.Enum)))
    if wanted == pl.Float64:
        return bool(found == pl.Float64)
    return bool(found.is_integer())
