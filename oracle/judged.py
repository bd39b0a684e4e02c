"""Numeric cells held against their limits, and a broken one as a divergence with its hint."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import numpy as np

from oracle.compare_numbers import Cells, Flags, units
from oracle.contract import Divergence
from oracle.hints import clip_hint, lr_hint, one_sided_hint, ratio_hint
from oracle.outcome import divergence, phase
from oracle.tolerance import Floats

Place = tuple[float, int]  # step, rank of the phase
NOWHERE: Place = (math.inf, 0)


@dataclass(frozen=True, kw_only=True, eq=False)
class Judged:
    """Cells of one field with their limits: `broken` is what no rule lets pass."""

    cells: Cells
    limits: Floats
    rule: str
    unjudged_because: str

    @property
    def rank(self) -> int:
        """Causal rank of the field's phase."""
        return phase(self.cells.phase).rank

    @property
    def broken(self) -> Flags:
        """Cells over their limit, and those that are present or finite on one side only."""
        found = self.cells
        with np.errstate(invalid="ignore"):
            return found.one_sided | (~found.void & (found.relative > self.limits))

    @property
    def unjudged(self) -> Flags:
        """Cells with two numbers and no limit."""
        return np.isnan(self.limits) & ~self.cells.void & ~self.cells.one_sided

    def first_broken(self) -> Place:
        """Return the place of the first broken cell."""
        steps = self.cells.steps[self.broken]
        return (float(steps[0]), self.rank) if len(steps) else NOWHERE

    def first_void(self) -> Place:
        """Return the place of the first cell that is finite in neither leg."""
        steps = self.cells.steps[self.cells.void]
        return (float(steps[0]), self.rank) if len(steps) else NOWHERE


@dataclass(frozen=True, kw_only=True)
class Context:
    """What hints and rules need to know of the run; `quantities(step)` are known ratios by name."""

    names: tuple[str, str]
    precision: str
    accumulation: int
    quantities: Callable[[int], Mapping[str, float]]


def numeric_divergence(channel: Judged, broken: np.ndarray, context: Context) -> Divergence:
    """Return the divergence of the first broken cell of a field."""
    found, place = channel.cells, int(broken[0])
    a, b = float(found.a[place]), float(found.b[place])
    tensor = None if found.tensors is None else str(found.tensors[place])
    one_sided = bool(found.one_sided[place])
    whole = phase(found.phase)
    made = divergence(
        found.phase,
        field=found.field,
        a=_shown(a, found, place, leg=0),
        b=_shown(b, found, place, leg=1),
        step=int(found.steps[place]),
        tensor=tensor,
        rule=channel.rule,
        hint=_hint(channel, broken, context),
        num_like_it=len(broken) - 1,
    )
    if one_sided:
        return replace(
            made, rule=f"{whole.name} must be present and finite in both legs, or neither"
        )
    return replace(
        made,
        absolute=float(found.absolute[place]),
        relative=float(found.relative[place]),
        ulps=units(found, place, context.precision),
        allowed=float(channel.limits[place]),
    )


def _shown(value: float, found: Cells, place: int, *, leg: int) -> str:
    if found.absent is not None and found.absent[leg][place]:
        return "absent"
    return repr(value) if found.tensors is None else f"norm {value!r}"


def _hint(channel: Judged, broken: np.ndarray, context: Context) -> str | None:
    found, place = channel.cells, int(broken[0])
    a, b = float(found.a[place]), float(found.b[place])
    step = int(found.steps[place])
    for leg, gone in zip(context.names, found.absent or (), strict=False):
        if gone[place]:
            return f"{leg} has no row of this tensor at this step"
    if found.one_sided[place]:
        return one_sided_hint(a, b, context.names)
    if found.field == "steps.lr":
        return lr_hint(
            place, found.a.tolist(), found.b.tolist(), context.names, context.accumulation
        )
    if found.field == "steps.clip_factor" and (hint := clip_hint(a, b, context.names)) is not None:
        return hint
    known = context.quantities(step)
    hint = ratio_hint(a, b, context.names, known)
    if found.tensors is None:
        return hint
    at_step = broken[found.steps[broken] == step]
    ratios = Counter(
        ratio_hint(float(found.a[i]), float(found.b[i]), context.names, known) for i in at_step
    )
    tensors = int((found.steps == step).sum())
    worst = at_step[np.nanargmax(np.nan_to_num(found.relative[at_step], nan=-1.0))]
    words = f"{len(at_step)} of {tensors} tensors part, most {found.tensors[worst]}"
    common = hint if hint is not None and ratios[hint] == len(at_step) else None
    return f"{words}: {common}" if common else words
