"""The stack against golden vectors: computed by hand or by the reference, never by a stack.

Clauses whose cases compile a model each are answered in tests/contract, which runs all of them
through the command line.
"""

import hashlib
import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from stacks.jax_stack.__main__ import main
from stacks.jax_stack.vectors import answer

from .conftest import ROOT

FILES = sorted((ROOT / "data/vectors").glob("S-*.json"))
MODELS = ("S-01", "S-12", "S-13", "S-14", "S-15", "S-20")


def difference(found: Any, expected: Any, rtol: float, atol: float, place: str = "") -> str | None:
    """The first place where two values do not match by S-27, or None."""
    numbers = [isinstance(x, int | float) and not isinstance(x, bool) for x in (found, expected)]
    if all(numbers):
        close = abs(found - expected) <= rtol * max(abs(found), abs(expected)) + atol
        return None if close else f"{place}: {found!r}, not {expected!r}"
    if type(found) is not type(expected):
        return f"{place}: {type(found)}, not {type(expected)}"
    if isinstance(found, dict):
        if found.keys() != expected.keys():
            return f"{place}: keys {sorted(found)}, not {sorted(expected)}"
        pairs = [(f"{place}.{key}", found[key], expected[key]) for key in expected]
    elif isinstance(found, list):
        if len(found) != len(expected):
            return f"{place}: length {len(found)}, not {len(expected)}"
        pairs = [
            (f"{place}[{i}]", *both) for i, both in enumerate(zip(found, expected, strict=True))
        ]
    else:
        return None if found == expected else f"{place}: {found!r}, not {expected!r}"
    return next((d for p, a, b in pairs if (d := difference(a, b, rtol, atol, p))), None)


@pytest.mark.parametrize(
    "path", [path for path in FILES if path.stem not in MODELS], ids=lambda path: path.stem
)
def test_golden_vectors(path: Path, tmp_path: Path) -> None:
    out = tmp_path / "answers.json"
    assert main(["vectors", "--in", str(path), "--out", str(out)]) == 0
    cases = json.loads(path.read_text())["cases"]
    answers = json.loads(out.read_text())["answers"]
    assert [case["name"] for case in cases] == [entry["name"] for entry in answers]
    for case, entry in zip(cases, answers, strict=True):
        if case["expected"] == {"error": True}:
            assert set(entry) == {"name", "error"}, case["name"]
            continue
        rtol, atol = case.get("rtol") or 0.0, case.get("atol") or 0.0
        assert difference(entry["output"], case["expected"], rtol, atol) is None, case["name"]


def test_the_judge_of_this_test_can_fail() -> None:
    assert difference({"a": [1.0]}, {"a": [1.0 + 1e-9]}, 1e-10, 0.0) is not None
    assert difference([math.inf], ["Infinity"], 0.0, 0.0) is not None


def test_a_refused_case_is_answered_with_its_sentence() -> None:
    found = answer("x", "conversations", {"text": "{"}, Path())
    assert set(found) == {"name", "error"}


def test_rms_norm_by_hand() -> None:
    """[3, 4] over sqrt(12.5): 0.84853 and 1.13137, in bfloat16 217/256 and 145/128. Times 1.5 that
    is 162.75/128, nearest 163/128, and 217.5/128, a tie that goes to 218/128.
    """
    given = {"values": [[3.0, 4.0]], "weight": [1.5, 1.5], "epsilon": 0.0}
    found = answer("x", "rms_norm", given, Path())["output"]["values"][0]
    assert found == pytest.approx([4.5 / math.sqrt(12.5), 6.0 / math.sqrt(12.5)], rel=1e-15)
    for precision in ("bfloat16", "bfloat16_pure"):
        narrow = answer("x", "rms_norm", given | {"precision": precision}, Path())
        assert narrow["output"]["values"] == [[163 / 128, 218 / 128]]


def test_an_anchor_by_hand() -> None:
    own = {"param/w": [1.0, 2.0], "m/w": [0.0, 0.0], "v/w": [2.0, 0.0]}
    anchor = {"v/w": [2.0, 0.0], "param/w": [4.0, -2.0], "m/w": [0.0, 0.0]}
    found = answer("x", "anchor", {"own": own, "anchor": anchor}, Path())["output"]
    zero = {"name": "w", "distance": 0.0, "max_abs": 0.0}
    assert found["tensors"] == [
        {"kind": "m", "norm": 0.0, **zero},
        {"kind": "param", "name": "w", "distance": 5.0, "max_abs": 4.0, "norm": math.sqrt(20)},
        {"kind": "v", "norm": 2.0, **zero},
    ]
    data = b"".join(
        name.encode() + b"\0" + np.array(values, "<f8").tobytes()
        for name, values in sorted(anchor.items())
    )
    assert found["sha256"] == hashlib.sha256(data).hexdigest()
    missing = answer("x", "anchor", {"own": own, "anchor": {"m/w": [0.0, 0.0]}}, Path())
    assert set(missing) == {"name", "error"}
