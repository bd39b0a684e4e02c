"""One lock between processes: whoever adds shares it, whoever takes away or rebuilds has it alone.

The system lets go of it when a process ends, however it ends.
"""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from oracle.errors import OracleError

WAIT_SECONDS = 120.0  # a recording hashes whole traces
PAUSE_SECONDS = 0.02


@dataclass(frozen=True, kw_only=True)
class Lock:
    """The lock file of a store; its folder is made when it is first held."""

    path: Path

    @contextmanager
    def shared(self) -> Iterator[None]:
        """Hold it with others that add; raises OracleError when it is not free in time."""
        with self._held(fcntl.LOCK_SH, WAIT_SECONDS):
            yield

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Hold it alone; raises OracleError when it is not free in time."""
        with self._held(fcntl.LOCK_EX, WAIT_SECONDS):
            yield

    @contextmanager
    def alone_now(self) -> Iterator[bool]:
        """Hold it alone if it is free at this moment; gives whether it is held."""
        handle = self._open()
        try:
            yield _try(handle, fcntl.LOCK_EX)
        finally:
            os.close(handle)

    @contextmanager
    def _held(self, kind: int, wait_seconds: float) -> Iterator[None]:
        end = time.monotonic() + wait_seconds
        handle = self._open()
        try:
            # Who waits to be alone stands in the turnstile, so that those who share, one after the
            # other without a gap, do not keep it waiting for ever.
            turnstile = self._open(".turn")
            try:
                self._wait(turnstile, fcntl.LOCK_EX, end, wait_seconds)
                self._wait(handle, kind, end, wait_seconds)
            finally:
                os.close(turnstile)
            yield
        finally:
            os.close(handle)

    def _wait(self, handle: int, kind: int, end: float, wait_seconds: float) -> None:
        while not _try(handle, kind):
            if time.monotonic() > end:
                raise OracleError(
                    f"the store {self.path.parent} is held by another process for more than "
                    f"{wait_seconds:.0f} seconds; try again when that has ended."
                )
            time.sleep(PAUSE_SECONDS)

    def _open(self, suffix: str = "") -> int:
        self.path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        path = self.path.with_name(self.path.name + suffix)
        return os.open(path, os.O_RDWR | os.O_CREAT, 0o600)


def _try(handle: int, kind: int) -> bool:
    try:
        fcntl.flock(handle, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
