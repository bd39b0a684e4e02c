"""Paths, rows and independent readings that the tests of `data/` share."""

import json
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
DATA = ROOT / "data"
Row = dict[str, Any]


def read_rows(path: Path) -> list[Row]:
    """Rows of a JSONL file; lines end at LF and at nothing else."""
    return [json.loads(line) for line in path.read_bytes().split(b"\n") if line]


@pytest.fixture(scope="session")
def edge() -> dict[str, Row]:
    return {row["id"]: row for row in read_rows(DATA / "clinical" / "edge.jsonl")}


@pytest.fixture(scope="session")
def sample() -> dict[str, list[Row]]:
    folder = DATA / "clinical" / "sample"
    return {split: read_rows(folder / f"{split}.jsonl") for split in ("train", "heldout")}
