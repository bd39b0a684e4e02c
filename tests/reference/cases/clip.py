"""Cases of S-15 and S-16."""

import math
from typing import Any

from tests.reference.case import Clause, computed, hand
from tests.reference.cases.loss import wave


def _given(clip_norm: float | str, **grads: Any) -> dict[str, Any]:
    return {"grads": grads, "clip_norm": clip_norm}


def _clipped(norm: Any, factor: Any, **clipped: Any) -> dict[str, Any]:
    return {"grad_norm": norm, "clip_factor": factor, "clipped": clipped}


NAN, INF = math.nan, math.inf
ULP = 1e-15  # one division and one product
CASES = [
    # 1 / (5 + 1e-6) = 0.2 / 1.0000002 = 0.19999996000000800
    hand(
        "three four five",
        "clip",
        _given(1.0, a=[3.0], b=[4.0]),
        _clipped(5.0, 0.199999960000008, a=[0.599999880000024], b=[0.799999840000032]),
        1e-14,
    ),
    # 5 / (5 + 1e-6): just below 1, although the norm does not exceed c
    hand(
        "norm exactly c still shrinks a little",
        "clip",
        _given(5, a=[3.0], b=[[4.0]]),
        _clipped(5.0, 0.99999980000004, a=[2.99999940000012], b=[[3.99999920000016]]),
        1e-14,
    ),
    hand(
        "below c nothing changes",
        "clip",
        _given(10.0, a=[3.0], b=[-4.0]),
        _clipped(5.0, 1.0, a=[3.0], b=[-4.0]),
        ULP,
    ),
    hand(
        "off",
        "clip",
        _given("off", a=[30.0], b=[-40.0]),
        _clipped(50.0, 1.0, a=[30.0], b=[-40.0]),
        ULP,
    ),
    hand(
        "zero gradients",
        "clip",
        _given(1.0, a=[0.0, 0.0]),
        _clipped(0.0, 1.0, a=[0.0, 0.0]),
        ULP,
    ),
    # 1e-7 / (0 + 1e-6) = 0.1: the formula, also where nothing needs clipping
    hand(
        "zero gradients and a tiny c",
        "clip",
        _given(1e-7, a=[0.0]),
        _clipped(0.0, 0.1, a=[0.0]),
        ULP,
    ),
    # c = norm + 1e-6 exactly enough: factor 1 to rounding
    hand(
        "c is the norm plus 1e-6",
        "clip",
        _given(5.000001, a=[3.0, 4.0]),
        _clipped(5.0, 1.0, a=[3.0, 4.0]),
        ULP,
    ),
    hand(
        "the norm is over all tensors together",
        "clip",
        _given(1000.0, a=[[1.0, 2.0], [2.0, 4.0]], b=[4.0, 8.0], c=16.0),
        # 1 + 4 + 4 + 16 + 16 + 64 + 256 = 361 = 19²
        _clipped(19.0, 1.0, a=[[1.0, 2.0], [2.0, 4.0]], b=[4.0, 8.0], c=16.0),
        ULP,
    ),
    hand(
        "NaN is not hidden",
        "clip",
        _given(1.0, a=[NAN, 1.0], b=[2.0]),
        _clipped(NAN, NAN, a=[NAN, NAN], b=[NAN]),
    ),
    hand(
        "an infinite norm gives no finite factor",
        "clip",
        _given(1.0, a=[INF, 1.0], b=[2.0]),
        _clipped(INF, NAN, a=[NAN, NAN], b=[NAN]),
    ),
    hand(
        "off with an infinite entry",
        "clip",
        _given("off", a=[INF, 1.0], b=[-2.0]),
        _clipped(INF, 1.0, a=[INF, 1.0], b=[-2.0]),
    ),
    hand(
        "off with NaN",
        "clip",
        _given("off", a=[NAN, 1.0], b=[2.0]),
        _clipped(NAN, 1.0, a=[NAN, 1.0], b=[2.0]),
    ),
    # 1e200² is above the largest float64, 1.8e308
    hand(
        "a square that overflows is an infinite norm",
        "clip",
        _given(1.0, a=[1e200], b=[3.0]),
        _clipped(INF, NAN, a=[NAN], b=[NAN]),
    ),
    # each square is 1e308; their sum is not
    hand(
        "a sum of squares that overflows is an infinite norm",
        "clip",
        _given(1.0, a=[1e154], b=[-1e154]),
        _clipped(INF, NAN, a=[NAN], b=[NAN]),
    ),
    hand(
        "off with a sum of squares that overflows",
        "clip",
        _given("off", a=[1e154, -1e154], b=[1e-3]),
        _clipped(INF, 1.0, a=[1e154, -1e154], b=[1e-3]),
    ),
    # squares 9e304 and 16e304, norm 5e152; 1e-6 is nothing beside it
    hand(
        "a sum of squares just below overflow",
        "clip",
        _given(1.0, a=[3e152], b=[4e152]),
        _clipped(5e152, 2e-153, a=[0.6], b=[0.8]),
        1e-14,
    ),
    computed(
        "matrices and vectors",
        "clip",
        _given(0.5, w=wave(6, 7, scale=0.37), b=wave(7, seed=1, scale=0.01), s=wave(3, 2, 4)),
        rtol=1e-14,
    ),
    computed(
        "entries of very different size",
        "clip",
        _given(2.5, big=[12345.678], small=wave(20, 20, scale=1e-5)),
        rtol=1e-14,
    ),
    computed(
        "tiny gradients and a tiny c", "clip", _given(1e-6, a=wave(9, scale=1e-6)), rtol=1e-14
    ),
]

CLAUSE = Clause(
    clause="S-16",
    note=(
        "grad_norm is that of S-15. A few hundred squares, a root, a division: 1e-14."
        " Inputs that are not finite are written as words (S-24)."
    ),
    cases=CASES,
)
