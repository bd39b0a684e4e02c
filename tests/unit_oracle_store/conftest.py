"""A folder of runs and its store; notes of the store are kept for a test to read."""

from __future__ import annotations

from pathlib import Path

import pytest

from oracle.runs import open_run
from oracle.store import StoredRun, open_store
from oracle.store.store import Store
from tests.unit_oracle_store.made import make_run


class Kept:
    """A folder of runs with its store."""

    def __init__(self, out: Path) -> None:
        self.out = out
        self.notes: list[str] = []

    @property
    def store(self) -> Store:
        """A store as another process would open it."""
        return open_store(self.out, self.notes.append)

    def add(self, number: int, **options: object) -> StoredRun:
        path = make_run(self.out, number, **options)  # type: ignore[arg-type]
        return self.store.record(open_run(path))

    def ids(self) -> list[str]:
        return [run.id for run in self.store.runs()]

    @property
    def index(self) -> Path:
        return self.out / "store" / "index.sqlite"

    def records(self) -> list[Path]:
        return sorted((self.out / "store" / "records").iterdir())

    def objects(self) -> dict[str, Path]:
        folder = self.out / "store" / "objects"
        return {p.parent.name + p.name: p for p in folder.glob("??/*")}


@pytest.fixture
def kept(tmp_path: Path) -> Kept:
    return Kept(tmp_path / "runs")
