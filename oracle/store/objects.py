"""Files by the SHA-256 of their bytes: each content once, whole or not there at all.

Where the file system can share blocks (XFS, btrfs) a file is cloned. Elsewhere one that a person
may edit is copied, so that what was judged outlives the edit, and a large one is linked, so that a
trace takes its place on the disk once; an edit in place of such a file is found by `verify`.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import secrets
import shutil
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from oracle.files import naming, sha256_file

LINKED_BYTES = 4 << 20  # a file of so many bytes or more is linked
FICLONE = 0x40049409  # linux/fs.h: share the blocks of another file


@dataclass(frozen=True, kw_only=True)
class Objects:
    """A folder `ab/cdef…` of objects, mode 0600."""

    folder: Path

    def path(self, digest: str) -> Path:
        """Return where the object of a digest lies, whether it is there or not."""
        return self.folder / digest[:2] / digest[2:]

    def put(self, source: Path) -> str:
        """Keep a file's content and return its digest; raises OSError with the path.

        An object that was damaged is replaced. Call `sync_folders` before anything names it.
        """
        self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        temporary = self.folder / f".{secrets.token_hex(8)}.tmp"
        with naming(temporary):
            try:
                duplicate(source, temporary)
                digest = sha256_file(temporary)  # of what is kept, not of what was there before
                target = self.path(digest)
                if not _same(temporary, target) and not self.fits(digest):
                    sync(temporary)
                    target.parent.mkdir(exist_ok=True, mode=0o700)
                    temporary.replace(target)
            finally:
                temporary.unlink(missing_ok=True)
        return digest

    def take(self, digest: str, target: Path) -> str:
        """Put the object's content at `target` and return the digest that it has now.

        Raises FileNotFoundError when it is gone.
        """
        target.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        duplicate(self.path(digest), target)
        return sha256_file(target)

    def found(self, digest: str) -> str | None:
        """Return the digest that the object has now, None when it is gone."""
        with contextlib.suppress(FileNotFoundError):
            return sha256_file(self.path(digest))
        return None

    def fits(self, digest: str) -> bool:
        """Whether the object is there with the bytes that its name says."""
        return self.found(digest) == digest

    def all(self) -> Iterator[tuple[str, Path]]:
        """Yield every object that is there, by digest."""
        for path in self.folder.glob("[0-9a-f][0-9a-f]/*"):
            yield path.parent.name + path.name, path

    def leftovers(self) -> Iterator[Path]:
        """Yield the temporary files of processes that were killed while they wrote."""
        yield from self.folder.glob(".*.tmp")

    def sync_folders(self, digests: Iterable[str]) -> None:
        """Let what was put outlast a loss of power: the names, too, reach the disk."""
        for folder in {self.folder, *(self.path(digest).parent for digest in digests)}:
            sync(folder)


def duplicate(source: Path, target: Path) -> None:
    """Make `target` hold the bytes of `source` at mode 0600: cloned, copied, or linked if large."""
    handle = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with source.open("rb") as stream, os.fdopen(handle, "wb") as copy:
        try:
            fcntl.ioctl(copy, FICLONE, stream.fileno())
            return
        except OSError:  # another file system, or one that cannot share blocks
            pass
        if os.fstat(stream.fileno()).st_size < LINKED_BYTES:
            shutil.copyfileobj(stream, copy)
            return
    target.unlink()
    try:
        os.link(source, target)
    except OSError:  # another file system, or one without links
        handle = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with source.open("rb") as stream, os.fdopen(handle, "wb") as copy:
            shutil.copyfileobj(stream, copy)
    else:
        target.chmod(0o600)  # the same file as the source, which holds clinical data just as well


def _same(a: Path, b: Path) -> bool:
    return b.exists() and a.samefile(b)


def sync(path: Path) -> None:
    """Let the content of a file, or the names in a folder, reach the disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
