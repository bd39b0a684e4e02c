"""What a fault costs: paired by seed, intervals as SciPy has them, the dearest first."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from oracle.impact import Impact, Interval, Losses, impact, interval, ranked, weight
from tests.unit_oracle_run.command import oracle


def of(fault: str, mean: float, phase: str = "text") -> Impact:
    found = Interval(mean=mean, half_width=0.1, num=3)
    return Impact(fault=fault, title="", phase=phase, held_out=found, final=found)


def test_an_interval_is_that_of_scipy() -> None:
    differences = [0.31, 0.29, 0.4, 0.11]
    found = interval(differences)
    low, high = stats.t.interval(0.95, df=3, loc=np.mean(differences), scale=stats.sem(differences))
    assert found.mean - found.half_width == pytest.approx(low, rel=1e-12)
    assert found.mean + found.half_width == pytest.approx(high, rel=1e-12)
    assert found.excludes_zero


def test_equal_differences_have_no_width() -> None:
    assert interval([0.5, 0.5, 0.5]) == Interval(mean=0.5, half_width=0.0, num=3)


@pytest.mark.parametrize("bad", [math.inf, math.nan])
def test_a_run_that_blew_up_costs_without_bound(bad: float) -> None:
    assert interval([0.1, bad, 0.1]).mean == math.inf


def test_one_seed_gives_no_interval() -> None:
    with pytest.raises(ValueError, match="1 seeds give no interval"):
        interval([0.1])


def test_what_the_seed_does_cancels() -> None:
    clean = {seed: Losses(held_out=seed, final=2 * seed) for seed in (1, 2, 3)}
    faulty = {seed: Losses(held_out=seed + 0.25, final=2 * seed - 1) for seed in (3, 1, 2)}
    found = impact("A01", "generic layout", "text", clean=clean, faulty=faulty)
    assert found.held_out == Interval(mean=0.25, half_width=0.0, num=3)
    assert found.final == Interval(mean=-1.0, half_width=0.0, num=3)


def test_a_seed_without_a_clean_run_is_refused() -> None:
    with pytest.raises(ValueError, match="A01: seeds"):
        impact("A01", "", "text", clean={}, faulty={1: Losses(held_out=1, final=1)})


def test_the_dearest_fault_comes_first_whatever_its_sign() -> None:
    found = ranked([of("B01", 0.1), of("A01", -3.0), of("A02", 0.1)])
    assert [one.fault for one in found] == ["A01", "A02", "B01"]


def test_groups_are_weighed_by_their_mean_size() -> None:
    assert weight([of("A01", -3.0), of("A02", 1.0)], [of("B01", 0.01)]) == pytest.approx(200.0)
    assert weight([of("A01", 1.0)], []) is None
    assert weight([of("A01", 1.0)], [of("B01", 0.0)]) is None


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (["--fault", "A99"], "no planted fault 'A99'; faults/TABLE.md lists"),
        (["--fault", "A01", "--seeds", "1,2"], "--seeds is '1,2'; three or more"),
        (["--fault", "A01", "--seeds", "1,1,2"], "--seeds is '1,1,2'; three or more"),
        (["--fault", "A01", "--seeds", "a"], "--seeds is 'a' and should be integers"),
    ],
)
def test_what_cannot_be_measured_is_told(options: list[str], sentence: str) -> None:
    ended = oracle("impact", *options)
    assert ended.returncode == 2
    assert sentence in ended.stderr
