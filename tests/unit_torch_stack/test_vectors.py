"""The `vectors` verb answers in order and refuses by case (S-27)."""

import json
from pathlib import Path
from typing import Any

import pytest

from stacks.torch_stack.errors import BadInput
from stacks.torch_stack.vectors import answer, answer_file

CASES: list[dict[str, Any]] = [
    {
        "name": "rows",
        "kind": "rows",
        "input": {"lengths": [1, 2], "max_length": 3, "packing": True},
    },
    {"name": "refused", "kind": "conversations", "input": {"text": "\n"}},
    {"name": "bytes", "kind": "conversations", "input": {"bytes_hex": ""}},
    {
        "name": "nan",
        "kind": "clip",
        "input": {"grads": {"a": [3.0, "NaN"]}, "clip_norm": 1.0},
    },
    {
        "name": "single",
        "kind": "statistics",
        "input": {"name": "w", "values": [0.1], "precision": "float32"},
    },
]


def test_answers_are_in_the_order_of_the_cases(tmp_path: Path) -> None:
    source, target = tmp_path / "in.json", tmp_path / "new/out.json"
    source.write_text(json.dumps({"clause": "S-00", "cases": CASES}))
    answer_file(source, target)
    answers = json.loads(target.read_text())["answers"]
    assert [one["name"] for one in answers] == [case["name"] for case in CASES]
    assert answers[1].keys() == {"name", "error"}
    outputs = [one.get("output") for one in answers]
    assert outputs[0] == {"rows": [[0, 1]]}
    assert outputs[2] == {"examples": []}
    assert outputs[3] == {
        "grad_norm": "NaN", "clip_factor": "NaN", "clipped": {"a": ["NaN", "NaN"]}
    }  # fmt: skip
    assert outputs[4]["max_abs"] == 0.10000000149011612


def test_an_unknown_kind_and_a_missing_input_are_refused(tmp_path: Path) -> None:
    unknown = answer({"name": "x", "kind": "fly", "input": {}}, tmp_path)
    assert "'fly' is no kind" in str(unknown)
    missing = answer({"name": "x", "kind": "rows", "input": {}}, tmp_path)
    assert "lacks the input 'lengths'" in str(missing)


def test_no_file_is_bad_input(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="cannot be read"):
        answer_file(tmp_path / "gone", tmp_path / "out")
