"""Rows decoded many at once: never accepts what the schema refuses, never gives another value."""

from __future__ import annotations

import copy
import json
import math
from typing import Any

import jsonschema
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from oracle.columns import Definition, dtypes
from oracle.contract import schema
from oracle.lines import decode

STEP: dict[str, Any] = {
    "step": 3, "epoch": 0, "examples": ["ex-1", "ex-2"], "batch_shape": [1, 2, 12],
    "batch_sha256": "0a" * 32, "num_tokens": 24, "num_targets": 11, "lr": 1e-3, "loss": 2.5,
    "grad_norm": 0.1, "clip_factor": 1, "param_norm": 7.25, "eval_loss": None,
    "eval_targets": None, "wall_seconds": 0.5,
}  # fmt: skip
TOKEN: dict[str, Any] = {
    "split": "train", "index": 0, "id": "ex-1", "text": "fever\n\u00e9", "ids": [5, 0, 70000],
    "mask": [0, 1, 1], "num_tokens_before_truncation": 3, "typed_control_tokens": 0,
}  # fmt: skip
TENSOR: dict[str, Any] = {
    "step": 0, "kind": "init", "name": "w", "shape": [2, 2], "norm": 1.5, "mean": "NaN",
    "max_abs": 1.0, "sketch": [0.1] * 63 + ["Infinity"], "sha256": "b" * 64,
}  # fmt: skip
ROWS: dict[Definition, dict[str, Any]] = {
    "step": STEP,
    "token_row": TOKEN,
    "tensor_row": TENSOR,
}
FLOATS = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}


def line(row: Any) -> bytes:
    return (json.dumps(row, ensure_ascii=False) + "\n").encode()


@pytest.mark.parametrize("definition", ROWS)
def test_rows_have_the_values_and_types_of_the_schema(definition: Definition) -> None:
    row = ROWS[definition]
    table = decode([line(row)] * 3, definition)
    assert table is not None
    assert dict(table.schema) == dtypes(definition)
    for name, value in row.items():
        found = table[name].to_list()[2]
        wanted = [FLOATS.get(entry, entry) for entry in value] if isinstance(value, list) else value
        if name == "mean":
            assert math.isnan(found)
        else:
            assert found == wanted, name


def test_lists_of_different_lengths_stay_with_their_rows() -> None:
    takes = [["a"], [], ["b", "c", "d"], [], []]
    rows = [STEP | {"step": at, "examples": names} for at, names in enumerate(takes)]
    table = decode([line(row) for row in rows], "step")
    assert table is not None
    assert table["examples"].to_list() == takes
    none = decode([line(STEP | {"examples": []})] * 2, "step")
    assert none is not None
    assert none["examples"].to_list() == [[], []]


def test_no_line_gives_an_empty_table() -> None:
    table = decode([], "step")
    assert table is not None
    assert table.height == 0
    assert dict(table.schema) == dtypes("step")


SCALARS = (
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.floats()
    | st.sampled_from(
        [-1, 0, 1, 2, 128, 2**31, 2**63, 1.0, "", "NaN", "x", "\x7f", "c" * 64, "d" * 257]
    )
    | st.text(max_size=3)
)
VALUES = SCALARS | st.lists(SCALARS, max_size=4)


@given(st.data())
@settings(max_examples=400, deadline=None)
def test_what_the_schema_refuses_is_never_accepted(data: st.DataObject) -> None:
    definition = data.draw(st.sampled_from(sorted(ROWS)))
    row = copy.deepcopy(ROWS[definition])
    name = data.draw(st.sampled_from(sorted(row)))
    if isinstance(row[name], list) and row[name] and data.draw(st.booleans()):
        row[name][data.draw(st.integers(0, len(row[name]) - 1))] = data.draw(SCALARS)
    elif data.draw(st.booleans()):
        row[name] = data.draw(VALUES)
    elif data.draw(st.booleans()):
        del row[name]
    else:
        row["more"] = 1
    text = json.dumps(row, ensure_ascii=data.draw(st.booleans()))
    try:
        content = text.encode() + b"\n"
    except UnicodeEncodeError:
        return  # half of a surrogate pair: no text
    if decode([content], definition) is not None:
        judge = jsonschema.Draft202012Validator(schema("trace") | {"$ref": f"#/$defs/{definition}"})
        assert "NaN" not in text.replace('"NaN"', "")
        judge.validate(json.loads(content))


@pytest.mark.parametrize(
    "content",
    [
        b"", b"\n", b"null\n", b"[]\n", b"{}\n", b"{\n",
        line(STEP)[:-2], line(STEP)[:-1] + b",\n", line(STEP)[:-1] + line(STEP),
        b"\xef\xbb\xbf" + line(STEP),
        line(STEP).replace(b"ex-1", b"ex\x01"), line(STEP).replace(b"ex-1", b"\xff"),
        line(STEP).replace(b"ex-1", b"\\ud800"), line(STEP).replace(b"ex-1", b"\\uDFFF"),
        line(STEP).replace(b"2.5", b"NaN"), line(STEP).replace(b"2.5", b"2."),
        line(STEP).replace(b"2.5", b"02.5"), line(STEP).replace(b"2.5", b"+2.5"),
    ],
)  # fmt: skip
def test_what_is_not_json_is_never_accepted(content: bytes) -> None:
    assert decode([line(STEP), content], "step") is None


@given(st.lists(st.floats(allow_nan=False, allow_infinity=False), min_size=1))
def test_numbers_are_read_to_the_last_bit(values: list[float]) -> None:
    table = decode([line(STEP | {"loss": value}) for value in values], "step")
    assert table is not None
    assert [value.hex() for value in table["loss"].to_list()] == [value.hex() for value in values]
