"""A verdict in one sentence that makes sense alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from oracle.contract import Divergence, VerdictName


def headline(
    name: VerdictName,
    divergences: Sequence[Divergence],
    reasons: Sequence[str],
    names: tuple[str, str],
    summary: Mapping[str, Any],
) -> str:
    """Return a sentence that makes sense alone."""
    legs = f"{names[0]} and {names[1]}"
    if divergences:
        first, others = divergences[0], len(divergences) - 1
        more = f"; {others} more independent divergence{'s' * (others > 1)}" if others else ""
        return f"{legs} part in {first.phase}{_where(first)}{more}"
    if name == "INCONCLUSIVE":
        return f"{legs} could not be judged to the end: {reasons[0].split(' (not judged')[0]}"
    what = f"{summary['num_examples']} examples"
    if summary["num_steps"]:
        what = f"{summary['num_steps']} steps and {what}"
    worst = summary["max_relative_loss_difference"]
    tail = "" if worst is None else f"; losses differ by {worst:.2g} at most"
    return f"{legs} agree on {what}{tail}"


def _where(entry: Divergence) -> str:
    parts = [] if entry.step is None else [f"step {entry.step}"]
    parts += [] if entry.example is None else [f"example {entry.example}"]
    parts += [] if entry.position is None else [f"token {entry.position}"]
    parts += [] if entry.tensor is None else [entry.tensor]
    if not parts:
        parts = [entry.field.removeprefix("header.facts.")]
    return f" at {', '.join(parts)}" + (f" ({entry.hint})" if entry.hint else "")
