"""Numeric phases in causal order: the first that parts, and what follows from it.

Every numeric value of step t depends on all values of the steps before and on the earlier phases of
t. So the cells are walked by (step, phase). The walk ends at the first place that is broken (a
divergence) or that an exact phase or a fact has spoilt (a cause); what is broken after it is a
consequence, what is not is not judged. It ends as well where values are finite in neither leg: what
follows has no meaning in real arithmetic, and two correct stacks may part there (one has nan where
the other has a number again), so it is neither a divergence nor a consequence. Two phases stand
beside the chain: `lr` depends on nothing (S-17), and spoils the updates when it parts; `eval`
depends on the evaluation split too.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from oracle.compare_numbers import Cells, Flags
from oracle.contract import Consequence, Divergence, Phase, PhaseResult, phases
from oracle.judged import NOWHERE, Context, Judged, Place, numeric_divergence
from oracle.outcome import Outcome, phase


@dataclass(frozen=True, kw_only=True)
class Gap:
    """A field that could not be judged from a step on."""

    field: str
    first_step: int
    because: str


def walk(
    channels: Sequence[Judged],
    *,
    causes: Mapping[Place, str],
    eval_cause: str | None,
    context: Context,
) -> tuple[list[Outcome], list[str]]:
    """Return the outcome of every numeric phase, and why steps could not be judged.

    `causes` maps the places at which an exact phase or fact enters the chain to its phase.
    """
    rate = [c for c in channels if c.cells.phase == "lr"]
    spoilt = dict(causes)
    for channel in rate:
        step, _ = channel.first_broken()
        if math.isfinite(step) and not any(place[1] == phase("lr").rank for place in causes):
            spoilt[(step, phase("update").rank)] = "lr"
    cause = min(spoilt, default=NOWHERE)
    chain = [c for c in channels if c.cells.phase not in ("lr", "eval")]
    first = min((c.first_broken() for c in chain), default=NOWHERE)
    void = min((c.first_void() for c in chain), default=NOWHERE)
    at_first = first if first < cause and first <= void else None
    end = min(first, cause, void)
    last = end if end in (at_first, void) and end < cause else None  # itself still judged
    because = next((p.name for p in phases() if at_first and p.rank == first[1]), spoilt.get(end))
    outcomes: list[Outcome] = []
    gaps: list[Gap] = []
    for entry in phases():
        if entry.exact:
            continue
        mine = [c for c in channels if c.cells.phase == entry.name]
        stop, why = end, because
        if entry.name == "lr":
            stop = min((p for p in causes if p[1] == entry.rank), default=NOWHERE)
            why = causes.get(stop)
        elif entry.name == "eval" and eval_cause is not None:
            stop, why = (-1.0, 0), eval_cause
        found, missed = _of_phase(entry, mine, stop, why, last, context)
        outcomes.append(found)
        gaps += missed
    return outcomes, _sentences(gaps)


def _of_phase(
    entry: Phase,
    channels: Sequence[Judged],
    stop: Place,
    because: str | None,
    last: Place | None,
    context: Context,
) -> tuple[Outcome, list[Gap]]:
    divergences: list[Divergence] = []
    gaps: list[Gap] = []
    compared: list[tuple[Cells, Flags]] = []
    bad: list[tuple[Cells, Flags]] = []
    followers: list[int] = []
    num_after = 0
    for channel in channels:
        steps = channel.cells.steps
        before = (steps < stop[0]) | ((steps == stop[0]) & (entry.rank < stop[1]))
        if last == stop and entry.rank == stop[1]:
            before |= steps == stop[0]
        judged = before & ~channel.unjudged & ~channel.cells.void
        compared.append((channel.cells, judged))
        bad.append((channel.cells, judged & channel.broken))
        broken = np.flatnonzero(judged & channel.broken)
        if len(broken):
            divergences.append(numeric_divergence(channel, broken, context))
        followers += steps[channel.broken & ~before].tolist()
        num_after += int((~before).sum())
        gaps += _unjudged(channel, before)
    consequences = []
    if followers and because is not None:
        consequences.append(
            Consequence(
                phase=entry.name, first_step=min(followers), num=len(followers), because=because
            )
        )
    after = _after(num_after, stop, because)
    nums = _num(entry, compared), _num(entry, bad)
    result = _result(entry, channels, nums, divergences, consequences, gaps, after)
    return (
        Outcome(result=result, divergences=tuple(divergences), consequences=tuple(consequences)),
        gaps,
    )


def _after(num_after: int, stop: Place, because: str | None) -> str | None:
    """Say what the values after the end of the walk follow from."""
    if not num_after:
        return None
    if because is None:
        return f"{num_after} values follow from what is finite in neither leg at step {stop[0]:.0f}"
    at = "" if stop[0] < 0 else f", which parts at step {stop[0]:.0f}"
    return f"{num_after} values follow from {because}{at}"


def _result(
    entry: Phase,
    channels: Sequence[Judged],
    nums: tuple[int, int],
    divergences: Sequence[Divergence],
    consequences: Sequence[Consequence],
    gaps: Sequence[Gap],
    after: str | None,
) -> PhaseResult:
    worst, worst_step = _worst(channels)
    reason = gaps[0].because if gaps else after
    num_compared, num_bad = nums
    status = "agree" if num_compared else "not_compared"
    if divergences:
        status = "diverged"
    elif consequences:
        status = "consequence"
    elif gaps or after:
        status = "not_judged"
    if status == "not_compared":
        reason = "the traces hold no such values"
    steps = [d.step for d in divergences] or [c.first_step for c in consequences]
    return PhaseResult(
        phase=entry.name,
        status=status,  # type: ignore[arg-type]
        unit=entry.unit,
        num_compared=num_compared,
        num_agreeing=num_compared - num_bad,
        agreement=(num_compared - num_bad) / num_compared if num_compared else None,
        first_step=min((s for s in steps if s is not None), default=None),
        worst_relative=worst,
        worst_step=worst_step,
        reason=reason,
    )


def _num(entry: Phase, marked: Sequence[tuple[Cells, Flags]]) -> int:
    """Return how many steps the marked cells are of, or tensors of steps, each counted once."""
    num, steps = 0, [np.zeros(0, dtype=np.int64)]
    for cells, flags in marked:
        if entry.unit == "tensors" and cells.tensors is not None:
            num += int(flags.sum())  # no other cell is of this tensor, field and step
        else:
            steps.append(cells.steps[flags])
    return num + len(np.unique(np.concatenate(steps)))


def _worst(channels: Sequence[Judged]) -> tuple[float | None, int | None]:
    worst: tuple[float, int] | None = None
    for channel in channels:
        relative = np.nan_to_num(channel.cells.relative, nan=-1.0)
        if len(relative) and relative.max() >= 0:
            place = int(relative.argmax())
            here = float(relative[place]), int(channel.cells.steps[place])
            worst = here if worst is None or here[0] > worst[0] else worst
    return worst or (None, None)


def _unjudged(channel: Judged, before: Flags) -> list[Gap]:
    """Return the cells before the end of the walk that could not be judged."""
    field, steps = channel.cells.field, channel.cells.steps
    found = []
    for which, because in (
        (
            channel.cells.void,
            "values are not finite in both legs, and that is no agreement; what follows from them "
            "means nothing",
        ),
        (channel.unjudged, channel.unjudged_because),
    ):
        cells = np.flatnonzero(before & which)
        if len(cells):
            found.append(Gap(field=field, first_step=int(steps[cells[0]]), because=because))
    return found


def _sentences(gaps: Sequence[Gap]) -> list[str]:
    """Return one sentence for each reason, with the fields that it holds for."""
    by_reason: dict[tuple[str, int], list[str]] = {}
    for gap in gaps:
        by_reason.setdefault((gap.because, gap.first_step), []).append(gap.field)
    merged: dict[str, list[str]] = {}
    for (because, step), fields in by_reason.items():
        merged.setdefault(because, []).append(f"{', '.join(fields)} from step {step} on")
    return [f"{because} (not judged: {'; '.join(parts)})" for because, parts in merged.items()]
