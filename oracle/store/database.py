"""The index as a database: opened, brought to the version of this code, or refused in a sentence.

SQLite runs in write-ahead mode: readers do not wait for a writer, and a writer waits for another.
What is peculiar to SQLite is in this file alone. Alembic is imported when a migration is due.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, Engine, create_engine, event, inspect, select, text
from sqlalchemy.exc import DBAPIError, IntegrityError
from sqlalchemy.pool import NullPool

from oracle.store.error import DamagedIndex, StoreError
from oracle.store.tables import metadata

VERSIONS = ("0001",)  # of the tables, in order; this code reads and writes the last
WAIT_SECONDS = 120  # for another writer
MIGRATIONS = Path(__file__).parent / "migrations"
PRAGMAS = ("foreign_keys = on", "synchronous = full")
# What SQLite says of a file that is not, or no longer, a database.
DAMAGE = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)
BUSY = (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)


class Database:
    """The index in a SQLite file, which is made when it is first written."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.engine = _sqlite(path)

    @contextmanager
    def reading(self) -> Iterator[Connection]:
        """Yield a connection that sees one state of the index; raises StoreError."""
        with self._told(), self.engine.connect() as connection:
            yield connection

    @contextmanager
    def writing(self) -> Iterator[Connection]:
        """Yield a connection whose changes are committed together or not at all."""
        with self._told(), writer(self.engine) as connection, connection.begin():
            yield connection

    def due(self) -> bool:
        """Whether a migration is due; raises StoreError for an index of a newer oracle."""
        with self._told():
            found = self._version()
        if found == VERSIONS[-1]:
            return False
        if found is None or found in VERSIONS:
            return True
        if found.isdecimal():
            raise StoreError(
                f"the index {self.path} is of version {found} and this oracle knows versions up "
                f"to {VERSIONS[-1]}: use the newer oracle that wrote it, or another --out."
            )
        raise self._damaged(f"its version is {found!r}")

    def upgrade(self) -> None:
        """Bring the index to the version of this code; the caller holds the store alone."""
        self.path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        os.close(os.open(self.path, os.O_RDWR | os.O_CREAT, 0o600))  # its journals take this mode
        with self._told():
            with self.engine.connect() as connection:
                connection.connection.dbapi_connection.execute("pragma journal_mode = wal")  # type: ignore[union-attr]
            migrate(self.engine, "head")

    def check(self) -> None:
        """Read the whole index; raises DamagedIndex."""
        with self.reading() as connection:
            answer = connection.execute(text("pragma integrity_check")).scalar()
            for table in metadata.sorted_tables:
                connection.execute(select(table).limit(1))
        if answer != "ok":
            raise self._damaged("its pages contradict each other")

    def _version(self) -> str | None:
        with self.engine.connect() as connection:
            if not inspect(connection).has_table("alembic_version"):
                return None
            return connection.execute(text("select version_num from alembic_version")).scalar()

    @contextmanager
    def _told(self) -> Iterator[None]:
        """Turn what a database says into one sentence."""
        try:
            yield
        except IntegrityError:
            raise  # a fault of ours
        except DBAPIError as error:
            raise self._sentence(error.orig) from error
        except sqlite3.Error as error:
            raise self._sentence(error) from error

    def _sentence(self, error: BaseException | None) -> StoreError:
        code = getattr(error, "sqlite_errorcode", 0) & 0xFF  # the rest says more closely where
        if code in DAMAGE or "no such table" in str(error) or "no such column" in str(error):
            return self._damaged(str(error))
        if code in BUSY:
            return StoreError(
                f"the index {self.path} was locked by another process for more than "
                f"{WAIT_SECONDS} seconds; try again when that has ended."
            )
        return StoreError(f"the index {self.path} cannot be used ({error}).")

    def _damaged(self, reason: str) -> DamagedIndex:
        return DamagedIndex(
            f"the index {self.path} is damaged ({reason}); `oracle reindex` builds it again from "
            "the records beside it, and no run is lost."
        )


def migrate(engine: Engine, revision: str) -> None:
    """Move the tables up or down to a revision (`head`, `base`, or its number)."""
    from alembic import command
    from alembic.config import Config

    config = Config()
    config.set_main_option("script_location", str(MIGRATIONS).replace("%", "%%"))
    with writer(engine) as connection, connection.begin():
        config.attributes["connection"] = connection
        down = revision == "base" or revision in VERSIONS[:-1]
        (command.downgrade if down else command.upgrade)(config, revision)


@contextmanager
def writer(engine: Engine) -> Iterator[Connection]:
    """Yield a connection whose transactions write."""
    with engine.connect() as connection:
        yield connection.execution_options(oracle_writes=True)


def _sqlite(path: Path) -> Engine:
    def connect() -> sqlite3.Connection:
        # `mode=rw`: to look is not to make a file, least of all one that others may read.
        return sqlite3.connect(f"{path.as_uri()}?mode=rw", uri=True, timeout=WAIT_SECONDS)

    # A pool would keep hold of a file that another process has set aside.
    engine = create_engine("sqlite://", creator=connect, poolclass=NullPool)

    @event.listens_for(engine, "connect")
    def _connected(connection: Any, _: Any) -> None:
        connection.isolation_level = None  # the driver would begin by itself, and too late
        for pragma in PRAGMAS:
            connection.execute(f"pragma {pragma}")

    @event.listens_for(engine, "begin")
    def _begun(connection: Connection) -> None:
        # A writer that first reads takes its lock at the start: it can wait then, not later.
        writes = connection.get_execution_options().get("oracle_writes")
        connection.exec_driver_sql("begin immediate" if writes else "begin")

    return engine
