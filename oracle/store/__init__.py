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

from oracle.store.listed import Alteration, Filters, StoredRun

if TYPE_CHECKING:
    from oracle.store.store import Store

__all__ = ["Alteration", "Filters", "StoredRun", "open_store"]


def open_store(out: Path, on_note: Callable[[str], None] | None = None) -> Store:
    """Return the store of a folder of runs; nothing is made before something is recorded.

    `on_note` gets a sentence when a damaged index was set aside and built again. Raises OracleError
    for a store that a newer oracle wrote.
    """
    from oracle.store.store import Store  # SQLAlchemy takes a fifth of a second to import

    return Store(out, on_note=on_note)
