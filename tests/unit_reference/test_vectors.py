"""The vectors on disk are what the generator writes, and float64 stays inside their tolerances."""

from pathlib import Path

import numpy as np
import pytest

from tests.reference import rounding
from tests.reference.cases import fixtures
from tests.reference.cases.catalogue import CLAUSES
from tests.reference.make_vectors import FOLDER, expected, render_file

PATHS = sorted(FOLDER.glob("S-*.json"))
IS_EXTENDED = np.finfo(np.longdouble).nmant == 63  # bytes are promised for 80-bit arithmetic


def test_every_clause_has_its_file_and_no_other() -> None:
    assert sorted(f"{clause.clause}.json" for clause in CLAUSES) == [path.name for path in PATHS]


def test_fixtures_are_what_the_generator_writes() -> None:
    contents = fixtures.contents()
    folders = {Path(name).parts[0] for name in contents}
    held = {
        str(path.relative_to(FOLDER)): path.read_bytes()
        for folder in folders
        for path in (FOLDER / folder).rglob("*")
        if path.is_file()
    }
    assert held.keys() == contents.keys()
    assert [name for name in held if held[name] != contents[name]] == []
    assert max(len(data) for data in held.values()) < 60_000


@pytest.mark.skipif(not IS_EXTENDED, reason="needs 80-bit extended precision")
@pytest.mark.parametrize("clause", CLAUSES, ids=lambda clause: clause.clause)
def test_vectors_are_what_the_generator_writes(clause) -> None:  # type: ignore[no-untyped-def]
    held = (FOLDER / f"{clause.clause}.json").read_text(encoding="utf-8")
    assert held == render_file(clause, FOLDER)


@pytest.mark.parametrize("path", PATHS, ids=lambda path: path.stem)
def test_float64_arithmetic_stays_well_inside_the_tolerance(path: Path) -> None:
    shares = {name: share for name, share, _ in rounding.measure(path)}
    assert {name: share for name, share in shares.items() if share > 0.5} == {}


def test_a_wrong_literal_stops_the_generator() -> None:
    import dataclasses

    clause = next(clause for clause in CLAUSES if clause.clause == "S-09")
    wrong = dataclasses.replace(clause.cases[0], literal={"rows": [[0, 1, 2]]})
    with pytest.raises(AssertionError, match="differ"):
        expected(wrong, FOLDER)
