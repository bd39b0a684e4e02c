"""The oracle's sketch against the golden vectors of S-21."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np

from oracle.statistics import sketch

VECTORS = Path(__file__).parents[2] / "data" / "vectors" / "S-21.json"


def test_every_golden_sketch_is_met() -> None:
    cases = [
        case for case in json.loads(VECTORS.read_text())["cases"] if case["kind"] == "statistics"
    ]
    assert cases
    for case in cases:
        values = np.array(case["input"]["values"], dtype=object)
        if not all(isinstance(v, (int, float)) for v in values.ravel()):
            continue  # values that are not finite, as words
        expected = np.array(case["expected"]["sketch"], dtype=float)
        found = sketch(case["input"]["name"], values.astype(float))
        np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-12, err_msg=case["name"])
