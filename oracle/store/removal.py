"""What goes, and what that frees: planned first, so that a dry run says what a real one does.

A run goes in this order: its row, its record, its directory, its objects. Whatever a killed process
left of that is listed whole or collected later. The caller holds the store alone.
"""

from __future__ import annotations

import os
import secrets
import shutil
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from oracle.runs import LATEST
from oracle.store.listed import Freed, StoredRun
from oracle.store.place import Place

RESTORED_SECONDS = 3600.0  # somebody may still be looking into one that is younger
GOING = ".removed-"


@dataclass(frozen=True, kw_only=True)
class Plan:
    """Runs that go with their directories, and files and folders that nobody names."""

    runs: tuple[StoredRun, ...]
    records: tuple[Path, ...]
    directories: tuple[Path, ...]
    objects: tuple[Path, ...]
    leftovers: tuple[Path, ...]

    def freed(self) -> Freed:
        """Return what it takes away; a file with a name elsewhere frees nothing."""
        return Freed(
            runs=tuple(run.id for run in self.runs),
            num_leftovers=len(self.leftovers),
            num_bytes=_bytes((*self.records, *self.directories, *self.objects, *self.leftovers)),
        )

    def carry_out(self, place: Place) -> None:
        """Take it away; rows of the index have gone before."""
        for path in self.records:
            path.unlink(missing_ok=True)
        for run in self.runs:
            place.pins.write(run.id, {})
        for directory in self.directories:
            # Renamed first: a directory that is half removed must not pass for a run.
            going = directory.with_name(f"{GOING}{secrets.token_hex(4)}-{directory.name}")
            directory.replace(going)
            shutil.rmtree(going)
        for path in (*self.objects, *self.leftovers):
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path)
            else:
                path.unlink(missing_ok=True)
        _repair_latest(place.out)


def plan(
    place: Place,
    runs: Sequence[StoredRun],
    named: Mapping[str, set[str]],
    *,
    garbage: bool,
) -> Plan:
    """Return what goes with these runs, and with `garbage` all that nobody names.

    `named` are the objects that each run needs, and floors (under the name "").
    """
    going = {run.id for run in runs}
    needed = set().union(*(digests for id, digests in named.items() if id not in going))
    if garbage:
        doomed = [path for digest, path in place.objects.all() if digest not in needed]
    else:
        theirs = set().union(*(named.get(id, set()) for id in going))
        doomed = [place.objects.path(digest) for digest in sorted(theirs - needed)]
    return Plan(
        runs=tuple(runs),
        records=tuple(place.records.path(run.id, run.record_sha256) for run in runs),
        directories=tuple(path for run in runs if (path := place.directory(run.id)).is_dir()),
        objects=tuple(path for path in doomed if path.exists()),
        leftovers=tuple(_leftovers(place)) if garbage else (),
    )


def out_of_keep(
    runs: Sequence[StoredRun], *, keep_last: int | None, since: str | None
) -> Iterator[StoredRun]:
    """Yield the runs, given newest first, that are neither young enough nor of the last of a kind.

    A kind is a config, mode and purpose. Without either limit all are kept.
    """
    seen: Counter[tuple[str, str, str]] = Counter()
    for run in runs:
        kind = run.config_name, run.mode, run.purpose
        seen[kind] += 1
        last = keep_last is not None and seen[kind] <= keep_last
        young = since is not None and run.created >= since
        if not last and not young and (keep_last, since) != (None, None):
            yield run


def _leftovers(place: Place) -> Iterator[Path]:
    """Yield what killed processes left, and restored directories that nobody has used lately."""
    yield from place.objects.leftovers()
    for folder in (place.records.folder, place.pins.folder, place.floors.folder):
        yield from folder.glob(".*.tmp")
    yield from place.out.glob(f"{GOING}*")
    for path in place.restored.glob("*"):
        if time.time() - path.stat().st_mtime > RESTORED_SECONDS:
            yield path


def _bytes(paths: Iterable[Path]) -> int:
    """Return the bytes that removing all these frees: of files all of whose names go."""
    names: Counter[tuple[int, int]] = Counter()
    sizes: dict[tuple[int, int], tuple[int, int]] = {}
    for status in _files(paths):
        key = status.st_dev, status.st_ino
        names[key] += 1
        sizes[key] = status.st_nlink, status.st_size
    return sum(size for key, (links, size) in sizes.items() if names[key] >= links)


def _files(paths: Iterable[Path]) -> Iterator[os.stat_result]:
    for path in paths:
        if path.is_dir() and not path.is_symlink():
            yield from _files(path.iterdir())
        elif path.exists():
            yield path.lstat()


def _repair_latest(out: Path) -> None:
    """Let `latest` lead to the newest run that is left, or nowhere."""
    link = out / LATEST
    if not link.is_symlink() or link.exists():
        return
    link.unlink(missing_ok=True)
    left = [path.parent for path in out.glob("*/run.json")]
    if left:
        newest = max(left, key=lambda path: (path.name[-21:], path.name))
        link.symlink_to(newest.name)
