"""The one JSON document of the page: divergences, what the table shows, the packed curves."""

from __future__ import annotations

from typing import Any

from oracle.contract import Divergence, Verdict, phases
from oracle.report import words
from oracle.report.bands import Bands
from oracle.report.series import CURVES, NUMBERS, SPARSE, Series, packed, scales, sparse
from oracle.trace import Trace


def page_data(
    verdict: Verdict,
    traces: tuple[Trace, Trace] | None,
    series: Series | None,
    band: Bands,
    max_bytes: int,
) -> dict[str, Any]:
    """Return the document; `series` is that of `traces`, None when there are no steps.

    Its curves are thinned when they would take more than `max_bytes`.
    """
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
    if traces is None or series is None:
        return document
    must = {item.step for item in verdict.divergences if item.step is not None}
    must |= {result.worst_step for result in verdict.phases if result.worst_step is not None}
    document["series"] = packed(series, band.curves, must, max_bytes)
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
