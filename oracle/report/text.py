"""A verdict in the terminal: the first divergence in five lines, or a table of phases.

Never more than a screen.
"""

from __future__ import annotations

import textwrap

from rich.console import Console
from rich.text import Text

from oracle.contract import PhaseResult, Verdict
from oracle.report.words import (
    STATUS_WORDS,
    aftermath,
    apart,
    joined,
    next_command,
    percent,
    place,
    remedy,
    short,
    visible,
)

STYLES = {
    "AGREE": "bold green",
    "DIVERGED": "bold red",
    "INCONCLUSIVE": "bold yellow",
    "ERROR": "bold magenta",
}
MAX_REASONS = 4
MAX_NOTES = 3
LEAST_COLUMNS = 20  # of a value, however narrow the terminal


def print_verdict(verdict: Verdict, console: Console) -> None:
    """Print `verdict` to `console`; never text or ordinary ids of an example."""
    if verdict.verdict == "DIVERGED" and verdict.first is not None:
        _print_divergence(verdict, console)
    elif verdict.verdict == "AGREE":
        _print_agreement(verdict, console)
    else:
        _print_unjudged(verdict, console)
    lines = _Lines(console, verdict)
    for warning in verdict.warnings[:MAX_NOTES]:
        lines.put("note", warning)
    if len(verdict.warnings) > MAX_NOTES:
        lines.put("note", f"{len(verdict.warnings) - MAX_NOTES} more in the JSON verdict")


class _Lines:
    """`  key     value` lines, keys as wide as the legs' names; control characters spelled out."""

    def __init__(self, console: Console, verdict: Verdict) -> None:
        self.console = console
        self.width = max(7, *(len(leg.name) for leg in verdict.legs))

    def put(self, key: str, value: str) -> None:
        indent = self.width + 3
        whole = key == "next"  # a command is copied in one piece
        shown = value if whole else _wrapped(self.console, visible(value), indent, indent)
        text = Text.assemble("  ", (f"{visible(key):<{self.width}} ", "dim"), shown)
        self.console.print(text, soft_wrap=True, highlight=False)


def _wrapped(console: Console, text: str, begin: int, indent: int) -> str:
    """Return `text`, which begins at column `begin`, broken between words for a terminal.

    What is piped stays on one line, so that `grep` finds it whole.
    """
    if not console.is_terminal:
        return text
    lines = textwrap.wrap(
        text,
        width=max(console.width, indent + LEAST_COLUMNS),
        initial_indent=" " * begin,
        subsequent_indent=" " * indent,
        break_long_words=False,
        break_on_hyphens=False,
    )
    return "\n".join(lines)[begin:]


def _head(console: Console, verdict: Verdict, *rest: str) -> None:
    name = (verdict.verdict, STYLES[verdict.verdict])
    shown = "  ".join(visible(part) for part in rest if part)
    begin = len(verdict.verdict) + 2
    text = Text.assemble(name, "  ", _wrapped(console, shown, begin, begin))
    console.print(text, soft_wrap=True, highlight=False)


def _print_divergence(verdict: Verdict, console: Console) -> None:
    first = verdict.first
    assert first is not None, "DIVERGED without a first divergence"
    lines = _Lines(console, verdict)
    _head(console, verdict, first.phase, place(first))
    names = [leg.name for leg in verdict.legs]
    a, b = visible(first.a), visible(first.b)
    if len(a) + len(b) + 40 <= console.width:
        lines.put(names[0], f"{a:<12} {names[1]:<5} {b}")
    else:
        lines.put(names[0], a)
        lines.put(names[1], b)
    if distance := apart(first):
        lines.put("apart", distance)
    lines.put("rule", f"{first.rule}        clause {first.clause}")
    if first.hint:
        lines.put("hint", first.hint)
    if rest := further(verdict):
        lines.put("also", rest)
    if verdict.consequences:
        lines.put("then", aftermath(verdict.consequences))
    if verdict.run is not None:
        lines.put("next", next_command(verdict))


def further(verdict: Verdict) -> str:
    """Independent divergences besides the first, listed or only counted, by phase."""
    counts: dict[str, int] = {}
    for item in verdict.divergences:
        own = 0 if verdict.first is not None and item.id == verdict.first.id else 1
        counts[item.phase] = counts.get(item.phase, 0) + own + item.num_like_it
    parts = [f"{num} in {phase}" for phase, num in counts.items() if num]
    return f"{joined(parts)}, not explained by the first" if parts else ""


def _print_agreement(verdict: Verdict, console: Console) -> None:
    rows = [("phase", "compared", "agreement", "worst relative", "where")]
    for result in verdict.phases:
        if result.status != "not_compared":
            rows.append(_row(result))
    widths = [max(len(row[column]) for row in rows) for column in range(5)]
    while console.is_terminal and sum(widths) + 2 * len(widths) > console.width and widths[3:]:
        widths.pop()  # the last columns are in the JSON verdict too
    for number, row in enumerate(rows):
        cells = [cell.ljust(width) for cell, width in zip(row, widths, strict=False)]
        console.print(
            Text("  " + "  ".join(cells).rstrip(), style="dim" if number == 0 else ""),
            soft_wrap=True,
            highlight=False,
        )
    if skipped := [r.phase for r in verdict.phases if r.status == "not_compared"]:
        _Lines(console, verdict).put("not compared", f" {joined(skipped)}")
    _head(console, verdict, status_line(verdict))


def _row(result: PhaseResult) -> tuple[str, str, str, str, str]:
    agreement = percent(result.num_agreeing, result.num_compared)
    if result.status != "agree":
        agreement = f"{agreement} {STATUS_WORDS[result.status]}"
    where = "" if result.worst_step is None else f"step {result.worst_step}"
    worst = "" if result.worst_relative is None else short(result.worst_relative)
    return result.phase, f"{result.num_compared} {result.unit}", agreement, worst, where


def status_line(verdict: Verdict) -> str:
    """The one line for a status check: config, precision, size, largest loss difference."""
    config, summary = verdict.config, verdict.summary
    parts = [str(config["name"])]
    if config["precision"]:
        parts.append(str(config["precision"]))
    parts.append(f"{summary['num_steps']:,} steps, {summary['num_examples']:,} examples")
    if summary["max_relative_loss_difference"] is not None:
        parts.append(f"loss within {short(summary['max_relative_loss_difference'])}")
    parts.append(verdict.purpose if verdict.purpose == "cross" else "self (passes no gate)")
    return " · ".join(parts)


def _print_unjudged(verdict: Verdict, console: Console) -> None:
    lines = _Lines(console, verdict)
    _head(console, verdict, status_line(verdict))
    for leg in verdict.legs:
        if leg.error:
            lines.put(leg.name, leg.error)
    for reason in verdict.reasons[:MAX_REASONS]:
        lines.put("why", reason)
    if len(verdict.reasons) > MAX_REASONS:
        lines.put("why", f"{len(verdict.reasons) - MAX_REASONS} more in the JSON verdict")
    for status, key in (("agree", "agree"), ("not_judged", "open")):
        if names := [result.phase for result in verdict.phases if result.status == status]:
            lines.put(key, joined(names))
    lines.put("do", remedy(verdict))
