"""A verdict held against the thresholds of a required run: what falls short.

A share counts what was compared, so a phase that was judged on three steps of sixty may agree on
all of them. Values that were left unjudged therefore fall short too, unless a phase that explains
them was allowed to part with its consequences.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from oracle.contract import PhaseResult, Verdict
from oracle.gate.policy import Required
from oracle.outcome import phase as phase_of

# What a run of each mode must have compared, whatever else it recorded.
OWED: Mapping[str, frozenset[str]] = {
    "render": frozenset({"echo", "text", "ids", "mask"}),
    "train": frozenset(
        {"echo", "order", "text", "ids", "mask", "batch", "weights", "loss", "grad_norm", "lr"}
    ),
}
LIMITS = {
    "max_mean_relative_loss_difference": "mean relative loss difference",
    "max_relative_loss_difference": "largest relative loss difference",
}


@dataclass(frozen=True, kw_only=True)
class Measured:
    """What thresholds look at: of a verdict, or of a recorded one."""

    mode: str
    phases: Sequence[PhaseResult]
    num_steps: int
    num_examples: int
    mean_loss: float | None
    largest_loss: float | None

    def of_limit(self, name: str) -> float | None:
        """Return the relative loss difference that a limit is held against."""
        return self.largest_loss if name == "max_relative_loss_difference" else self.mean_loss


@dataclass(frozen=True, kw_only=True)
class Shortfall:
    """A threshold that was not kept. `phase` is set for kinds `agreement` and `unjudged`."""

    kind: Literal["agreement", "unjudged", "limit", "size"]
    name: str
    sentence: str
    phase: str | None = None
    num_parted: int = 0
    value: float | None = None


def measured_of(verdict: Verdict) -> Measured:
    """Return what the thresholds look at."""
    summary = verdict.summary
    return Measured(
        mode=verdict.mode,
        phases=verdict.phases,
        num_steps=summary["num_steps"],
        num_examples=summary["num_examples"],
        mean_loss=summary["mean_relative_loss_difference"],
        largest_loss=summary["max_relative_loss_difference"],
    )


def shortfalls(measured: Measured, required: Required) -> Iterator[Shortfall]:
    """Yield every threshold that was not kept, phases first, in causal order."""
    allowed = {
        entry.phase for entry in required.agreement.values() if entry.consequences
    } & parted_phases(measured)
    for result in measured.phases:
        yield from of_phase(result, required, explained=allowed)
    yield from of_sizes(measured, required)
    yield from of_limits(measured, required)


def parted_phases(measured: Measured) -> set[str]:
    """Return the phases that part by themselves: those that can explain something."""
    return {result.phase for result in measured.phases if result.status == "diverged"}


def explains(causes: Collection[str], phase: str) -> bool:
    """Whether one of `causes` can explain what becomes of `phase` (phases.toml)."""
    return any(cause in phase_of(phase).causes for cause in causes)


def of_phase(
    result: PhaseResult, required: Required, *, explained: Collection[str]
) -> Iterator[Shortfall]:
    """Yield what falls short in one phase; consequences of the phases `explained` do not."""
    name, least = result.phase, required.at_least(result.phase)
    if result.num_compared == 0:
        if result.status == "not_compared":
            owed = name in OWED[required.mode] or name in required.agreement
            if not owed:
                return
        elif explains(explained, name):
            return
        yield Shortfall(
            kind="unjudged",
            name=f"agreement.{name}",
            phase=name,
            sentence=f"{name} was not compared at all" + _because(result),
        )
        return
    follows = result.status in ("consequence", "not_judged") and explains(explained, name)
    num_parted = result.num_compared - result.num_agreeing
    share = result.num_agreeing / result.num_compared
    if share < least and not follows:
        yield Shortfall(
            kind="agreement",
            name=f"agreement.{name}",
            phase=name,
            num_parted=num_parted,
            value=share,
            sentence=(
                f"{name} agrees on {result.num_agreeing} of {result.num_compared} {result.unit}"
                f", {_least(least)} needed"
            ),
        )
    if _has_unjudged(result) and not (follows or name in explained):
        yield Shortfall(
            kind="unjudged",
            name=f"agreement.{name}",
            phase=name,
            sentence=f"{name} was not judged to the end" + _because(result),
        )


def _has_unjudged(result: PhaseResult) -> bool:
    # A numeric phase gives a reason where some of its values were left unjudged; what an exact
    # phase gives is of the whole phase.
    exact = phase_of(result.phase).exact
    return result.status == "not_judged" or (not exact and result.reason is not None)


def _because(result: PhaseResult) -> str:
    return "" if result.reason is None else f" ({result.reason})"


def _least(share: float) -> str:
    return "all" if share == 1.0 else f"{100 * share:g} %"


def of_sizes(measured: Measured, required: Required) -> Iterator[Shortfall]:
    """Yield numbers of steps and examples that are too small."""
    sizes = (
        ("min_steps", "steps", measured.num_steps, required.min_steps),
        ("min_examples", "examples", measured.num_examples, required.min_examples),
    )
    for name, unit, found, least in sizes:
        if least is not None and found < least:
            yield Shortfall(
                kind="size", name=name, value=found, sentence=f"{found} {unit}, {least} needed"
            )


def of_limits(measured: Measured, required: Required) -> Iterator[Shortfall]:
    """Yield loss differences over their limit; one that was not measured is over every limit."""
    for name, words in LIMITS.items():
        limit = getattr(required, name)
        if limit is None:
            continue
        found = measured.of_limit(name)
        if found is None or not found <= limit:
            shown = "none was measured" if found is None else f"{found:.3g}"
            yield Shortfall(
                kind="limit",
                name=name,
                value=math.nan if found is None else found,
                sentence=f"{words}: {shown}, limit {limit:.3g}",
            )
