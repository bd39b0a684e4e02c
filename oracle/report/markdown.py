"""A verdict as Markdown for a pull request: what a reviewer needs in one screen, and how to look.

GitHub and GitLab show it in a comment or a job summary. Everything that comes from data (ids,
names, sentences) is made inert: it can neither close a table cell nor start markup or a mention.
"""

from __future__ import annotations

from collections.abc import Iterator

from oracle.contract import PhaseResult, Verdict
from oracle.report.text import further, status_line
from oracle.report.words import (
    aftermath,
    apart,
    next_command,
    percent,
    place,
    remedy,
    short,
    visible,
)

MARKS = {"AGREE": "✅", "DIVERGED": "❌", "INCONCLUSIVE": "⚠️", "ERROR": "⛔"}
STATUS_MARKS = {
    "agree": "✓",
    "diverged": "✗",
    "consequence": "↳",
    "not_judged": "?",
    "not_compared": "·",
}
MAX_CHARACTERS = 60_000  # a comment of GitHub takes 65,536
MAX_NOTES = 5
LONGEST_VALUE = 300
# HTML entities: Markdown processors turn them into the character and never into markup.
INERT = str.maketrans({c: f"&#{ord(c)};" for c in "\\`*_{}[]<>()#+!|~@&:$"})


def render(verdict: Verdict) -> str:
    """Return the summary of `verdict`; never text or ordinary ids of an example."""
    lines = [*_head(verdict), "", *_phases(verdict), *_figures(verdict), *_notes(verdict)]
    text = "\n".join([*lines, *_reproduce(verdict)]) + "\n"
    assert len(text) < MAX_CHARACTERS, f"{len(text)} characters of summary"
    return text


def inert(text: str) -> str:
    """Return `text` so that Markdown shows it and obeys nothing in it."""
    shown = visible(text)
    if len(shown) > LONGEST_VALUE:
        shown = shown[: LONGEST_VALUE - 1] + "…"
    return shown.translate(INERT)


def _head(verdict: Verdict) -> Iterator[str]:
    yield f"### {MARKS[verdict.verdict]} {verdict.verdict} · {inert(status_line(verdict))}"
    yield ""
    first = verdict.first
    if first is None:
        yield inert(verdict.headline)
        return
    yield f"**First divergence: {first.phase}, {inert(place(first))}**"
    yield ""
    yield "| | |"
    yield "|---|---|"
    for leg, value in zip(verdict.legs, (first.a, first.b), strict=True):
        yield f"| {inert(leg.name)} | {inert(value)} |"
    rows = {
        "apart": apart(first),
        "rule": first.rule,
        "clause": first.clause,
        "hint": first.hint or "",
        "also": further(verdict),
        "then": aftermath(verdict.consequences),
    }
    yield from (f"| {key} | {inert(value)} |" for key, value in rows.items() if value)


def _phases(verdict: Verdict) -> Iterator[str]:
    shown = [result for result in verdict.phases if result.status != "not_compared"]
    if not shown:
        return
    yield "| " + " | ".join(f"{STATUS_MARKS[r.status]} {r.phase}" for r in shown) + " |"
    yield "|" + ":-:|" * len(shown)
    yield "| " + " | ".join(_share(result) for result in shown) + " |"
    yield ""


def _share(result: PhaseResult) -> str:
    if result.status == "not_judged":
        return "not judged"
    return percent(result.num_agreeing, result.num_compared)


def _figures(verdict: Verdict) -> Iterator[str]:
    summary = verdict.summary
    parts = [
        f"{summary['num_steps']:,} steps",
        f"{summary['num_examples']:,} examples",
        f"{summary['num_tokens']:,} tokens",
    ]
    for key, words in (
        ("mean_relative_loss_difference", "mean loss difference"),
        ("max_relative_loss_difference", "largest"),
        ("max_relative_grad_norm_difference", "gradient norm"),
    ):
        if summary[key] is not None:
            parts.append(f"{words} {short(summary[key])}")
    yield " · ".join(parts)
    yield ""


def _notes(verdict: Verdict) -> Iterator[str]:
    notes = [f"**{inert(leg.name)}**: {inert(leg.error)}" for leg in verdict.legs if leg.error]
    notes += [inert(reason) for reason in verdict.reasons]
    if verdict.verdict in ("ERROR", "INCONCLUSIVE"):
        notes.append(f"**What to do**: {inert(remedy(verdict))}")
    notes += [f"Note: {inert(warning)}" for warning in verdict.warnings]
    yield from (f"- {note}" for note in notes[:MAX_NOTES])
    if len(notes) > MAX_NOTES:
        yield f"- {len(notes) - MAX_NOTES} more in the JSON verdict"
    if notes:
        yield ""


def _reproduce(verdict: Verdict) -> Iterator[str]:
    yield "<details><summary>Reproduce, and what was compared</summary>"
    yield ""
    verb = "run" if verdict.mode == "train" else "render"
    yield "```console"
    yield f"$ oracle {verb} configs/runs/{_fenced(str(verdict.config['name']))}.toml"
    if verdict.first is not None and verdict.run is not None:
        yield f"$ {_fenced(next_command(verdict))}"
    yield "```"
    yield ""
    yield "| leg | stack | code | trace |"
    yield "|---|---|---|---|"
    for leg in verdict.legs:
        hashes = [(digest or "–")[:12] for digest in (leg.code_sha256, leg.trace_sha256)]
        yield f"| {inert(leg.name)} | {inert(leg.stack or '–')} | {hashes[0]} | {hashes[1]} |"
    yield ""
    yield (
        f"config {str(verdict.config['sha256'])[:12] or '–'} · rules "
        f"{inert(verdict.tolerances['file']) or '–'} {verdict.tolerances['sha256'][:12]} · "
        f"{verdict.purpose} comparison · contract {verdict.contract} · {verdict.created}"
    )
    yield ""
    yield "</details>"


def _fenced(text: str) -> str:
    """Return text that cannot end a code block."""
    return visible(text).replace("`", "'")
