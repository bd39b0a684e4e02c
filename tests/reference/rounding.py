"""How far the float64 reference is from the vectors: the evidence for their tolerances.

python -m tests.reference.rounding
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from tests.reference.answers import answer
from tests.reference.make_vectors import FOLDER
from tests.reference.matching import is_number, to_json


def pairs(a: Any, b: Any) -> Iterator[tuple[float, float]]:
    """Corresponding finite numbers of two outputs of one shape."""
    if is_number(a) and is_number(b):
        yield float(a), float(b)
    elif isinstance(a, dict):
        for key in a:
            yield from pairs(a[key], b[key])
    elif isinstance(a, list):
        for x, y in zip(a, b, strict=True):
            yield from pairs(x, y)


def used(a: float, b: float, rtol: float, atol: float) -> float:
    """Share of the tolerance that a difference uses; 1 is just allowed."""
    if a == b:
        return 0.0
    allowed = rtol * max(abs(a), abs(b)) + atol
    return abs(a - b) / allowed if allowed else float("inf")


def needed_rtol(a: float, b: float) -> float:
    """The relative difference of two numbers."""
    return 0.0 if a == b else abs(a - b) / max(abs(a), abs(b))


def measure(path: Path) -> Iterator[tuple[str, float, float]]:
    """(case, share of the tolerance used, largest relative difference) of float64 arithmetic."""
    for case in json.loads(path.read_text(encoding="utf-8"))["cases"]:
        if case["expected"] == {"error": True}:
            continue
        output = to_json(answer(case["kind"], case["input"], root=path.parent, number=np.float64))
        both = list(pairs(case["expected"], output))
        tolerance = (case["rtol"], case.get("atol", 0.0))
        share = max((used(a, b, *tolerance) for a, b in both), default=0.0)
        yield case["name"], share, max((needed_rtol(a, b) for a, b in both), default=0.0)


if __name__ == "__main__":
    for file in sorted(FOLDER.glob("S-*.json")):
        for name, share, relative in measure(file):
            if relative:
                print(f"{file.stem}  {share:8.3f} of the tolerance  {relative:.1e}  {name}")
