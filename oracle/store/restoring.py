"""A stored run as a directory again: its own if that is as recorded, else one made from objects."""

from __future__ import annotations

import secrets
import shutil
from pathlib import Path

from oracle.files import sha256_file
from oracle.runs import Run, open_run
from oracle.store.error import StoreError
from oracle.store.place import Place
from oracle.store.record import DIGITS, EARLIER, Record

SMALL = ("run.json", "verdict.json", "done.json")  # the last hashes everything of its trace


def edited(place: Place, record: Record) -> str | None:
    """Return the first file of the run directory that is not as recorded; None when all is well.

    Looks at manifest, verdict and the footers of the traces, which hash the rest.
    """
    folder = place.directory(record.id)
    for path, sha256 in record.files.items():
        if path.startswith(f"{EARLIER}/") or path.rpartition("/")[2] not in SMALL:
            continue
        try:
            if sha256_file(folder / path) != sha256:
                return path
        except OSError:
            return path
    return None


def restored(place: Place, record: Record) -> Run:
    """Return the run from its objects; raises StoreError when one of them was altered."""
    target = place.restored / record.sha256[:DIGITS] / record.id
    if (target / "run.json").exists():
        return open_run(target)
    made = place.restored / f".{secrets.token_hex(4)}.tmp" / record.id
    try:
        for path in record.files:
            _take(place, record, path, made)
        target.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        try:
            made.replace(target)
        except OSError:  # another process was faster: a folder that is not empty stays
            if not (target / "run.json").exists():
                raise
    finally:
        shutil.rmtree(made.parent, ignore_errors=True)
    return open_run(target)


def altered(place: Place, record: Record, path: str) -> StoreError:
    """Return the sentence on an object that is not as recorded."""
    sha256 = record.files[path]
    found = place.objects.found(sha256)
    now = "is gone" if found is None else f"has {found[:DIGITS]} now"
    return StoreError(
        f"{path} of {record.id} was recorded with the hash {sha256[:DIGITS]} and its object "
        f"{place.objects.path(sha256)} {now}; `oracle verify {record.id}` lists all that was "
        "altered."
    )


def _take(place: Place, record: Record, path: str, made: Path) -> None:
    try:
        if place.objects.take(record.files[path], made / path) == record.files[path]:
            return
    except FileNotFoundError:
        pass
    raise altered(place, record, path)
