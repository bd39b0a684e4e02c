"""The index: rows of records, put in, taken out, and asked for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy import Connection, Select, and_, delete, exists, insert, select

from oracle.store.listed import Filters, StoredRun
from oracle.store.record import PARTS, Record, Row
from oracle.store.tables import file, floor, leg, metadata, pin, run


def put_record(connection: Connection, record: Record) -> None:
    """Let the rows of a run be those of a record; its pins stay."""
    values = {**record.run, "record_sha256": record.sha256, "supersedes": record.supersedes}
    known = connection.execute(select(run.c.id).where(run.c.id == record.id)).scalar()
    if known is None:
        connection.execute(insert(run).values(values))
    else:
        connection.execute(run.update().where(run.c.id == record.id).values(values))
    for part in PARTS:
        table = metadata.tables[part]
        connection.execute(delete(table).where(table.c.run_id == record.id))
        if rows := list(getattr(record, part)):
            connection.execute(insert(table), rows)


def get_record(connection: Connection, id: str) -> Record | None:
    """Return the record that the rows of a run came from."""
    row = connection.execute(select(run).where(run.c.id == id)).mappings().first()
    if row is None:
        return None
    values = dict(row)
    del values["record_sha256"]
    parts: dict[str, tuple[Row, ...]] = {}
    for part in PARTS:
        table = metadata.tables[part]
        rows = connection.execute(select(table).where(table.c.run_id == id)).mappings()
        parts[part] = tuple(dict(found) for found in rows)
    return Record(supersedes=values.pop("supersedes"), run=values, **parts)


def drop_run(connection: Connection, id: str) -> None:
    """Take a run out, with all that hangs on it."""
    connection.execute(delete(run).where(run.c.id == id))


def record_names(connection: Connection) -> dict[str, str]:
    """Return the hash of the record of each run."""
    return {
        row.id: row.record_sha256
        for row in connection.execute(select(run.c.id, run.c.record_sha256))
    }


def named_objects(connection: Connection) -> dict[str, set[str]]:
    """Return the hashes of the objects that each run needs; those of floors under no name."""
    found = {"": set(connection.execute(select(floor.c.sha256)).scalars())}
    for row in connection.execute(select(file.c.run_id, file.c.sha256)):
        found.setdefault(row.run_id, set()).add(row.sha256)
    return found


def floor_names(connection: Connection) -> set[str]:
    """Return the names of the floors that the index knows."""
    return set(connection.execute(select(floor.c.name)).scalars())


def put_floor(connection: Connection, row: Row) -> None:
    """Let the index know a floor."""
    connection.execute(delete(floor).where(floor.c.name == row["name"]))
    connection.execute(insert(floor).values(row))


def put_pins(connection: Connection, id: str, holders: Mapping[str, str]) -> None:
    """Let the pins of a run be these: since when, by holder."""
    connection.execute(delete(pin).where(pin.c.run_id == id))
    for holder, created in holders.items():
        connection.execute(insert(pin).values(run_id=id, holder=holder, created=created))


def pinned(connection: Connection) -> dict[str, list[str]]:
    """Return who needs each run that somebody needs."""
    found: dict[str, list[str]] = {}
    for row in connection.execute(select(pin).order_by(pin.c.created, pin.c.holder)):
        found.setdefault(row.run_id, []).append(row.holder)
    return found


def find_runs(connection: Connection, filters: Filters) -> Sequence[StoredRun]:
    """Return the runs that pass the filters, the newest first."""
    rows = connection.execute(_select(filters)).mappings().all()
    legs = select(leg.c.run_id, leg.c.stack).order_by(leg.c.run_id, leg.c.place)
    if filters.limit is not None or filters.id is not None:
        legs = legs.where(leg.c.run_id.in_([row["id"] for row in rows]))
    stacks: dict[str, tuple[str, ...]] = {}
    for id, stack in connection.execute(legs):
        stacks[id] = (*stacks.get(id, ()), stack)
    return [_stored(row, stacks.get(row["id"], ())) for row in rows]


def _stored(row: Mapping[Any, Any], stacks: tuple[str, ...]) -> StoredRun:
    values = {name: value for name, value in row.items() if name != "supersedes"}
    return StoredRun(**values, stacks=stacks)


def _select(filters: Filters) -> Select[Any]:
    wanted = {
        run.c.id: filters.id,
        run.c.verdict: filters.verdict,
        run.c.config_name: filters.config,
        run.c.branch: filters.branch,
        run.c.author: filters.author,
        run.c.purpose: filters.purpose,
        run.c.mode: filters.mode,
    }
    conditions = [column == value for column, value in wanted.items() if value is not None]
    if filters.commit is not None:
        conditions.append(run.c.commit.startswith(filters.commit, autoescape=True))
    if filters.since is not None:
        conditions.append(run.c.created >= filters.since)
    if filters.stack is not None:
        ran = and_(leg.c.run_id == run.c.id, leg.c.stack == filters.stack)
        conditions.append(exists().where(ran))
    query = select(run).where(*conditions).order_by(run.c.created.desc(), run.c.id.desc())
    return query if filters.limit is None else query.limit(filters.limit)
