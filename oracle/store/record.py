"""A record: everything that the index says of one run, as a file that is named by its hash.

records/RUN.HASH.json    HASH are the first 16 digits of the SHA-256 of its bytes
An index can be built again from these alone. When a run is judged again, the new record names the
one that it supersedes and keeps the earlier verdict among its files.
"""

from __future__ import annotations

import glob
import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from oracle.errors import OracleError
from oracle.files import write_atomic
from oracle.store.objects import sync

VERSION = "1"
PARTS = ("leg", "phase", "file")
DIGITS = 16  # of the hash in a name
EARLIER = "earlier"  # folder of the verdicts before the last one, in `file`

Row = Mapping[str, Any]


@dataclass(frozen=True, kw_only=True)
class Record:
    """Rows of the index by table: one of `run`, several of `leg`, `phase` and `file`."""

    run: Row
    leg: tuple[Row, ...]
    phase: tuple[Row, ...]
    file: tuple[Row, ...]
    supersedes: str | None = None

    @property
    def id(self) -> str:
        """The run's id."""
        return str(self.run["id"])

    @property
    def files(self) -> dict[str, str]:
        """SHA-256 of what is kept, by path in the run directory."""
        return {row["path"]: row["sha256"] for row in self.file}

    def dumps(self) -> bytes:
        """Return the record as JSON: the same rows give the same bytes."""
        parts = {part: sorted(getattr(self, part), key=_key) for part in PARTS}
        document: dict[str, Any] = {"record_version": VERSION, "supersedes": self.supersedes}
        document |= {"run": self.run, **parts}
        return json.dumps(document, indent=1, ensure_ascii=True, sort_keys=True).encode() + b"\n"

    @property
    def sha256(self) -> str:
        """The hash of the record."""
        return hashlib.sha256(self.dumps()).hexdigest()


@dataclass(frozen=True, kw_only=True)
class Records:
    """The folder of records."""

    folder: Path

    def path(self, run: str, sha256: str) -> Path:
        """Return where a record lies."""
        return self.folder / f"{run}.{sha256[:DIGITS]}.json"

    def names(self) -> Iterator[tuple[str, str]]:
        """Yield the run and the first digits of the hash of every record, by name alone."""
        for path in self.folder.glob("[!.]*.json"):
            run, _, digits = path.stem.rpartition(".")
            if run and len(digits) == DIGITS:
                yield run, digits

    def write(self, record: Record) -> Path:
        """Write a record, whole and down to the disk."""
        self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        path = self.path(record.id, record.sha256)
        write_atomic(path, record.dumps())
        sync(self.folder)
        return path

    def read(self, run: str, sha256: str) -> Record:
        """Read the record of a run; raises OracleError when it is gone or was edited."""
        path = self.path(run, sha256)
        try:
            content = path.read_bytes()
        except FileNotFoundError:
            raise OracleError(
                f"the record {path} is gone; `oracle reindex` finds out more."
            ) from None
        found = hashlib.sha256(content).hexdigest()
        if not found.startswith(sha256[:DIGITS]):
            raise OracleError(
                f"the record {path} was edited: it has the hash {found[:DIGITS]} now; put the file "
                "back, or move it away and use `oracle reindex`."
            )
        return _loads(content, path)

    def of(self, run: str) -> tuple[list[Record], list[str]]:
        """Return the usable records of a run, the one that holds first, and what is wrong else.

        There are several only where a process was killed between a new one and the old.
        """
        found, problems = [], []
        for path in sorted(self.folder.glob(f"{glob.escape(run)}.{'?' * DIGITS}.json")):
            try:
                found.append(self.read(run, path.stem[-DIGITS:]))
            except OracleError as error:
                problems.append(str(error))
        superseded = {record.supersedes for record in found}
        found.sort(
            key=lambda record: (
                record.sha256 not in superseded,
                record.run["recorded"],
                record.sha256,
            ),
            reverse=True,
        )
        return found, problems


def _key(row: Row) -> tuple[int, str]:
    """Order rows by what tells them apart within a run, as no database would by itself."""
    return row.get("place", 0), row.get("phase") or row.get("path") or ""


def _loads(content: bytes, path: Path) -> Record:
    try:
        document = json.loads(content)
        version = document["record_version"]
        if version == VERSION:
            parts = {part: tuple(document[part]) for part in PARTS}
            return Record(run=document["run"], supersedes=document["supersedes"], **parts)
    except (ValueError, KeyError, TypeError):
        raise OracleError(f"{path} is no record of a run; move it away and reindex.") from None
    raise OracleError(
        f"the record {path} is of version {version!r} and this oracle reads {VERSION!r}: use the "
        "newer oracle that wrote it."
    )
