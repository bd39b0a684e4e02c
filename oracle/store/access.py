"""The way to the index: migrated, in step with the records, mended when it is damaged.

Whatever the index lacks comes from the records, so damage costs a sentence and a second.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import TypeVar

from sqlalchemy import Connection

from oracle.store.database import Database
from oracle.store.error import DamagedIndex
from oracle.store.place import Place
from oracle.store.rebuild import in_step, rebuild, reconcile

Answer = TypeVar("Answer")


class Access:
    """Asks the index of a place; `note` gets a sentence on what was mended or cannot be."""

    def __init__(self, place: Place, note: Callable[[str], None]) -> None:
        self.place = place
        self.database = Database(place.index)
        self.note = note

    def exists(self) -> bool:
        """Whether anything was ever recorded here."""
        return self.place.root.is_dir()

    def read(self, ask: Callable[[Connection], Answer]) -> Answer:
        """Ask the index, brought in step with the records if nobody writes at this moment."""

        def asked() -> Answer:
            self.ready()
            with self.database.reading() as connection:
                if in_step(self.place, connection) or not os.access(self.place.root, os.W_OK):
                    return ask(connection)
            with self.place.lock.alone_now() as held:
                for problem in self.reconciled() if held else ():
                    self.note(problem)
            with self.database.reading() as connection:
                return ask(connection)

        return self.healed(asked)

    def ready(self) -> None:
        """Bring the index to the version of this code, from the records if it was not there."""
        try:
            if self.place.index.exists() and not self.database.due():
                return
            with self.place.lock.alone():
                if not self.place.index.exists() or self.database.due():
                    self.database.upgrade()
                    for problem in self.reconciled():
                        self.note(problem)
        except DamagedIndex as error:
            self._mend(error)

    def reconciled(self) -> Sequence[str]:
        """Bring index and records in step; the caller holds the store alone."""
        with self.database.writing() as connection:
            return reconcile(self.place, connection)

    def healed(self, act: Callable[[], Answer]) -> Answer:
        """Do something; when the index turns out damaged, build it again and do it once more."""
        try:
            return act()
        except DamagedIndex as error:
            self._mend(error)
            return act()

    def damaged(self) -> DamagedIndex | None:
        """Return what is wrong with the index when all of it is read."""
        try:
            self.database.due()
            self.database.check()
        except DamagedIndex as error:
            return error
        return None

    def _mend(self, error: DamagedIndex) -> None:
        with self.place.lock.alone():
            if self.damaged() is None:
                return  # another process was faster
            problems, aside = rebuild(self.place, damaged=True)
        self.note(f"{error} It was set aside as {aside} and built again.")
        for problem in problems:
            self.note(problem)
