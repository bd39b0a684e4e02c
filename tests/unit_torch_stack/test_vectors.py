"""The `vectors` verb answers in order and refuses by case (S-27)."""

import hashlib
import json
import math
import struct
from pathlib import Path
from typing import Any

import pytest

from stacks.torch_stack.errors import BadInput
from stacks.torch_stack.vectors import answer, answer_file

from .conftest import MODEL, write_model

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


def output(kind: str, given: dict[str, Any], folder: Path = Path()) -> dict[str, Any]:
    found: dict[str, Any] = answer({"name": "x", "kind": kind, "input": given}, folder)
    assert "error" not in found, found
    return dict(found["output"])


@pytest.mark.parametrize("precision", ["bfloat16", "bfloat16_pure"])
def test_rms_norm_of_bfloat16_worked_by_hand(precision: str) -> None:
    # x / sqrt(2.5) = 0.63246, 1.26491; at 8 bits 162/256 and 162/128; times 130/128 each is
    # 164.53 units, so 165. Rounded only at the end it would be 164.44, so 164.
    given = {"values": [[1.0, 2.0]], "weight": [1.015625, 1.015625], "epsilon": 0.0}
    found = output("rms_norm", {**given, "precision": precision})
    assert found == {"values": [[165 / 256, 165 / 128]]}
    (row,) = output("rms_norm", given)["values"]
    assert row == pytest.approx([1.015625 / 2.5**0.5, 2 * 1.015625 / 2.5**0.5], rel=1e-15)


def test_anchor_worked_by_hand() -> None:
    own = {"param/a": [[3.0, 1.0]], "m/a": [[0.0, 0.0]], "v/a": [["NaN", 1.0]]}
    anchor = {"param/a": [[0.0, 5.0]], "m/a": [[3.0, 4.0]], "v/a": [[1.0, 1.0]]}
    found = output("anchor", {"own": own, "anchor": anchor})
    rows = [tuple(one.values()) for one in found["tensors"]]
    assert rows[:2] == [("m", "a", 5.0, 5.0, 4.0), ("param", "a", 5.0, 5.0, 4.0)]
    assert rows[2][:2] == ("v", "a")
    assert math.isnan(rows[2][2])
    assert math.isnan(rows[2][4])
    digest = hashlib.sha256()
    for name in ("m/a", "param/a", "v/a"):
        digest.update(name.encode() + b"\0" + struct.pack("<2d", *anchor[name][0]))
    assert found["sha256"] == digest.hexdigest()


def test_taps_of_a_model_have_the_names_and_shapes_of_the_clause(tmp_path: Path) -> None:
    write_model(tmp_path / "checkpoint", MODEL)
    arrays = {"input_ids": [[[1, 2, 3]]], "segments": [[[1, 1, 0]]], "positions": [[[0, 1, 0]]]}
    model = {"checkpoint": "checkpoint", "attention": "eager"}
    labels = [[[-100, 2, -100]]]
    taps = output("taps", {**model, **arrays, "labels": labels}, tmp_path)["taps"]
    widths = {one["tap"]: list(one["shape"])[3:] for one in taps}
    assert len(taps) == len(widths) == 1 + 2 * 15 + 3
    assert [widths[x] for x in ("embed", "layers.1.k_rope", "layers.0.act", "logits")] == [
        [16], [8], [24], [280]
    ]  # fmt: skip
    rows = {name: one[0] for name, one in arrays.items()}
    logits = output("logits", {**model, **rows}, tmp_path)["logits"]
    row = logits[0][0]
    nll = math.log(math.fsum(map(math.exp, row))) - row[2]
    assert list(taps[-1]["shape"]) == [1, 1, 3]
    assert taps[-1]["norm"] == pytest.approx(nll, rel=1e-12)
    seen = math.sqrt(math.fsum(x * x for position in logits[0][:2] for x in position))
    assert taps[-2]["norm"] == pytest.approx(seen, rel=1e-12)  # the padding counts as 0
