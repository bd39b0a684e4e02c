"""Tensors are paired by what they are, however their rows lie in segments; examples by digests."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from oracle import align
from oracle.compare_tensors import tensor_cells
from oracle.trace import Trace
from tests.unit_oracle_judge import synthetic


@pytest.fixture
def traces(tmp_path: Path) -> tuple[Trace, Trace]:
    """Two traces of 40 steps, tensors every 4; the second lacks a row and moved another."""
    a = synthetic.documents(40)
    b = synthetic.documents(40)
    b["tensors"] = [
        row
        for row in b["tensors"]
        if (row["step"], row["kind"], row["name"]) != (8, "grad", "model.norm.weight")
    ]
    moved = next(row for row in b["tensors"] if row["step"] == 20 and row["kind"] == "m")
    moved["norm"] *= 1.5
    return synthetic.read(tmp_path / "a", a), synthetic.read(tmp_path / "b", b)


def cut(trace: Trace, bounds: list[int], order: np.ndarray | None = None) -> Trace:
    """The rows of the trace in another order, in segments that end at these rows."""
    rows = trace.tensors.collect()
    rows = rows if order is None else rows[order.tolist()]
    ends = [*bounds, rows.height]
    starts = [0, *bounds]
    segments = [
        rows[start:end].lazy() for start, end in zip(starts, ends, strict=True) if end > start
    ]
    return replace(trace, tensor_segments=segments)


Row = tuple[int, str, str, str, str]


def found(a: Trace, b: Trace) -> dict[str, list[Row]]:
    """Step, tensor, both norms and the distance of every cell by field; nan as text equals nan."""
    rows: dict[str, list[Row]] = {}
    for cells in tensor_cells(a, b, guard=1e-3):
        assert cells.tensors is not None
        numbers = [map(repr, part.tolist()) for part in (cells.a, cells.b, cells.absolute)]
        names = cells.tensors.tolist()
        rows[cells.field] = list(zip(cells.steps.tolist(), names, *numbers, strict=True))
    return rows


def test_the_cells_do_not_depend_on_segments_or_on_the_order_of_rows(
    traces: tuple[Trace, Trace], monkeypatch: pytest.MonkeyPatch
) -> None:
    a, b = traces
    whole = found(a, b)
    assert [len(rows) for rows in whole.values()] == [66] * 5  # 11 steps of 6 tensors
    absent = [row[:2] for row in whole["tensors.grad"] if row[3] == "nan"]
    assert absent == [(8, "model.norm.weight")]
    monkeypatch.setattr(align, "CHUNK_ROWS", 7)
    assert found(a, b) == whole
    assert found(cut(a, [1, 50, 51]), cut(b, [100])) == whole
    order = np.random.default_rng(0).permutation(a.tensors.collect().height)
    assert found(cut(a, [33], order), b) == whole


def test_pieces_hold_whole_steps_in_ascending_order(
    traces: tuple[Trace, Trace], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(align, "CHUNK_ROWS", 10)
    a, b = traces
    pieces = list(align.align_tensors(a, b, ["grad", "param"], ("norm",)))
    steps = [step for piece in pieces for step in piece["step"].unique().sort().to_list()]
    assert steps == sorted(set(steps)) == [*range(0, 40, 4), 39]
    assert len(pieces) > 5
    absent = pl.concat(pieces).filter(~pl.col("in_b"))
    assert absent.select("step", "kind", "name").rows() == [(8, "grad", "model.norm.weight")]


def test_a_side_without_tensors_leaves_the_other_one_sided(traces: tuple[Trace, Trace]) -> None:
    a, b = traces
    pairs = pl.concat(align.align_tensors(a, replace(b, tensor_segments=[]), ["grad"], ("norm",)))
    assert pairs.height == 66
    assert pairs["in_a"].all()
    assert not pairs["in_b"].any()
