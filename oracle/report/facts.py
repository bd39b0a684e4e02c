"""The echo and provenance of two trace headers as flat rows, A beside B (S-25)."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from oracle.contract import Verdict
from oracle.report.words import visible
from oracle.trace import Trace

WHOLE = ("parameters",)  # one row an entry, not one row a leaf: a model has hundreds
MAX_EQUAL_ROWS = 600
MAX_CHARACTERS = 200


@dataclass(frozen=True, kw_only=True)
class Row:
    """One fact of both legs, as shown; `equal` is of the values, not of what is shown."""

    name: str
    a: str
    b: str
    equal: bool


def echo_rows(a: Trace, b: Trace) -> list[Row]:
    """Rows of the facts in order of name, differing ones never left out."""
    return _rows(_flat(a.header["facts"]), _flat(b.header["facts"]))


def provenance_rows(verdict: Verdict, a: Trace | None, b: Trace | None) -> list[Row]:
    """Rows of the provenance; from the verdict's own record of a leg whose trace is not there."""
    columns = []
    for leg, trace in zip(verdict.legs, (a, b), strict=True):
        record: dict[str, Any] = {
            "stack": leg.stack,
            "code_sha256": leg.code_sha256,
            "versions": dict(leg.versions),
            "trace": leg.trace,
        }
        columns.append(_flat(record | (trace.header["provenance"] if trace else {})))
    return _rows(*columns)


def flat_texts(document: Mapping[str, Any]) -> dict[str, str]:
    """A document as dotted names and texts, both as shown."""
    flat = _flat(document)
    return {visible(name): _shown(flat, name) for name in flat}


def _rows(left: Mapping[str, Any], right: Mapping[str, Any]) -> list[Row]:
    rows = [
        Row(
            name=visible(name),
            a=_shown(left, name),
            b=_shown(right, name),
            equal=name in left and name in right and left[name] == right[name],
        )
        for name in _ordered([*left, *right])
    ]
    equal = [row for row in rows if row.equal]
    dropped = {row.name for row in equal[MAX_EQUAL_ROWS:]}
    return [row for row in rows if not row.equal or row.name not in dropped]


def _ordered(names: list[str]) -> list[str]:
    """Each name once, those of one group (`versions.…`) together, groups as they first appear."""
    groups: dict[str, dict[str, None]] = {}
    for name in names:
        groups.setdefault(name.partition(".")[0], {})[name] = None
    return [name for group in groups.values() for name in group]


def _flat(value: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for key, item in value.items():
        name = f"{prefix}{key}"
        if isinstance(item, Mapping) and prefix.rstrip(".") not in WHOLE:
            flat |= _flat(item, f"{name}.")
        else:
            flat[name] = item
    return flat


def _shown(column: Mapping[str, Any], name: str) -> str:
    if name not in column:
        return "absent"
    value = column[name]
    text = value if isinstance(value, str) else json.dumps(value, separators=(", ", ": "))
    text = visible(text)
    return text if len(text) <= MAX_CHARACTERS else f"{text[: MAX_CHARACTERS - 1]}…"
