"""The tensors around a divergence, held against NumPy on the very rows that were planted."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from oracle.errors import OracleError
from oracle.report.tensors import tensors
from oracle.verdict import judge
from tests.unit_oracle_judge.conftest import floor_of, pair
from tests.unit_oracle_judge.synthetic import NAMES, PARAMETERS, read

NAME = "model.norm.weight"


@pytest.fixture
def judged(tmp_path):
    def make(change):
        a, b = pair()
        change(b)
        left, right = read(tmp_path / "a", a), read(tmp_path / "b", b)
        verdict = judge(
            left,
            right,
            purpose="cross",
            names=NAMES,
            tolerances=None,
            floor=floor_of(tmp_path, left, right),
            run=None,
        )
        return verdict, left, right

    return make


def moved(made, kind="update", size=1e-3):
    """Move one sketch at step 4 by `size` of its norm, along itself."""
    for row in made["tensors"]:
        if (row["kind"], row["step"], row["name"]) == (kind, 4, NAME):
            row["sketch"] = [bucket * (1 + size) for bucket in row["sketch"]]
            row["norm"] *= 1 + size


def test_norms_distance_and_limit_are_those_of_the_rows(judged):
    verdict, a, b = judged(moved)
    found = tensors(verdict, a, b)
    assert (found.phase, found.step, found.num, found.num_parted) == ("update", 4, 6, 1)
    assert {row.name for row in found.rows} == set(PARAMETERS)
    (row,) = [row for row in found.rows if not row.equal]
    rows = [t.tensors.collect().to_dicts() for t in (a, b)]
    kept = [
        r for leg in rows for r in leg if (r["kind"], r["step"], r["name"]) == ("update", 4, NAME)
    ]
    sketches = [np.array(r["sketch"]) for r in kept]
    assert row.name == NAME
    assert (row.a, row.b) == tuple(repr(r["norm"]) for r in kept)
    distance = np.linalg.norm(sketches[0] - sketches[1]) / max(r["norm"] for r in kept)
    assert float(row.relative) == pytest.approx(distance, rel=1e-2)
    assert row.share == pytest.approx((18 + np.log10(distance)) / 18, abs=1e-3)
    assert all(other.share == 0 for other in found.rows if other.equal)


def test_a_tensor_that_one_leg_lacks_is_absent(judged):
    def lose(made):
        made["tensors"] = [
            r for r in made["tensors"] if (r["kind"], r["step"], r["name"]) != ("update", 4, NAME)
        ]

    found = tensors(*judged(lose))
    (row,) = [row for row in found.rows if not row.equal]
    assert (row.name, row.b, row.relative) == (NAME, "absent", "–")


def other_loss(made):
    made["steps"][3]["loss"] *= 1.5


@pytest.mark.parametrize("change", [other_loss, lambda made: None])
def test_there_are_none_where_no_tensor_is_the_first_to_part(judged, change):
    assert tensors(*judged(change)) is None


def test_a_rule_file_that_changed_since_is_refused(judged):
    verdict, a, b = judged(moved)
    changed = replace(verdict, tolerances=dict(verdict.tolerances) | {"sha256": "0" * 64})
    with pytest.raises(OracleError, match="and the verdict was made with 000000000000"):
        tensors(changed, a, b)
