"""The tolerance of every step of a chart, from the rule file and the floor that the verdict names.

A file that is gone or has changed since the verdict draws no band, and the page says so.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from oracle.align import align_steps
from oracle.compare_numbers import limits, scalar_cells
from oracle.contract import ROOT, Verdict
from oracle.errors import OracleError
from oracle.floor import Floor, holding, leg_provenance, read_floor
from oracle.report.curves import Array
from oracle.tolerance import Tolerances, load_tolerances
from oracle.trace import Trace

COLUMNS = ("loss", "grad_norm", "lr", "clip_factor", "param_norm")


@dataclass(frozen=True, kw_only=True)
class Bands:
    """Allowed relative difference (N,) by column of `steps`, nan where nothing is judged."""

    curves: Mapping[str, Array]
    note: str | None


def bands(verdict: Verdict, a: Trace, b: Trace) -> Bands:
    """Return the tolerance curves over the union of both legs' steps, or a note why there are none.

    The floor that `verdict.floor` names is used as far as it holds for the two traces.
    """
    try:
        tolerances = _tolerances(verdict)
        floor = _floor(verdict, a, b)
    except OracleError as error:
        return Bands(curves={}, note=f"No tolerance band is drawn: {error}")
    frame = align_steps(a, b)
    exact = verdict.purpose == "self" and floor is None
    curves = {}
    for found in scalar_cells(frame):
        column = found.field.partition(".")[2]
        if column in COLUMNS:
            band = np.full(frame.height, np.nan)
            places = np.searchsorted(frame["step"].to_numpy(), found.steps)
            band[places] = limits(found, tolerances, floor, exact=exact)
            curves[column] = band
    return Bands(curves=curves, note=None)


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
