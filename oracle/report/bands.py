"""The tolerance of every step of a chart, from the rule file and the floor that the verdict names.

A file that has changed since the verdict draws nothing: the page then says so.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from oracle.contract import Verdict
from oracle.report.curves import Array
from oracle.trace import Trace


@dataclass(frozen=True, kw_only=True)
class Bands:
    """Allowed relative difference (N,) by column of `steps`, nan where nothing is judged."""

    curves: Mapping[str, Array]
    note: str | None


def bands(verdict: Verdict, a: Trace, b: Trace) -> Bands:
    """Return the tolerance curves of the charts over the union of both legs' steps."""
    return Bands(curves={}, note=None)
