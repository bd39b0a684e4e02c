"""What one phase came to, and how a divergence is made; used by every `compare_*` module."""

from __future__ import annotations

import functools
import re
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from oracle.contract import Consequence, Divergence, Phase, PhaseResult, phases


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """The result of a phase with its independent divergences and what earlier phases explain."""

    result: PhaseResult
    divergences: tuple[Divergence, ...] = ()
    consequences: tuple[Consequence, ...] = ()


@functools.cache
def phase(name: str) -> Phase:
    """Return the phase of this name."""
    return next(entry for entry in phases() if entry.name == name)


def divergence(name: str, *, field: str, a: str, b: str, **places: Any) -> Divergence:
    """Make a divergence of an exact phase; `compare_numbers` gives rule and numbers of its own."""
    places.setdefault("rule", f"phases.toml: {name} is exact")
    return Divergence(
        id="-", phase=name, field=field, a=a, b=b, clause=phase(name).clause, **places
    )


def outcome(
    name: str,
    *,
    num_compared: int,
    num_agreeing: int,
    divergences: Sequence[Divergence] = (),
    consequences: Sequence[Consequence] = (),
    reason: str | None = None,
) -> Outcome:
    """Return the outcome of an exact phase."""
    if divergences:
        status = "diverged"
    elif any(entry.num for entry in consequences):
        status = "consequence"
    else:
        status = "agree" if num_compared else "not_compared"
    places: list[Any] = [*divergences] or [entry for entry in consequences if entry.num]
    steps = [d.step if isinstance(d, Divergence) else d.first_step for d in places]
    return Outcome(
        result=PhaseResult(
            phase=name,
            status=status,  # type: ignore[arg-type]
            unit=phase(name).unit,
            num_compared=num_compared,
            num_agreeing=num_agreeing,
            agreement=num_agreeing / num_compared if num_compared else None,
            first_step=min((step for step in steps if step is not None), default=None),
            reason=reason,
        ),
        divergences=tuple(divergences),
        consequences=tuple(entry for entry in consequences if entry.num),
    )


def explained_by_facts(name: str, parted_facts: Collection[str]) -> bool:
    """Whether a difference in a fact explains a divergence of this phase."""
    return any(
        fact == cause or fact.startswith(f"{cause}.")
        for cause in phase(name).facts
        for fact in parted_facts
    )


def grouped(found: Iterable[Divergence], *, extra: int = 0) -> list[Divergence]:
    """Return the first divergence of each kind and how many are like it.

    A kind is a field and a hint, whatever numbers are in it.
    `extra` divergences were counted and not looked at; they are added to the first kind.
    """
    firsts: dict[tuple[str, str], Divergence] = {}
    for entry in found:
        key = (entry.field, re.sub(r"\d+", "#", entry.hint or ""))
        if key in firsts:
            firsts[key] = replace(firsts[key], num_like_it=firsts[key].num_like_it + 1)
        else:
            firsts[key] = entry
    listed = list(firsts.values())
    if listed and extra:
        listed[0] = replace(listed[0], num_like_it=listed[0].num_like_it + extra)
    return listed


def in_model_order(name: str) -> tuple[int, list[tuple[int, int, str]]]:
    """Sort key of a tensor's name: embedding, layers by number, final norm, head."""
    place = 0 if "embed" in name else 1 if ".layers." in name else 3 if "lm_head" in name else 2
    parts = re.findall(r"\d+|\D+", name)
    return place, [(0, int(p), "") if p.isdigit() else (1, 0, p) for p in parts]
