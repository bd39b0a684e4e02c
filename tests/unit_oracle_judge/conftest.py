"""One fixture: judge two mutated documents, with a floor that a calibration could have written."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from oracle.contract import Verdict
from oracle.floor import leg_provenance, write_floor
from oracle.report.json import dumps
from oracle.tolerance import NUMERIC_FIELDS
from oracle.verdict import judge

from .synthetic import CONFIG, NAMES, Documents, documents, read

Judge = Callable[..., Verdict]


def floor_of(folder: Path, a: Any, b: Any, value: float = 1e-16, num_steps: int = 100) -> Path:
    """Write a floor of `value` for every field, measured on the legs of two traces."""
    legs = {t.header["provenance"]["stack"]: leg_provenance(t.header) for t in (a, b)}
    rises = {field: [[0, value]] for field in NUMERIC_FIELDS}
    return write_floor(
        folder,
        name="synthetic",
        provenance={"config_sha256": CONFIG, "legs": legs},
        num_steps=num_steps,
        rises=dict.fromkeys(legs, rises),
        contributions={},
    )


def pair(**options: Any) -> tuple[Documents, Documents]:
    """Return two equal runs of two stacks."""
    return documents(**options), documents(stack="jax", **options)


@pytest.fixture
def judged(tmp_path: Path) -> Judge:
    """Judge two documents; every verdict made in a test is also held against the schema."""
    counter = itertools.count()

    def run(
        a: Documents,
        b: Documents,
        *,
        purpose: Any = "cross",
        floor: float | None = 1e-16,
        tolerances: Path | None = None,
    ) -> Verdict:
        place = tmp_path / str(next(counter))
        left, right = read(place / "a", a), read(place / "b", b)
        path = None if floor is None else floor_of(place, left, right, floor)
        verdict = judge(
            left,
            right,
            purpose=purpose,
            names=NAMES,
            tolerances=tolerances,
            floor=path,
            run="run-1",
        )
        dumps(verdict)
        return verdict

    return run
