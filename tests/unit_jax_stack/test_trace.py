import json
import math
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from stacks.jax_stack import trace as trace_module
from stacks.jax_stack.errors import BadInput
from stacks.jax_stack.trace import Trace, to_json


def begin(out: Path, num_updates: int = 0, *, is_recording: bool = True) -> Trace:
    trace = Trace(out=out, is_recording=is_recording, has_steps=True)
    trace.begin(num_updates)
    return trace


def rows(step: int, count: int, kind: str = "m") -> list[dict[str, Any]]:
    row = {"step": step, "kind": kind, "shape": [1], "sketch": [0.0] * 64, "sha256": None}
    numbers = {"norm": 0.1, "mean": math.nan, "max_abs": math.inf}
    return [{**row, **numbers, "name": f"w{i}"} for i in range(count)]


def test_floats_round_trip_and_what_is_not_finite_is_a_word() -> None:
    line = {"a": 0.1, "b": [math.nan, math.inf, -math.inf], "c": 5e-324}
    assert to_json(line) == '{"a": 0.1, "b": ["NaN", "Infinity", "-Infinity"], "c": 5e-324}'


def test_a_line_is_there_when_the_step_is_done(tmp_path: Path) -> None:
    trace = begin(tmp_path)
    trace.add_step({"step": 0})
    assert (tmp_path / "steps.jsonl").read_text() == '{"step": 0}\n'


def test_a_segment_ends_between_steps_and_no_row_is_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trace_module, "TENSOR_ROWS_PER_FILE", 3)
    trace = begin(tmp_path)
    for step in range(3):
        for kind in ("grad", "m"):
            trace.add_tensors(rows(step, 2, kind))
    trace.sync()
    paths = sorted((tmp_path / "tensors").iterdir())
    assert [path.name for path in paths] == [f"{step:08d}.parquet" for step in range(3)]
    read = [row for path in paths for row in pq.read_table(path).to_pylist()]
    assert [(row["step"], row["kind"]) for row in read] == [
        (step, kind) for step in range(3) for kind in ("grad", "grad", "m", "m")
    ]
    assert math.isnan(read[0]["mean"])
    assert read[0]["max_abs"] == math.inf


def test_a_begin_keeps_what_a_snapshot_covers_and_cuts_the_rest(tmp_path: Path) -> None:
    trace = begin(tmp_path)
    for step in range(4):
        trace.add_step({"step": step})
        trace.add_tensors(rows(step, 1))
        trace.sync()
    with (tmp_path / "steps.jsonl").open("a") as file:
        file.write('{"step": 4')
    (tmp_path / "done.json").write_text("{}")
    begin(tmp_path, 2)
    lines = (tmp_path / "steps.jsonl").read_text().splitlines()
    assert [json.loads(line)["step"] for line in lines] == [0, 1]
    names = sorted(path.name for path in (tmp_path / "tensors").iterdir())
    assert names == ["00000000.parquet", "00000001.parquet"]
    assert not (tmp_path / "done.json").exists()


def test_a_trace_shorter_than_its_snapshot_is_refused_and_left_alone(tmp_path: Path) -> None:
    begin(tmp_path).add_step({"step": 0})
    (tmp_path / "header.json").write_text("{}")
    with pytest.raises(BadInput, match="2 updates, the trace 1 steps"):
        begin(tmp_path, 2)
    assert (tmp_path / "header.json").exists()


def test_without_recording_nothing_of_an_earlier_trace_stays(tmp_path: Path) -> None:
    trace = begin(tmp_path)
    trace.add_step({"step": 0})
    trace.add_tensors(rows(0, 1))
    trace.sync()
    quiet = begin(tmp_path, 1, is_recording=False)
    quiet.add_step({"step": 1})
    quiet.finish({"nonce": "n"})
    assert list(json.loads((tmp_path / "done.json").read_text())["files"]) == []
