"""The store of a folder of runs: record, list, find, verify, remove, pin. One for all processes."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

from oracle.errors import OracleError
from oracle.runs import LATEST, Run, open_run, refuse_running
from oracle.store import index
from oracle.store.access import Access
from oracle.store.listed import Alteration, Filters, Freed, StoredRun
from oracle.store.place import Place
from oracle.store.rebuild import rebuild
from oracle.store.record import Record
from oracle.store.removal import out_of_keep, plan
from oracle.store.restoring import altered, edited, restored
from oracle.store.verification import Verifier

# To list runs is to import neither polars nor numpy: what records and reads traces comes later.
if TYPE_CHECKING:
    from oracle.trace import Trace


def _silent(_: str) -> None:
    """Drop a note."""


class Store:
    """Runs, verdicts and floors beside the run directories of `out`."""

    def __init__(self, out: Path, *, on_note: Callable[[str], None] | None = None) -> None:
        self.place = Place(out.resolve())
        self.access = Access(self.place, on_note or _silent)
        self.database = self.access.database

    # Keep

    def record(self, run: Run) -> StoredRun:
        """Keep every file of a judged run and list it; again when it was judged again.

        An unchanged run is left as it is. Raises OracleError when there is no verdict, OSError with
        the path when the disk is full.
        """
        self.access.ready()
        return self.access.healed(lambda: self._record(run.path))

    def _record(self, path: Path) -> StoredRun:
        from oracle.store.recording import after, make_record

        place = self.place
        with place.lock.shared():
            record = make_record(path, place.objects)
            # In one transaction, so that of two processes with one run the second sees the first.
            with self.database.writing() as connection:
                before = index.get_record(connection, record.id)
                fresh = record if before is None else after(record, before)
                if fresh is not None:
                    place.records.write(fresh)
                    index.put_record(connection, fresh)
                (stored,) = index.find_runs(connection, Filters(id=record.id))
            if fresh is not None and before is not None:
                place.records.path(before.id, before.sha256).unlink(missing_ok=True)
        return stored

    def record_floor(self, path: Path) -> None:
        """Keep a floor file of `oracle calibrate`, with its provenance."""
        self.access.ready()
        self.access.healed(lambda: self._record_floor(path))

    def _record_floor(self, path: Path) -> None:
        from oracle.store.recording import floor_row

        with self.place.lock.shared():
            row = floor_row(path, self.place.objects)
            with self.database.writing() as connection:
                self.place.floors.write(str(row["name"]), row)
                index.put_floor(connection, row)

    # Look

    def runs(self, filters: Filters | None = None) -> Sequence[StoredRun]:
        """Return the runs that pass the filters, the newest first."""
        if not self.access.exists():
            return []
        return self.access.read(
            lambda connection: index.find_runs(connection, filters or Filters())
        )

    def find(self, text: str) -> StoredRun:
        """Return the run of an id, the end of an id, a path to its directory, or `latest`.

        Raises OracleError when there is none, or more than one.
        """
        name = Path(text).name
        found = [run for run in self.runs() if text == LATEST or run.id.endswith(name)]
        exact = [run for run in found if run.id == name or text == LATEST]
        if exact or len(found) == 1:
            return (exact or found)[0]
        if not found:
            raise OracleError(f"no run {text!r} in the store {self.place.root}.")
        names = ", ".join(run.id for run in found[:3])
        raise OracleError(
            f"{len(found)} runs of the store {self.place.root} end with {text!r} ({names}); give "
            "more of the id."
        )

    def verdict(self, stored: StoredRun) -> str:
        """Return the document of `verdict.json` as it was recorded; `report.json.loads` reads it.

        Raises OracleError when it was altered.
        """
        record = self._of(stored)
        digest = record.files["verdict.json"]
        if not self.place.objects.fits(digest):
            raise altered(self.place, record, "verdict.json")
        return self.place.objects.path(digest).read_text("utf-8")

    def open_trace(self, stored: StoredRun, leg: str) -> Trace:
        """Return the trace of a leg as it was recorded, whatever became of its run directory.

        Raises OracleError when it was altered or the leg left none.
        """
        from oracle.trace import read_trace

        run = self.directory(stored)
        if leg not in run.manifest.legs:
            known = ", ".join(run.manifest.legs)
            raise OracleError(f"{stored.id} has no leg {leg!r}; it has {known}.")
        return read_trace(run.trace(leg), nonce=run.manifest.legs[leg].nonce)

    def directory(self, stored: StoredRun) -> Run:
        """Return the run as a directory: its own if that is as recorded, or one of its objects."""
        record = self._of(stored)
        if edited(self.place, record) is None:
            return open_run(self.place.directory(stored.id))
        with self.place.lock.shared():
            return restored(self.place, record)

    def edited(self, stored: StoredRun) -> str | None:
        """Return the first file of a run's directory that is not as recorded, if there is one.

        Looks at manifest, verdict and footers only; `verify` reads everything.
        """
        return edited(self.place, self._of(stored))

    def verify(self, *stored: StoredRun) -> Sequence[Alteration]:
        """Hash everything that is kept of runs, and their directories where they are there."""
        verifier = Verifier(self.place)
        return [one for run in stored for one in verifier.altered(run, self._of(run))]

    # Remove

    def remove(self, stored: Sequence[StoredRun], *, force: bool = False) -> Freed:
        """Take runs away, directory and all; raises OracleError for one that runs or is pinned."""
        with self.place.lock.alone():
            self._refuse(stored, force=force)
            return self._take_away(stored, garbage=False, dry_run=False)

    def prune(
        self, *, keep_days: float | None = None, keep_last: int | None = None, dry_run: bool = False
    ) -> Freed:
        """Remove runs older than `keep_days` that are not of the `keep_last` of their config.

        Without either no run goes, but leftovers of killed processes do. Pinned runs stay, and
        those whose legs run. Raises OracleError when a record cannot be read: what it needs is then
        unknown.
        """
        since = None
        if keep_days is not None:
            since = (datetime.now(UTC) - timedelta(days=keep_days)).isoformat(timespec="seconds")
        if not self.access.exists():
            return Freed(runs=(), num_leftovers=0, num_bytes=0)
        self.access.ready()
        with self.place.lock.alone():
            if problems := self.access.reconciled():
                raise OracleError(problems[0])
            with self.database.reading() as connection:
                runs = index.find_runs(connection, Filters())
                pins = index.pinned(connection)
            old = out_of_keep(runs, keep_last=keep_last, since=since)
            going = [run for run in old if run.id not in pins and not self._runs(run)]
            return self._take_away(going, garbage=True, dry_run=dry_run)

    def _take_away(self, runs: Sequence[StoredRun], *, garbage: bool, dry_run: bool) -> Freed:
        with self.database.reading() as connection:
            planned = plan(self.place, runs, index.named_objects(connection), garbage=garbage)
        freed = planned.freed()
        if not dry_run:
            with self.database.writing() as connection:
                for run in runs:
                    index.drop_run(connection, run.id)
            planned.carry_out(self.place)
        return freed

    def _refuse(self, runs: Sequence[StoredRun], *, force: bool) -> None:
        with self.database.reading() as connection:
            pins = index.pinned(connection)
        for run in runs:
            with contextlib.suppress(FileNotFoundError):
                if (self.place.directory(run.id) / "run.json").exists():
                    refuse_running(open_run(self.place.directory(run.id)))
            if run.id in pins and not force:
                raise OracleError(
                    f"{run.id} is needed by {', '.join(pins[run.id])}; --force removes it anyway."
                )

    def _runs(self, stored: StoredRun) -> bool:
        try:
            refuse_running(open_run(self.place.directory(stored.id)))
        except OracleError:
            return (self.place.directory(stored.id) / "run.json").exists()
        return False

    # Pin

    def pin(self, stored: StoredRun, by: str) -> None:
        """Note that `by` needs the run: neither `remove` nor `prune` takes it before `unpin`."""
        now = datetime.now(UTC).isoformat(timespec="seconds")
        self._pinning(stored.id, lambda pins: {by: now} | pins)

    def unpin(self, stored: StoredRun, by: str) -> None:
        """Take a pin back; one that is not there is no error."""
        self._pinning(stored.id, lambda pins: {k: v for k, v in pins.items() if k != by})

    def _pinning(self, id: str, change: Callable[[dict[str, str]], dict[str, str]]) -> None:
        with self.place.lock.shared(), self.database.writing() as connection:
            if index.get_record(connection, id) is None:
                raise OracleError(f"no run {id!r} in the store {self.place.root}.")
            pins = change(self.place.pins.read(id))
            self.place.pins.write(id, pins)
            index.put_pins(connection, id, pins)

    def pins(self, stored: StoredRun) -> Sequence[str]:
        """Return who needs the run."""
        return self.access.read(lambda connection: index.pinned(connection)).get(stored.id, [])

    def _of(self, stored: StoredRun) -> Record:
        record = self.access.read(lambda connection: index.get_record(connection, stored.id))
        if record is None:
            raise OracleError(f"{stored.id} was removed from the store meanwhile.")
        return record

    # Mend

    def reindex(self) -> Sequence[str]:
        """Build the index again from records, and record run directories that were not.

        Returns a sentence for each record that cannot be used; nothing is thrown away. A directory
        that cannot be recorded is noted.
        """
        with self.place.lock.alone():
            damaged = self.place.index.exists() and self.access.damaged() is not None
            problems, aside = rebuild(self.place, damaged=damaged)
        if aside is not None:
            self.access.note(f"the damaged index was set aside as {aside}.")
        self._record_missing()
        return problems

    def _record_missing(self) -> None:
        """Record run directories with a verdict and floors that no record is of, or say why not."""
        runs = {id for id, _ in self.place.records.names()}
        floors = set(self.place.floors.names())
        for path in sorted(self.place.out.glob("*/verdict.json")):
            if not path.parent.is_symlink() and path.parent.name not in runs:
                self._or_note(self._record, path.parent)
        for path in sorted(self.place.out.glob("floors/*.json")):
            if path.stem not in floors:
                self._or_note(self._record_floor, path)

    def _or_note(self, record: Callable[[Path], object], path: Path) -> None:
        try:
            record(path)
        except OracleError as error:
            self.access.note(f"not recorded: {error}")
