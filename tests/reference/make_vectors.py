"""Writes data/vectors/S-xx.json (S-27) and their checkpoints, tokenizers and runs.

    python -m tests.reference.make_vectors [FOLDER]

The bytes are a function of the sources alone. Hand-worked cases are literals in `cases/`; the
reference must agree with each of them, or nothing is written.
"""

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np

from tests.reference.answers import answer
from tests.reference.case import Case, Clause
from tests.reference.cases import fixtures
from tests.reference.cases.catalogue import CLAUSES
from tests.reference.errors import RefusedError
from tests.reference.matching import differences, to_json
from tests.reference.schedule import Number

FOLDER = Path(__file__).resolve().parents[2] / "data" / "vectors"


def reference_answer(case: Case, root: Path, number: Number) -> dict[str, Any]:
    """The reference's output as JSON values; a refusal is an answer too."""
    given = to_json(case.given)
    try:
        output = answer(case.kind, given, root=root, number=number)
    except RefusedError as error:
        return {"error": str(error)}
    plain: dict[str, Any] = to_json(output)
    return plain


def expected(case: Case, root: Path) -> dict[str, Any]:
    """The literal where there is one, after the reference has agreed; else the computed value."""
    output = reference_answer(case, root, np.longdouble)
    if case.literal is None:
        if "error" in output:
            raise AssertionError(f"{case.name}: the reference refuses: {output['error']}")
        return output
    literal: dict[str, Any] = to_json(case.literal)
    wrong = list(differences(literal, output, rtol=case.rtol, atol=case.atol))
    if wrong:
        raise AssertionError(f"{case.name}: hand and reference differ: {wrong[:5]}")
    return literal


def provenance(clause: Clause) -> str:
    """Where the expected values come from, and why the tolerances are what they are."""
    by_hand = [case.name for case in clause.cases if case.literal is not None]
    worked = f" Hand: {', '.join(by_hand)}." if by_hand else ""
    return (
        "Written by tests/reference/make_vectors.py from SPEC.md alone, recorded from no stack;"
        " floating values are evaluated in 80-bit extended precision and rounded once to float64. "
        f"{clause.note}{worked}"
    )


def render_file(clause: Clause, root: Path) -> str:
    """The text of one vector file, a case a line."""
    lines = []
    for case in clause.cases:
        record = {
            "name": case.name,
            "kind": case.kind,
            "input": to_json(case.given),
            "expected": expected(case, root),
            "rtol": case.rtol,
        }
        if case.atol:
            record["atol"] = case.atol
        lines.append("  " + json.dumps(record, allow_nan=False))
    names = [case.name for case in clause.cases]
    assert len(names) == len(set(names)), f"{clause.clause}: repeated names"
    head = f'{{"clause": {json.dumps(clause.clause)},\n "provenance": '
    head += f'{json.dumps(provenance(clause), ensure_ascii=False)},\n "cases": [\n'
    return head + ",\n".join(lines) + "\n ]}\n"


def write_all(folder: Path) -> list[Path]:
    """Every file of `folder`, checkpoints and tokenizers first, since cases read them."""
    written = fixtures.write_all(folder)
    for clause in CLAUSES:
        path = folder / f"{clause.clause}.json"
        path.write_text(render_file(clause, folder), encoding="utf-8", newline="\n")
        written.append(path)
    return written


if __name__ == "__main__":
    target = Path(sys.argv[1]) if len(sys.argv) > 1 else FOLDER
    for file in write_all(target):
        print(f"{file.stat().st_size:8d} bytes  {file}")
