"""One verdict as one self-contained page: no request, no framework, nothing executed but our own.

What the page shows is decided here and in `report.tokens`; without `reveal` no text and no ordinary
token id is passed to the template at all.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any

import jinja2
from markupsafe import Markup, escape

from oracle.align import example_rows
from oracle.contract import Divergence, Verdict, phases
from oracle.errors import OracleError
from oracle.report import words
from oracle.report.bands import Bands, bands
from oracle.report.clause import titled
from oracle.report.data import page_data
from oracle.report.facts import Row, echo_rows, flat_texts, provenance_rows
from oracle.report.json import encode
from oracle.report.series import paired
from oracle.report.tensors import Row as TensorRow
from oracle.report.tensors import Tensors
from oracle.report.tensors import tensors as tensors_of
from oracle.report.tokens import MAX_CELLS, Example, Names, example
from oracle.trace import Trace

PAGE = Path(__file__).parent / "page"
SCRIPTS = (
    *("series.js", "axis.js", "chart.js", "map.js"),
    *("table.js", "view.js", "gestures.js", "page.js"),
)
MAX_PAGE_BYTES = 1_000_000
BYTES_OF_PAGE = 120_000  # style, script, headline, strip, divergences
BYTES_OF_FACT, BYTES_OF_CELL, BYTES_OF_PIECE = 300, 330, 120
GLYPHS = {
    "agree": "✓",
    "diverged": "✕",
    "consequence": "↳",
    "not_judged": "?",
    "not_compared": "–",
}
EXAMPLE_PHASES = ("text", "ids", "mask")
MAX_EXAMPLES = 8
CELLS_OF_OTHERS = 80  # of each example but the first, which has `tokens.MAX_CELLS`


@dataclass(frozen=True, kw_only=True)
class ShownExample:
    """An example that diverges, with the divergence that names it."""

    divergence: Divergence
    example: Example


def render(verdict: Verdict, a: Trace | None, b: Trace | None, *, reveal: bool) -> str:
    """Return the page of `verdict`; traces give curves, tokens and facts, when they are there."""
    template = environment().get_template("verdict.html.jinja")
    return template.render(context(verdict, a, b, reveal=reveal))


def context(
    verdict: Verdict, a: Trace | None, b: Trace | None, *, reveal: bool, base: str = ""
) -> dict[str, Any]:
    """Return what `verdict.html.jinja` shows; `base` is the address of the page, if it has one.

    A template that extends it gives the same to `environment`'s loader and fills the block `nav`.
    """
    traces = None if a is None or b is None else (a, b)
    echo = echo_rows(*traces) if traces else []
    provenance = provenance_rows(verdict, a, b)
    examples = _examples(verdict, *traces, reveal=reveal) if traces else []
    tensors = _tensors(verdict, *traces) if traces else None
    rows: list[Row | TensorRow] = [*echo, *provenance, *(tensors.rows if tensors else ())]
    room = MAX_PAGE_BYTES - _num_bytes(rows, examples)
    style = (PAGE / "page.css").read_text("utf-8")
    script = "\n".join((PAGE / name).read_text("utf-8") for name in SCRIPTS)
    series = paired(*traces) if traces and any(t.steps.height for t in traces) else None
    band = bands(verdict, *traces) if traces else Bands(curves={}, note=None)
    return {
        "verdict": verdict,
        "first": verdict.first,
        "names": [words.visible(leg.name) for leg in verdict.legs],
        "phases": phases(),
        "results": {result.phase: result for result in verdict.phases},
        "closest": band.closest,
        "echo": echo,
        "provenance": provenance,
        "floor": flat_texts(verdict.floor["provenance"]) if verdict.floor else {},
        "examples": examples,
        "tensors": tensors,
        "has_steps": series is not None,
        "band_note": band.note,
        "reveal": reveal,
        "example_phases": EXAMPLE_PHASES,
        "words": words,
        "glyphs": GLYPHS,
        "base": base,
        "style": Markup(style),
        "script": Markup(script),
        "policy": _policy(style, script),
        "data": _script_safe(page_data(verdict, traces, series, band, room)),
    }


def _tensors(verdict: Verdict, a: Trace, b: Trace) -> Tensors | None:
    try:
        return tensors_of(verdict, a, b)
    except OracleError:
        return None  # the note on the bands says why


def _num_bytes(facts: Sequence[Row | TensorRow], examples: Sequence[ShownExample]) -> int:
    """Bytes that the page takes without its curves, rather too many than too few."""
    texts = sum(len(row.name) + len(row.a) + len(row.b) for row in facts)
    pieces = sum(
        BYTES_OF_PIECE + len(piece.text_a or "") + len(piece.text_b or "")
        for shown in examples
        for piece in shown.example.pieces
    )
    cells = sum(len(shown.example.cells) for shown in examples)
    return (
        BYTES_OF_PAGE + 2 * texts + BYTES_OF_FACT * len(facts) + 2 * pieces + BYTES_OF_CELL * cells
    )


@cache
def environment() -> jinja2.Environment:
    """Return the environment that the page's templates need: strict, everything escaped."""
    made = jinja2.Environment(
        loader=jinja2.FileSystemLoader(PAGE),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters["visible"] = words.visible
    made.filters["short"] = words.short
    made.filters["clause"] = titled
    made.filters["ticked"] = _ticked
    made.filters["moment"] = _moment
    made.filters["breakable"] = _breakable
    return made


def _moment(text: str) -> str:
    """`2026-12-01 03:44 UTC` of an ISO time; anything else as it stands."""
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        return words.visible(text)
    if found.tzinfo is None:
        return words.visible(text)
    return f"{found.astimezone(UTC):%Y-%m-%d %H:%M} UTC"


def _breakable(name: str) -> Markup:
    """Return a name that may be broken after an underscore."""
    return Markup("_<wbr>").join(escape(part) for part in name.split("_"))


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
    both = [id for id in ids if id in left and id in right]
    most = [MAX_CELLS, *[CELLS_OF_OTHERS] * MAX_EXAMPLES]
    return [
        ShownExample(
            divergence=wanted[id], example=example(names, (left[id], right[id]), max_cells=cells)
        )
        for id, cells in zip(both, most, strict=False)
    ]
