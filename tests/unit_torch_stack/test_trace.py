"""Tables, step lines and documents of a trace, and cutting them (S-24)."""

import hashlib
import json
import math
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from stacks.torch_stack.documents import jsonable, write_json
from stacks.torch_stack.encode import Tokens
from stacks.torch_stack.numerics import Statistics
from stacks.torch_stack.tokens import TokenRow
from stacks.torch_stack.trace import (
    StepLog,
    TensorRow,
    TensorTable,
    TokenTable,
    cut,
    files_of,
    num_steps_written,
)

STATISTICS = Statistics(norm=math.inf, mean=0.1, max_abs=math.nan, sketch=np.ones(64))


def tensor_row(t: int, kind: str, shape: tuple[int, ...], sha256: str | None) -> TensorRow:
    return TensorRow(step=t, kind=kind, name="w", shape=shape, statistics=STATISTICS, sha256=sha256)


def row(name: str, ids: list[int]) -> TokenRow:
    tokens = Tokens(id=name, ids=np.array(ids, np.int32), mask=np.array([1] * len(ids), np.int8))
    return TokenRow(
        tokens=tokens, text="é\u2028", num_tokens_before_truncation=9, typed_control_tokens=2
    )


def test_token_rows_are_read_back(tmp_path: Path) -> None:
    table = TokenTable(tmp_path)
    table.write("train", 0, [row("a", [1]), row("b", [2, 3])])
    table.write("edge", 5, [row("c", [4])])
    table.close()
    read = pq.read_table(tmp_path / "tokens/00000.parquet")
    assert read.schema.field("ids").type == pa.list_(pa.int32())
    assert read.schema.field("mask").type == pa.list_(pa.int8())
    assert read.to_pylist()[1] == {
        "split": "train",
        "index": 1,
        "id": "b",
        "text": "é\u2028",
        "ids": [2, 3],
        "mask": [1, 1],
        "num_tokens_before_truncation": 9,
        "typed_control_tokens": 2,
    }
    assert read["index"].to_pylist() == [0, 1, 5]


def test_step_lines_keep_floats_and_name_what_is_not_finite(tmp_path: Path) -> None:
    log = StepLog(tmp_path)
    log.write({"step": 0, "loss": 0.1 + 0.2, "lr": math.nan, "examples": ("a\u2028",)})
    text = (tmp_path / "steps.jsonl").read_text()  # flushed, though the file is open
    assert text.count("\n") == 1
    assert json.loads(text) == {
        "step": 0, "loss": 0.30000000000000004, "lr": "NaN", "examples": ["a\u2028"]
    }  # fmt: skip


def test_what_is_not_finite_is_itself_in_parquet(tmp_path: Path) -> None:
    table = TensorTable(tmp_path)
    table.add(
        tensor_row(
            4,
            "grad",
            (
                2,
                3,
            ),
            None,
        )
    )
    table.add(tensor_row(5, "param", (), "0" * 64))
    table.close_segment()
    table.close_segment()
    (path,) = (tmp_path / "tensors").iterdir()
    assert path.name == "00000004.parquet"
    first, second = pq.read_table(path).to_pylist()
    assert first["norm"] == math.inf
    assert math.isnan(first["max_abs"])
    assert (first["shape"], first["sha256"]) == ([2, 3], None)
    assert (second["step"], second["shape"], second["sha256"]) == (5, [], "0" * 64)


def write_steps(tmp_path: Path, lines: list[str]) -> None:
    (tmp_path / "steps.jsonl").write_text("".join(lines))


def test_cutting_leaves_whole_rows_of_earlier_steps(tmp_path: Path) -> None:
    lines = [json.dumps({"step": t}) + "\n" for t in range(6)]
    write_steps(tmp_path, [*lines, '{"step": 6'])
    assert num_steps_written(tmp_path) == 6
    table = TensorTable(tmp_path)
    for t in (0, 2, 3):
        table.add(tensor_row(t, "grad", (), None))
    table.close_segment()
    table.add(tensor_row(4, "grad", (), None))
    table.close_segment()
    (tmp_path / "tensors/00000005.tmp").write_bytes(b"")
    cut(tmp_path, 3)
    assert (tmp_path / "steps.jsonl").read_text() == "".join(lines[:3])
    (path,) = (tmp_path / "tensors").iterdir()
    assert pq.read_table(path)["step"].to_pylist() == [0, 2]
    cut(tmp_path, 0)
    assert not list((tmp_path / "tensors").iterdir())


def test_lines_after_a_gap_do_not_count(tmp_path: Path) -> None:
    write_steps(tmp_path, ['{"step": 0}\n', '{"step": 2}\n'])
    assert num_steps_written(tmp_path) == 1


def test_files_are_listed_with_size_and_hash(tmp_path: Path) -> None:
    (tmp_path / "tokens").mkdir()
    (tmp_path / "snapshots").mkdir()
    for name in ("header.json", "tokens/00000.parquet", "snapshots/x", "done.json"):
        (tmp_path / name).write_bytes(name.encode())
    digest = hashlib.sha256(b"header.json").hexdigest()
    listed = files_of(tmp_path)
    assert listed.keys() == {"header.json", "tokens/00000.parquet"}
    assert listed["header.json"] == {"sha256": digest, "num_bytes": 11}


def test_documents_are_whole_and_plain_json(tmp_path: Path) -> None:
    write_json(tmp_path / "x.json", {"a": -math.inf, "b": [math.nan, True, None, 1]})
    read = json.loads((tmp_path / "x.json").read_text())
    assert read == {"a": "-Infinity", "b": ["NaN", True, None, 1]}
    assert [one.name for one in tmp_path.iterdir()] == ["x.json"]
    assert jsonable(math.inf) == "Infinity"
