"""The tolerance of every step of a chart, from the rule file and the floor that the verdict names.

A file that is gone or has changed since the verdict draws no band, and the page says so.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from oracle.align import align_steps
from oracle.compare_numbers import Cells, limits, scalar_cells
from oracle.contract import ROOT, Verdict
from oracle.errors import OracleError
from oracle.floor import Floor, holding, leg_provenance, read_floor
from oracle.report.curves import Array
from oracle.tolerance import Tolerances, load_tolerances
from oracle.trace import Trace

COLUMNS = ("loss", "grad_norm", "lr", "clip_factor", "param_norm")


@dataclass(frozen=True, kw_only=True)
class Closest:
    """The judged value that comes nearest to its limit, `share` of it (0 where all are equal)."""

    phase: str
    field: str
    step: int
    share: float

    @property
    def words(self) -> str:
        """`34 × under`, rounded down; `all equal`."""
        if self.share == 0:
            return "all equal"
        room = 1 / self.share
        digits = 0 if room >= 10 else 1
        return f"{math.floor(room * 10**digits) / 10**digits:,.{digits}f} × under"


@dataclass(frozen=True, kw_only=True)
class Bands:
    """Allowed relative difference (N,) by column of `steps`, nan where nothing is judged."""

    curves: Mapping[str, Array]
    note: str | None
    closest: Closest | None = None


def bands(verdict: Verdict, a: Trace, b: Trace) -> Bands:
    """Return the tolerance curves over the union of both legs' steps, or a note why there are none.

    The floor that `verdict.floor` names is used as far as it holds for the two traces.
    """
    try:
        tolerances, floor, exact = judged_by(verdict, a, b)
    except OracleError as error:
        return Bands(curves={}, note=f"No tolerance band is drawn: {error}")
    frame = align_steps(a, b)
    curves = {}
    near: list[Closest] = []
    for found in scalar_cells(frame):
        column = found.field.partition(".")[2]
        if column in COLUMNS:
            band = np.full(frame.height, np.nan)
            places = np.searchsorted(frame["step"].to_numpy(), found.steps)
            band[places] = limits(found, tolerances, floor, exact=exact)
            curves[column] = band
            near += _closest(found, band[places])
    return Bands(
        curves=curves, note=None, closest=max(near, key=lambda one: one.share, default=None)
    )


def judged_by(verdict: Verdict, a: Trace, b: Trace) -> tuple[Tolerances, Floor | None, bool]:
    """Return rules and floor that the verdict names, and whether nothing may differ at all.

    Raises OracleError when a file is gone or has changed since.
    """
    floor = _floor(verdict, a, b)
    return _tolerances(verdict), floor, verdict.purpose == "self" and floor is None


def _closest(found: Cells, allowed: Array) -> list[Closest]:
    """The cell of one field that is nearest to its limit, if any is judged."""
    judged = np.flatnonzero(np.isfinite(found.relative) & (allowed > 0))
    if not len(judged):
        return []
    shares = found.relative[judged] / allowed[judged]
    place = int(np.argmax(shares))
    return [
        Closest(
            phase=found.phase,
            field=found.field.partition(".")[2],
            step=int(found.steps[judged[place]]),
            share=float(shares[place]),
        )
    ]


def _tolerances(verdict: Verdict) -> Tolerances:
    named = verdict.tolerances
    found = load_tolerances(ROOT / named["file"])
    if found.sha256 != named["sha256"]:
        raise OracleError(
            f"{named['file']} has the hash {found.sha256[:12]} now and the verdict was made with "
            f"{named['sha256'][:12]}."
        )
    return found


def _floor(verdict: Verdict, a: Trace, b: Trace) -> Floor | None:
    if verdict.floor is None:
        return None
    path = Path(verdict.floor["file"])
    path = path if path.exists() else ROOT / path
    found = read_floor(path)
    if found.sha256 != verdict.floor["sha256"]:
        raise OracleError(
            f"the floor {path.name} has the hash {found.sha256[:12]} now and the verdict was made "
            f"with {verdict.floor['sha256'][:12]}."
        )
    headers = (a.header, b.header)
    kept, _ = holding(
        found,
        config_sha256=[header["config_sha256"] for header in headers],
        legs=[(header["provenance"]["stack"], leg_provenance(header)) for header in headers],
    )
    return kept
