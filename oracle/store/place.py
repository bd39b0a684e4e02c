"""Where the parts of a store lie: index, records, objects, notes, and the lock of them all."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from oracle.store.lock import Lock
from oracle.store.notes import Notes
from oracle.store.objects import Objects
from oracle.store.record import Records

FOLDER = "store"


@dataclass(frozen=True)
class Place:
    """The folder of a store beside the runs of `out`."""

    out: Path

    @property
    def root(self) -> Path:
        """The folder itself."""
        return self.out / FOLDER

    @property
    def index(self) -> Path:
        """The SQLite file."""
        return self.root / "index.sqlite"

    @property
    def restored(self) -> Path:
        """Run directories that were made from objects, to be looked into."""
        return self.root / "restored"

    @cached_property
    def lock(self) -> Lock:
        """The lock of the store."""
        return Lock(path=self.root / "lock")

    @cached_property
    def objects(self) -> Objects:
        """Files by hash."""
        return Objects(folder=self.root / "objects")

    @cached_property
    def records(self) -> Records:
        """What is known of each run."""
        return Records(folder=self.root / "records")

    @cached_property
    def floors(self) -> Notes:
        """Which objects are floors."""
        return Notes(folder=self.root / "floors")

    @cached_property
    def pins(self) -> Notes:
        """Who needs which run."""
        return Notes(folder=self.root / "pins")

    def directory(self, run: str) -> Path:
        """The run directory of an id, whether it is there or not."""
        return self.out / run

    def shown(self, path: Path) -> str:
        """A path below `out` as a person would type it."""
        here = Path.cwd()
        return str(path.relative_to(here) if path.is_relative_to(here) else path)
