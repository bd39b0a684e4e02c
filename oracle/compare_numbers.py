"""Cells of the numeric phases: two numbers, how far they part, and how far they may.

A cell is one value of one field at one step (and of one tensor). `relative` is |a - b| / scale; the
scale is max(|a|, |b|), for the learning rate the largest rate of the run, because 1 + cos cancels
near the end of a schedule. Nothing here knows of causes; `compare` walks the cells in causal order.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import polars as pl

from oracle.contract import phases
from oracle.floor import Floor
from oracle.tolerance import Floats, Tolerances, allowed, ulp

Steps = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]


@dataclass(frozen=True, kw_only=True, eq=False)
class Cells:
    """The n cells of one field in order of step: arrays of (n,).

    `one_sided`: present or finite on one side only. `void`: not finite on both sides, so that
    nothing can be said. Both are excluded from `relative` (nan there). `absent` tells for each leg
    where it recorded nothing at all; None for fields that every step has.
    """

    phase: str
    field: str
    steps: Steps
    tensors: npt.NDArray[np.object_] | None
    a: Floats
    b: Floats
    scale: Floats
    absolute: Floats
    relative: Floats
    one_sided: Flags
    void: Flags
    absent: tuple[Flags, Flags] | None = None


def scalar_cells(pairs: pl.DataFrame) -> Iterator[Cells]:
    """Yield the cells of every scalar field of the steps that both legs have."""
    both = pairs.filter(pl.col("in_a") & pl.col("in_b"))
    for phase in phases():
        for field in phase.fields:
            group, _, column = field.partition(".")
            if phase.exact or group != "steps":
                continue
            rows = both.filter(
                pl.col(f"{column}_a").is_not_null() | pl.col(f"{column}_b").is_not_null()
            )
            a, b = (rows[f"{column}_{leg}"].cast(pl.Float64).to_numpy() for leg in "ab")
            scale = np.fmax(np.abs(a), np.abs(b))
            if field == "steps.lr" and len(scale):
                scale = np.full_like(scale, np.max(scale, where=np.isfinite(scale), initial=0.0))
            steps = rows["step"].to_numpy()
            distance = np.where(a == b, 0.0, np.abs(a - np.where(np.isfinite(b), b, math.nan)))
            yield cells(phase.name, field, steps=steps, a=a, b=b, scale=scale, distance=distance)


def cells(
    phase: str,
    field: str,
    *,
    steps: Steps,
    a: Floats,
    b: Floats,
    scale: Floats,
    distance: Floats,
    tensors: npt.NDArray[np.object_] | None = None,
    absent: tuple[Flags, Flags] | None = None,
) -> Cells:
    """Return cells; what is not finite on one side or on both is set apart."""
    finite = np.isfinite(a) & np.isfinite(b)
    # Infinite in one and nan in the other is one overflow, met by two orders of arithmetic.
    void = ~np.isfinite(a) & ~np.isfinite(b)
    if absent is not None:
        void &= absent[0] == absent[1]
    absolute = np.where(finite, distance, math.nan)
    whole = finite & (scale > 0) & np.isfinite(scale)
    relative = np.where(finite & (absolute == 0), 0.0, math.nan)
    relative[whole] = absolute[whole] / scale[whole]
    relative[finite & np.isnan(relative)] = math.inf
    return Cells(
        phase=phase,
        field=field,
        steps=steps.astype(np.int64),
        tensors=tensors,
        a=a,
        b=b,
        scale=np.where(finite, scale, 0.0),
        absolute=absolute,
        relative=relative,
        one_sided=~finite & ~void,
        void=void,
        absent=absent,
    )


def limits(found: Cells, tolerances: Tolerances, floor: Floor | None, *, exact: bool) -> Floats:
    """Return the largest relative difference that passes in each cell, nan where none is judged.

    With `exact` (a self comparison without a floor) and for counts it is 0.
    """
    if exact or found.field == "steps.eval_targets":
        return np.zeros(len(found.steps))
    if found.field not in tolerances.rules:
        return np.full(len(found.steps), math.nan)
    return allowed(
        tolerances.rules[found.field],
        steps=found.steps,
        scale=found.scale,
        floor=None if floor is None else floor.at(found.field, found.steps),
        precision=tolerances.precision,
        trajectory=tolerances.trajectory,
    )


def units(found: Cells, place: int, precision: str) -> float | None:
    """Return the difference of one cell in units in the last place of the run's dtype."""
    if not math.isfinite(found.absolute[place]):
        return None
    return float(found.absolute[place] / ulp(found.scale[place : place + 1], precision)[0])
