"""What the commands of the store do, behind `cli.storing`: ask it, and print.

Lists are for people (`oracle runs`) or for programs (`--json`); notes go to stderr.
"""

from __future__ import annotations

import dataclasses
import json
import shutil
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click

from oracle.errors import OracleError, one_line
from oracle.store import Filters, Freed, StoredRun, open_store
from oracle.store.store import Store

SHORTEST = 4  # characters of a shown id, taken from its end
UNITS = ("bytes", "KiB", "MiB", "GiB", "TiB")


def list_runs(
    out: Path, *, verdict: str | None, since: str | None, limit: int, as_json: bool, **wanted: Any
) -> None:
    """`oracle runs`."""
    store = _store(out)
    filters = Filters(
        verdict=None if verdict is None else verdict.upper(), since=_utc(since), **wanted
    )
    found = store.runs(filters)
    shown = found[:limit] if limit else found
    if as_json:
        print(json.dumps([dataclasses.asdict(run) for run in shown], indent=1))
        return
    if not found:
        print(_why_none(store, filters))
        return
    everyone = found if filters == Filters() else store.runs()
    for line in _table(shown, [run.id for run in everyone]):
        print(line)
    if len(shown) < len(found):
        print(f"{len(found) - len(shown)} more: --limit 0 lists all")


def remove(texts: Sequence[str], out: Path, *, yes: bool, force: bool) -> None:
    """`oracle rm`."""
    store = _store(out)
    found = {run.id: run for run in map(store.find, texts)}
    if not yes:
        for run in found.values():
            click.echo(f"{run.id}  {run.verdict}  {_size(run.num_bytes)}", err=True)
        click.confirm(f"Remove {_runs(len(found))}?", abort=True, err=True)
    freed = store.remove(list(found.values()), force=force)
    print(f"removed {_runs(len(freed.runs))}; {_size(freed.num_bytes)} freed")


def prune(out: Path, *, keep_days: float | None, keep_last: int | None, dry_run: bool) -> None:
    """`oracle prune`."""
    freed = _store(out).prune(keep_days=keep_days, keep_last=keep_last, dry_run=dry_run)
    for run in freed.runs:
        print(run)
    print(_freed(freed, "would remove" if dry_run else "removed"))


def verify(texts: Sequence[str], out: Path) -> None:
    """`oracle verify`: raises OracleError when something was altered."""
    store = _store(out)
    found = [store.find(text) for text in texts] if texts else store.runs()
    altered = store.verify(*found)
    for one in altered:
        print(f"{one.run}  {one_line(one.sentence)}")
    if num := len({one.run for one in altered}):
        raise OracleError(
            f"{num} of {_runs(len(found))} {'is' if num == 1 else 'are'} not as recorded; the "
            "files are named above."
        )
    print(f"{_runs(len(found))} verified: every file is as it was recorded")


def reindex(out: Path) -> None:
    """`oracle reindex`: raises OracleError when a part cannot be used; the rest is indexed."""
    store = _store(out)
    problems = store.reindex()
    print(f"the index holds {_runs(len(store.runs()))}")
    for problem in problems:
        print(one_line(problem), file=sys.stderr)
    if problems:
        raise OracleError(f"{len(problems)} could not be indexed; each is named above.")


def note(line: str) -> None:
    """Print a note of the store to stderr."""
    print(one_line(line), file=sys.stderr)


def _store(out: Path) -> Store:
    return open_store(out, note)


def _utc(text: str | None) -> str | None:
    """Return a date or time as the index writes it."""
    if text is None:
        return None
    try:
        when = datetime.fromisoformat(text)
    except ValueError:
        raise OracleError(
            f"--since {text} is no date; write 2026-01-31, or 2026-01-31T12:00."
        ) from None
    when = when if when.tzinfo is not None else when.replace(tzinfo=UTC)
    return when.astimezone(UTC).isoformat(timespec="seconds")


def _why_none(store: Store, filters: Filters) -> str:
    num_all = len(store.runs())
    if num_all:
        return f"none of {_runs(num_all)} in {store.place.root} passes these filters"
    return (
        f"no run is kept in {store.place.root} yet: `oracle run CONFIG` makes one, and `oracle "
        "reindex` records run directories that are there"
    )


def _table(runs: Sequence[StoredRun], ids: Sequence[str]) -> list[str]:
    names = _short(ids)
    rows = [
        (
            names[run.id],
            run.created[:16].replace("T", " "),
            run.config_name,
            "/".join(run.stacks),
            f"{run.num_steps:,}" if run.mode == "train" else run.mode,
            run.verdict,
        )
        for run in runs
    ]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    width = shutil.get_terminal_size().columns if sys.stdout.isatty() else None
    lines = []
    for row, run in zip(rows, runs, strict=True):
        cells = [cell.ljust(size) for cell, size in zip(row, widths, strict=True)]
        cells[4] = row[4].rjust(widths[4])
        line = one_line("  ".join([*cells, run.headline]))
        lines.append(line if width is None or len(line) <= width else f"{line[: width - 1]}…")
    return lines


def _short(ids: Sequence[str]) -> dict[str, str]:
    """Return the shortest end of each id that no other id has: what `oracle show` takes."""
    ordered = sorted(id[::-1] for id in ids)
    found = {}
    for before, id, next in zip(["", *ordered], ordered, [*ordered[1:], ""], strict=False):
        num = max(SHORTEST, _common(before, id) + 1, _common(id, next) + 1)
        found[id[::-1]] = id[:num][::-1]
    return found


def _common(a: str, b: str) -> int:
    pairs = zip(a, b, strict=False)
    return next((k for k, (x, y) in enumerate(pairs) if x != y), min(len(a), len(b)))


def _runs(num: int) -> str:
    return f"{num:,} run{'' if num == 1 else 's'}"


def _size(num_bytes: float) -> str:
    unit = 0
    while num_bytes >= 1024 and unit < len(UNITS) - 1:
        num_bytes, unit = num_bytes / 1024, unit + 1
    return f"{num_bytes:,.0f} {UNITS[unit]}" if unit == 0 else f"{num_bytes:,.1f} {UNITS[unit]}"


def _freed(freed: Freed, verb: str) -> str:
    rest = f" and {freed.num_leftovers} leftovers" if freed.num_leftovers else ""
    return f"{verb} {_runs(len(freed.runs))}{rest}; {_size(freed.num_bytes)} freed"
