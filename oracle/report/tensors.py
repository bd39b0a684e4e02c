"""The tensors at the step where one of them is the first to part: both norms, distance, limit.

Shown for the phases that compare tensors (S-21). Whether all part alike or one alone is what tells
a wrong factor from a wrong tensor.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
import polars as pl

from oracle.compare_numbers import limits
from oracle.compare_tensors import tensor_cells
from oracle.contract import Divergence, Verdict
from oracle.report.bands import judged_by
from oracle.report.words import short, visible
from oracle.trace import Trace

MAX_ROWS = 600
BAR_DECADES = 18  # a bar is full at a relative difference of 1 and empty at 1e-18


@dataclass(frozen=True, kw_only=True)
class Row:
    """One tensor as shown. `share` is the length of its bar, 0 to 1, on a logarithmic scale."""

    name: str
    a: str
    b: str
    relative: str
    allowed: str
    share: float
    equal: bool


@dataclass(frozen=True, kw_only=True)
class Tensors:
    """All tensors of one kind at one step, in the model's order; `equal` is within the limit."""

    phase: str
    step: int
    num_parted: int
    num: int
    rows: tuple[Row, ...]


def tensors(verdict: Verdict, a: Trace, b: Trace) -> Tensors | None:
    """Return the tensors around the first divergence, None when it is not of a tensor.

    Raises OracleError when the rule file or the floor of the verdict is gone or has changed.
    """
    first = verdict.first
    if first is None or first.step is None or not first.field.startswith("tensors."):
        return None
    if first.phase == "weights":
        return None
    kind = first.field.removeprefix("tensors.")
    return _at(verdict, a, b, first, kind)


def _at(verdict: Verdict, a: Trace, b: Trace, first: Divergence, kind: str) -> Tensors | None:
    tolerances, floor, exact = judged_by(verdict, a, b)
    wanted = (pl.col("step") == first.step) & (pl.col("kind") == kind)
    legs = [replace(trace, tensor_segments=[trace.tensors.filter(wanted)]) for trace in (a, b)]
    found = next(iter(tensor_cells(*legs, guard=tolerances.guard)), None)
    if found is None or found.tensors is None or first.step is None:
        return None
    allowed = limits(found, tolerances, floor, exact=exact)
    with np.errstate(invalid="ignore"):
        parted = found.one_sided | (found.relative > allowed)
    absent = found.absent or (np.zeros(len(parted), bool),) * 2
    rows = [
        Row(
            name=visible(str(found.tensors[i])),
            a="absent" if absent[0][i] else repr(float(found.a[i])),
            b="absent" if absent[1][i] else repr(float(found.b[i])),
            relative=_or_dash(float(found.relative[i])),
            allowed=_or_dash(float(allowed[i])),
            share=_share(float(found.relative[i])),
            equal=not parted[i],
        )
        for i in range(len(parted))
    ]
    kept = [row for row in rows if not row.equal] + [row for row in rows if row.equal]
    names = {row.name for row in kept[:MAX_ROWS]}
    return Tensors(
        phase=first.phase,
        step=first.step,
        num_parted=int(parted.sum()),
        num=len(rows),
        rows=tuple(row for row in rows if row.name in names),
    )


def _or_dash(value: float) -> str:
    return "–" if math.isnan(value) else short(value)


def _share(relative: float) -> float:
    if math.isnan(relative) or relative == 0:
        return 0.0
    decades = BAR_DECADES + math.log10(min(1.0, relative))
    return round(max(0.0, decades / BAR_DECADES), 3)
