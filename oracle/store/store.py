"""The store of a folder of runs: record, list, find, verify, remove, pin. One for all processes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from oracle.runs import Run
from oracle.store.listed import Alteration, Filters, Freed, StoredRun
from oracle.trace import Trace


class Store:
    """Runs, verdicts and floors beside the run directories of `out`."""

    def __init__(self, out: Path, *, on_note: Callable[[str], None] | None = None) -> None:
        self.out = out.resolve()

    def record(self, run: Run) -> StoredRun:
        """Keep every file of a judged run and list it; again when it was judged again.

        An unchanged run is left as it is. Raises OracleError when there is no verdict, OSError with
        the path when the disk is full.
        """
        raise NotImplementedError

    def record_floor(self, path: Path) -> None:
        """Keep a floor file of `oracle calibrate`, with its provenance."""
        raise NotImplementedError

    def runs(self, filters: Filters | None = None) -> Sequence[StoredRun]:
        """Return the runs that pass the filters, the newest first."""
        raise NotImplementedError

    def find(self, text: str) -> StoredRun:
        """Return the run of an id, the end of an id, a path to its directory, or `latest`.

        Raises OracleError when there is none, or more than one.
        """
        raise NotImplementedError

    def open_trace(self, stored: StoredRun, leg: str) -> Trace:
        """Return the trace of a leg as it was recorded, whatever became of its run directory.

        Raises OracleError when it was altered or the leg left none.
        """
        raise NotImplementedError

    def verdict(self, stored: StoredRun) -> str:
        """Return the document of `verdict.json` as it was recorded; `report.json.loads` reads it.

        Raises OracleError when it was altered.
        """
        raise NotImplementedError

    def directory(self, stored: StoredRun) -> Run:
        """Return the run as a directory: its own, or one restored from the objects."""
        raise NotImplementedError

    def verify(self, stored: StoredRun) -> Sequence[Alteration]:
        """Hash everything that is kept of a run, and its directory if it is there."""
        raise NotImplementedError

    def remove(self, stored: Sequence[StoredRun], *, force: bool = False) -> Freed:
        """Take runs away, directory and all; raises OracleError for one that runs or is pinned."""
        raise NotImplementedError

    def prune(
        self, *, keep_days: float | None = None, keep_last: int | None = None, dry_run: bool = False
    ) -> Freed:
        """Remove runs older than `keep_days` that are not of the `keep_last` of their config.

        Without either no run goes, but leftovers of killed processes do. Pinned runs stay.
        """
        raise NotImplementedError

    def pin(self, stored: StoredRun, by: str) -> None:
        """Note that `by` needs the run: neither `remove` nor `prune` takes it before `unpin`."""
        raise NotImplementedError

    def unpin(self, stored: StoredRun, by: str) -> None:
        """Take a pin back; one that is not there is no error."""
        raise NotImplementedError

    def pins(self, stored: StoredRun) -> Sequence[str]:
        """Return who needs the run."""
        raise NotImplementedError

    def reindex(self) -> Sequence[str]:
        """Build the index again from records and run directories; returns a sentence a problem."""
        raise NotImplementedError
