"""Whether two verdicts on the same traces say the same: numbers to nine digits, the rest exactly.

Sums may round otherwise on another machine; nothing else may differ.
"""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Mapping, Sequence
from typing import Any

from oracle.contract import Verdict
from oracle.report.json import encode

FIELDS = (
    *("verdict", "phases", "first", "divergences", "consequences", "summary", "reasons"),
    *("mode", "purpose"),
)
RELATIVE = 1e-9
ABSOLUTE = 1e-18  # relative differences of rounding size are sums of a few units of 1e-16


def difference(stored: Verdict, fresh: Verdict) -> tuple[str, str, str] | None:
    """Return field, stored value and fresh value of the first difference, or None."""
    documents = [encode(dataclasses.asdict(one)) for one in (stored, fresh)]
    for field in FIELDS:
        found = _first(field, documents[0][field], documents[1][field])
        if found is not None:
            return found
    return None


def _first(where: str, a: Any, b: Any) -> tuple[str, str, str] | None:
    if isinstance(a, Mapping) and isinstance(b, Mapping) and a.keys() == b.keys():
        pairs = [(f"{where}.{key}", a[key], b[key]) for key in a]
    elif isinstance(a, Sequence) and isinstance(b, Sequence) and _same_length(a, b):
        pairs = [(f"{where}.{_name(one, i)}", one, b[i]) for i, one in enumerate(a)]
    else:
        return None if _equal(a, b) else (where, _shown(a), _shown(b))
    return next((found for pair in pairs if (found := _first(*pair)) is not None), None)


def _same_length(a: Sequence[Any], b: Sequence[Any]) -> bool:
    return not isinstance(a, str) and not isinstance(b, str) and len(a) == len(b)


def _name(entry: Any, place: int) -> str:
    return str(entry["phase"]) if isinstance(entry, Mapping) and "phase" in entry else str(place)


def _equal(a: Any, b: Any) -> bool:
    if isinstance(a, float) and isinstance(b, float):
        return math.isclose(a, b, rel_tol=RELATIVE, abs_tol=ABSOLUTE)
    return bool(a == b)


def _shown(value: Any) -> str:
    if isinstance(value, (Mapping, list)):
        return f"{len(value)} entries"
    return json.dumps(value)
