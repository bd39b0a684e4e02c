"""What is kept of a run, hashed again: the record, the objects, and the run directory."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from oracle.files import sha256_file
from oracle.store.listed import Alteration, StoredRun
from oracle.store.place import Place
from oracle.store.record import EARLIER, Record


class Verifier:
    """Hashes each file once, however many runs share it."""

    def __init__(self, place: Place) -> None:
        self.place = place
        self._hashes: dict[tuple[int, int], str] = {}  # by device and inode

    def altered(self, stored: StoredRun, record: Record) -> Iterator[Alteration]:
        """Yield what is not as it was recorded; `record` is made of the rows of the index."""
        path = self.place.records.path(stored.id, stored.record_sha256)
        yield from self._held(stored.id, path, stored.record_sha256)
        if record.sha256 != stored.record_sha256:
            yield Alteration(
                run=stored.id,
                file=self.place.shown(self.place.index),
                expected=stored.record_sha256,
                found=record.sha256,
            )
        for sha256 in sorted(set(record.files.values())):
            yield from self._held(stored.id, self.place.objects.path(sha256), sha256)
        folder = self.place.directory(stored.id)
        if folder.is_dir():
            for name, sha256 in record.files.items():
                if not name.startswith(f"{EARLIER}/"):
                    yield from self._held(stored.id, folder / name, sha256)

    def _held(self, run: str, path: Path, expected: str) -> Iterator[Alteration]:
        found = self._hash(path)
        if found != expected:
            file = self.place.shown(path)
            yield Alteration(run=run, file=file, expected=expected, found=found)

    def _hash(self, path: Path) -> str | None:
        try:
            status = path.stat()
            key = status.st_dev, status.st_ino
            if key not in self._hashes:
                self._hashes[key] = sha256_file(path)
        except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
            return None
        return self._hashes[key]
