"""The store: runs, verdicts and floors, content-addressed, in an index that survives a kill.

    store = open_store(Path("runs"))
    store.record(run)                                 after its verdict was written
    store.runs(Filters(verdict="DIVERGED"))

Beside the run directories of `out`, for this user alone (0600, folders 0700):

    store/index.sqlite           what is asked: SQLAlchemy tables, Alembic migrations
    store/records/RUN.HASH.json  all that the index says of a run: the index can be built again
    store/objects/ab/cdef…       the files, named by their SHA-256, each once
    store/floors, store/pins     which objects are floors; who needs a run

A run is listed when its record is whole. What a killed process left are objects that no record
names; `prune` collects them.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from oracle import runs
from oracle.errors import OracleError
from oracle.store.listed import Alteration, Filters, Freed, StoredRun

if TYPE_CHECKING:
    from oracle.store.store import Store

__all__ = ["Alteration", "Filters", "Freed", "StoredRun", "find_run", "keep", "open_store"]

Note = Callable[[str], None]


def open_store(out: Path, on_note: Note | None = None) -> Store:
    """Return the store of a folder of runs; nothing is made before something is recorded.

    `on_note` gets a sentence when a damaged index was set aside and built again. Raises OracleError
    for a store that a newer oracle wrote.
    """
    from oracle.store.store import Store  # SQLAlchemy takes a fifth of a second to import

    return Store(out, on_note=on_note)


def keep(path: Path, on_note: Note) -> None:
    """Record a run directory or a floor file that was just made.

    One that cannot be recorded is told and costs nothing else: its verdict stands, its files are
    there, and `oracle reindex` records it later.
    """
    floor = path.is_file()
    out = path.parent.parent if floor else path.parent
    try:
        store = open_store(out, on_note)
        if floor:
            store.record_floor(path)
        else:
            store.record(runs.open_run(path))
    except (OracleError, OSError) as error:
        reason = error if isinstance(error, OracleError) else f"{error.strerror} {error.filename}"
        on_note(
            f"warning: {path} was not recorded in the store ({reason}) Nothing is lost: it is "
            f"where it was made, and `oracle reindex --out {out}` records it."
        )


def find_run(text: str, out: Path, on_note: Note | None = None) -> runs.Run:
    """Return a run as `oracle.runs.find_run` does, from the store when its directory is gone.

    `on_note` is told when the directory was edited after it was recorded.
    """
    try:
        found = runs.find_run(text, out)
    except OracleError:
        if not (out / "store").is_dir():
            raise
        store = open_store(out, on_note)
        try:
            stored = store.find(text)
        except OracleError:
            stored = None
        if stored is None:
            raise
        return store.directory(stored)
    if on_note is not None and (path := _edited(found)) is not None:
        on_note(
            f"warning: {found.path / path} is not as it was recorded; what follows is of the "
            f"directory as it is now (oracle verify {found.path.name})."
        )
    return found


def _edited(run: runs.Run) -> str | None:
    """Return the first file of a run directory that is not as recorded, if the run was recorded."""
    from oracle.store.place import Place
    from oracle.store.restoring import edited

    place = Place(run.path.parent)
    records, _ = place.records.of(run.manifest.run)
    return edited(place, records[0]) if records else None
