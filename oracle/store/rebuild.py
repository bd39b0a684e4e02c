"""Index and records held against each other: what one lacks comes from the other.

A record is written before its row is committed, so a process that was killed in between leaves a
whole record without a row; it is listed from then on. The caller holds the store alone.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

from sqlalchemy import Connection

from oracle.store.database import Database
from oracle.store.error import StoreError
from oracle.store.index import (
    floor_names,
    get_record,
    put_floor,
    put_pins,
    put_record,
    record_names,
)
from oracle.store.place import Place
from oracle.store.record import DIGITS, Record


def in_step(place: Place, connection: Connection) -> bool:
    """Whether every record has its row and every row its record, by their names alone."""
    indexed = {(id, sha256[:DIGITS]) for id, sha256 in record_names(connection).items()}
    return set(place.records.names()) == indexed


def reconcile(place: Place, connection: Connection) -> Sequence[str]:
    """Bring index and records in step; returns a sentence for each record that cannot be used."""
    indexed = {id: sha256[:DIGITS] for id, sha256 in record_names(connection).items()}
    written: dict[str, set[str]] = {id: set() for id in indexed}
    for id, digits in place.records.names():
        written.setdefault(id, set()).add(digits)
    problems: list[str] = []
    _put_floors(place, connection)
    for id, all_digits in written.items():
        if all_digits == {indexed.get(id)}:
            continue
        found, wrong = place.records.of(id)
        problems += wrong
        record = found[0] if found else get_record(connection, id)
        if record is None:
            continue
        if record.sha256[:DIGITS] not in all_digits:
            place.records.write(record)
        if record.sha256[:DIGITS] != indexed.get(id):
            _put(place, connection, record)
        for old in found[1:]:
            place.records.path(id, old.sha256).unlink(missing_ok=True)
    return problems


def rebuild(place: Place, *, damaged: bool) -> tuple[Sequence[str], Path | None]:
    """Build the index again from records, floors and pins.

    Returns a sentence for each part that cannot be used, and where a damaged index was set aside.
    """
    if not damaged and place.index.exists():
        _save_lone_rows(place)
    fresh = Database(place.index.with_name("index.sqlite.new"))
    _remove(fresh.path)
    fresh.upgrade()
    problems: list[str] = []
    with fresh.writing() as connection:
        for id in sorted({id for id, _ in place.records.names()}):
            found, wrong = place.records.of(id)
            problems += wrong
            if found:
                _put(place, connection, found[0])
        _put_floors(place, connection)
    if Path(f"{fresh.path}-wal").exists():
        raise StoreError(f"{fresh.path} could not be completed; use `oracle reindex` again.")
    aside = None
    if place.index.exists():
        aside = place.index.with_name(f"index.sqlite.damaged-{datetime.now(UTC):%Y%m%dT%H%M%S.%fZ}")
        for end in ("-wal", "-shm", ""):
            with contextlib.suppress(FileNotFoundError):
                Path(f"{place.index}{end}").replace(f"{aside}{end}")
    fresh.path.replace(place.index)
    if aside is not None and not damaged:
        _remove(aside)
        aside = None
    return problems, aside


def _put(place: Place, connection: Connection, record: Record) -> None:
    put_record(connection, record)
    put_pins(connection, record.id, place.pins.read(record.id))


def _put_floors(place: Place, connection: Connection) -> None:
    known = floor_names(connection)
    for name in place.floors.names():
        if name not in known:
            put_floor(connection, place.floors.read(name))


def _save_lone_rows(place: Place) -> None:
    """Write the records of rows that have none, before the index that has them goes."""
    known = {id for id, _ in place.records.names()}
    with contextlib.suppress(StoreError), Database(place.index).reading() as connection:
        for id in record_names(connection):
            if id not in known and (record := get_record(connection, id)) is not None:
                place.records.write(record)


def _remove(index: Path) -> None:
    for end in ("-wal", "-shm", ""):
        Path(f"{index}{end}").unlink(missing_ok=True)
