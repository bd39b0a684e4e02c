import base64
import json
import zlib
from dataclasses import replace

import numpy as np
import polars as pl
import pytest

from oracle.report.bands import bands
from oracle.report.series import packed, paired, relative_difference, scales, sparse
from tests.unit_report.scenes import agree, grad_norm, loss


def unpacked(document):
    """Columns by (name, leg): the inverse of `packed`, written from its docstring."""
    num = document["num"]
    raw = np.frombuffer(zlib.decompress(base64.b64decode(document["bytes"])), dtype=np.uint8)
    planes = raw.reshape(-1, 8, num)
    columns = [np.ascontiguousarray(plane.T).view(np.uint64)[:, 0] for plane in planes]
    for place, column in enumerate(document["columns"]):
        if column["xor"] is not None:
            columns[place] = columns[place] ^ columns[column["xor"]]
    keys = [(c["name"], c["leg"]) for c in document["columns"]]
    return dict(zip(keys, [c.view(np.float64) for c in columns], strict=True))


def test_packed_columns_hold_every_bit_of_the_trace():
    scene = loss()
    columns = unpacked(packed(paired(scene.a, scene.b), {}, must=[], max_bytes=880_000))
    for leg, trace in (("a", scene.a), ("b", scene.b)):
        for name in ("loss", "grad_norm", "lr", "clip_factor", "param_norm", "num_targets"):
            wanted = trace.steps[name].cast(pl.Float64).to_numpy()
            assert columns[name, leg].tobytes() == wanted.tobytes()
    assert columns["step", None].tolist() == list(range(120))


def test_non_finite_values_and_missing_steps_are_told_apart():
    scene = agree()
    bad = pl.when(pl.col("step") == 3).then(float("nan")).otherwise(pl.col("loss"))
    a = replace(scene.a, steps=scene.a.steps.with_columns(bad.alias("loss")))
    b = replace(scene.b, steps=scene.b.steps.head(100))
    columns = unpacked(packed(paired(a, b), {}, must=[], max_bytes=880_000))
    assert np.isnan(columns["loss", "a"][3])
    assert columns["present", "a"][3] == 1
    assert np.isnan(columns["loss", "b"][100])
    assert columns["present", "b"].sum() == 100
    assert columns["batch_sha256", "equal"].sum() == 100


def test_a_long_run_is_thinned_and_keeps_extremes_and_divergences():
    scene = agree(60_000)
    spike = pl.when(pl.col("step") == 47_777).then(99.0).otherwise(pl.col("loss"))
    b = replace(scene.b, steps=scene.b.steps.with_columns(spike.alias("loss")))
    document = packed(paired(scene.a, b), {}, must=[31_337], max_bytes=880_000)
    columns = unpacked(document)
    assert len(document["bytes"]) < 900_000
    assert document["num"] < document["num_steps"] == 60_000
    assert {31_337.0, 47_777.0} <= set(columns["step", None].tolist())
    assert columns["loss", "b"].max() == 99.0
    assert columns["loss", "a"].min() == scene.a.steps["loss"].min()


def test_relative_difference_is_that_of_the_comparison():
    from oracle.align import align_steps
    from oracle.compare_numbers import scalar_cells

    scene = loss()
    series = paired(scene.a, scene.b)
    for found in scalar_cells(align_steps(scene.a, scene.b)):
        name = found.field.partition(".")[2]
        if name in ("loss", "grad_norm", "lr"):
            scale = scales(series).get(name)
            ours = relative_difference(series.a[name], series.b[name], scale)
            assert ours.tolist() == found.relative.tolist()


def test_relative_difference_at_the_edges():
    a = np.array([0.0, np.nan, np.nan, np.inf, np.inf, -1.0])
    b = np.array([0.0, np.nan, 1.0, np.inf, -np.inf, 1.0])
    found = relative_difference(a, b)
    assert found[[0, 2, 3, 5]].tolist() == [0.0, np.inf, 0.0, 2.0]
    assert np.isnan(found[1])
    assert np.isnan(found[4])


def test_evaluations_are_rows_of_their_own():
    rows = sparse(agree().a, agree().b)
    assert [(row["step"], row["name"]) for row in rows][:3] == [
        (39, "eval_loss"),
        (79, "eval_loss"),
        (119, "eval_loss"),
    ]
    assert json.dumps(rows[-1]) == '{"step": 119, "name": "eval_targets", "a": 4711, "b": 4711}'


def test_the_band_is_the_rule_times_the_floor(tmp_path):
    scene = grad_norm(tmp_path)
    found = bands(scene.verdict, scene.a, scene.b)
    assert found.note is None
    assert found.curves["loss"][119] == pytest.approx(10 * (4e-16 + 6e-15 * 119 / 120), rel=1e-12)
    assert found.curves["loss"][0] == pytest.approx(
        8 * 2.0**-51 / scene.a.steps["loss"][0], rel=0.1
    )


def test_without_a_floor_only_step_0_has_a_band():
    scene = agree()
    found = bands(scene.verdict, scene.a, scene.b)
    assert found.curves["loss"][0] == 1e-13
    assert np.isnan(found.curves["loss"][1:]).all()


@pytest.mark.parametrize("what", ["tolerances", "floor"])
def test_a_rule_file_or_floor_that_changed_draws_no_band_and_says_so(tmp_path, what):
    scene = agree(folder=tmp_path)
    named = dict(getattr(scene.verdict, what)) | {"sha256": "0" * 64}
    found = bands(replace(scene.verdict, **{what: named}), scene.a, scene.b)
    assert found.curves == {}
    assert "and the verdict was made with 000000000000" in found.note


def test_a_missing_floor_file_draws_no_band_and_says_so(tmp_path):
    scene = agree(folder=tmp_path)
    next(tmp_path.glob("*.json")).unlink()
    found = bands(scene.verdict, scene.a, scene.b)
    assert found.curves == {}
    assert "cannot be read as a floor" in found.note
