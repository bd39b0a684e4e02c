"""A verdict as the document of `verdict.schema.json`, and back.

Floats round-trip by repr; what is not finite is written as a string (S-24).
"""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Mapping
from typing import Any

from oracle.contract import Consequence, Divergence, LegRecord, PhaseResult, Verdict
from oracle.document import violation
from oracle.errors import OracleError

NON_FINITE = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}
PLAIN = (
    *("verdict", "purpose", "mode", "headline", "run", "created", "config", "tolerances"),
    *("floor", "contract"),
)
NUMBERS_OF_DIVERGENCE = ("absolute", "relative", "ulps", "allowed")
NUMBERS_OF_SUMMARY = (
    "mean_relative_loss_difference",
    "max_relative_loss_difference",
    "max_relative_grad_norm_difference",
)


def dumps(verdict: Verdict) -> str:
    """Return the JSON document of `verdict`, in ASCII; raises OracleError when off the schema."""
    document = encode(dataclasses.asdict(verdict) | {"exit_code": verdict.exit_code})
    _validate(document)
    return json.dumps(document, indent=1, allow_nan=False) + "\n"


def loads(text: str) -> Verdict:
    """Read a document of `dumps`; raises OracleError when it is not one."""
    try:
        document = json.loads(text)
    except json.JSONDecodeError as error:
        raise OracleError(
            f"verdict is not JSON: {error.msg} at line {error.lineno}, column {error.colno}; "
            "compare the traces again"
        ) from None
    _validate(document)
    verdict = _verdict(document)
    if document["exit_code"] != verdict.exit_code:
        raise OracleError(
            f"verdict {verdict.verdict} demands exit code {verdict.exit_code}, the document says "
            f"{document['exit_code']}; it was edited: compare the traces again"
        )
    return verdict


def encode(value: Any) -> Any:
    """Return `value` in JSON's types: tuples as lists, floats that are not finite as strings."""
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else ("Infinity" if value > 0 else "-Infinity")
    if isinstance(value, Mapping):
        return {str(key): encode(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [encode(item) for item in value]
    return value


def _validate(document: Any) -> None:
    if (reason := violation(document, "verdict")) is not None:
        raise OracleError(f"verdict: {reason} (verdict.schema.json); compare the traces again.")


def _numbers(row: Mapping[str, Any], names: tuple[str, ...]) -> dict[str, Any]:
    return dict(row) | {
        name: NON_FINITE[row[name]] if isinstance(row[name], str) else row[name] for name in names
    }


def _divergence(row: Mapping[str, Any]) -> Divergence:
    values = _numbers(row, NUMBERS_OF_DIVERGENCE)
    values["diff"] = None if row["diff"] is None else tuple(row["diff"])
    return Divergence(**values)


def _verdict(document: Mapping[str, Any]) -> Verdict:
    first, second = (LegRecord(**leg) for leg in document["legs"])
    return Verdict(
        **{name: document[name] for name in PLAIN},
        legs=(first, second),
        first=None if document["first"] is None else _divergence(document["first"]),
        divergences=tuple(_divergence(row) for row in document["divergences"]),
        consequences=tuple(Consequence(**row) for row in document["consequences"]),
        phases=tuple(
            PhaseResult(**_numbers(row, ("worst_relative",))) for row in document["phases"]
        ),
        reasons=tuple(document["reasons"]),
        warnings=tuple(document["warnings"]),
        summary=_numbers(document["summary"], NUMBERS_OF_SUMMARY),
    )
