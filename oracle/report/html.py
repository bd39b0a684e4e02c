"""One verdict as one self-contained page: no request, no framework, nothing executed but our own.

What the page shows is decided here and in `report.tokens`; without `reveal` no text and no ordinary
token id is passed to the template at all.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import jinja2
from markupsafe import Markup, escape

from oracle.align import example_rows
from oracle.contract import Divergence, Verdict, phases
from oracle.report import words
from oracle.report.bands import Bands, bands
from oracle.report.facts import echo_rows, flat_texts, provenance_rows
from oracle.report.json import encode
from oracle.report.series import CURVES, NUMBERS, SPARSE, packed, paired, scales, sparse
from oracle.report.tokens import Example, Names, example
from oracle.trace import Trace

HERE = Path(__file__).parent
SCRIPTS = ("series.js", "chart.js", "page.js")
EXAMPLE_PHASES = ("text", "ids", "mask")
MAX_EXAMPLES = 8


@dataclass(frozen=True, kw_only=True)
class ShownExample:
    """An example that diverges, with the divergence that names it."""

    divergence: Divergence
    example: Example


def render(verdict: Verdict, a: Trace | None, b: Trace | None, *, reveal: bool) -> str:
    """Return the page of `verdict`; traces give curves, tokens and facts, when they are there."""
    traces = None if a is None or b is None else (a, b)
    style = (HERE / "page.css").read_text("utf-8")
    script = "\n".join((HERE / name).read_text("utf-8") for name in SCRIPTS)
    band = bands(verdict, *traces) if traces else Bands(curves={}, note=None)
    return _template().render(
        verdict=verdict,
        phases=phases(),
        results={result.phase: result for result in verdict.phases},
        echo=echo_rows(*traces) if traces else [],
        provenance=provenance_rows(verdict, a, b),
        floor=flat_texts(verdict.floor["provenance"]) if verdict.floor else {},
        examples=_examples(verdict, *traces, reveal=reveal) if traces else [],
        has_steps=traces is not None and any(t.steps.height for t in traces),
        band_note=band.note,
        reveal=reveal,
        words=words,
        style=Markup(style),
        script=Markup(script),
        policy=_policy(style, script),
        data=_script_safe(_data(verdict, traces, band)),
    )


@cache
def _template() -> jinja2.Template:
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(HERE),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["visible"] = words.visible
    environment.filters["short"] = words.short
    environment.filters["ticked"] = _ticked
    return environment.get_template("verdict.html.jinja")


def _ticked(text: str) -> Markup:
    """Return `text` escaped, what stands between backticks as code."""
    parts = [escape(part) for part in words.visible(text).split("`")]
    spans = [
        Markup("<code>{}</code>").format(part) if place % 2 and place < len(parts) - 1 else part
        for place, part in enumerate(parts)
    ]
    return Markup("").join(spans)


def _policy(style: str, script: str) -> str:
    """Content security policy: our style and script by hash, images from the page, nothing else."""
    hashes = [
        base64.b64encode(hashlib.sha256(text.encode("utf-8")).digest()).decode("ascii")
        for text in (style, script)
    ]
    return (
        f"default-src 'none'; style-src 'sha256-{hashes[0]}'; script-src 'sha256-{hashes[1]}'; "
        "img-src data:; base-uri 'none'; form-action 'none'"
    )


def _script_safe(document: Mapping[str, Any]) -> Markup:
    """Return JSON that cannot end its script element, whatever its strings hold."""
    text = json.dumps(encode(document), separators=(",", ":"), allow_nan=False)
    for character in "<>&":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return Markup(text)


def _data(verdict: Verdict, traces: tuple[Trace, Trace] | None, band: Bands) -> dict[str, Any]:
    first = verdict.first
    document: dict[str, Any] = {
        "legs": [leg.name for leg in verdict.legs],
        "precision": verdict.config["precision"] or "float64",
        "first": None if first is None else first.id,
        "divergences": [_brief(item) for item in verdict.divergences],
        "worst": next((r.worst_step for r in verdict.phases if r.phase == "loss"), None),
        "fields": _fields(),
        "series": None,
    }
    if traces is None or not any(trace.steps.height for trace in traces):
        return document
    series = paired(*traces)
    must = {item.step for item in verdict.divergences if item.step is not None}
    must |= {result.worst_step for result in verdict.phases if result.worst_step is not None}
    document["series"] = packed(series, band.curves, must)
    document["sparse"] = sparse(*traces)
    document["scales"] = scales(series)
    return document


def _brief(item: Divergence) -> dict[str, Any]:
    return {
        "id": item.id,
        "phase": item.phase,
        "step": item.step,
        "field": item.field,
        "rule": words.visible(item.rule),
        "clause": item.clause,
        "words": f"{item.phase}: {words.place(item)}",
    }


def _fields() -> list[dict[str, Any]]:
    """The rows of the table at a step, in causal order: field, phase, clause, kind."""
    kinds = dict.fromkeys(NUMBERS, "number") | dict.fromkeys(SPARSE, "sparse")
    rows = []
    for phase in phases():
        for field in phase.fields:
            table, _, name = field.partition(".")
            if table == "steps" and name != "step":
                rows.append(
                    {
                        "name": name,
                        "phase": phase.name,
                        "clause": phase.clause,
                        "kind": kinds.get(name, "equal"),
                        "exact": phase.exact or name == "eval_targets",
                        "chart": name in CURVES,
                    }
                )
    return rows


def _examples(verdict: Verdict, a: Trace, b: Trace, *, reveal: bool) -> list[ShownExample]:
    """The diverging examples in causal order, each once, at most MAX_EXAMPLES."""
    wanted: dict[str, Divergence] = {}
    for item in verdict.divergences:
        if item.phase in EXAMPLE_PHASES and item.example is not None:
            wanted.setdefault(item.example, item)
    ids = list(wanted)[:MAX_EXAMPLES]
    if not ids:
        return []
    left, right = example_rows(a, ids), example_rows(b, ids)
    names = Names.of(a, reveal=reveal), Names.of(b, reveal=reveal)
    return [
        ShownExample(divergence=wanted[id], example=example(names, (left[id], right[id])))
        for id in ids
        if id in left and id in right
    ]
