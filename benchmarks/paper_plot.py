"""Plots of the paper run: losses of both stacks, and residuals on a log scale under floor and rule.

Every step is drawn as it is: smoothing would erase the first divergence. Equal values have no place
on a log scale; they are counted in the legend.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from oracle.tolerance import Floats

NAMES = {"loss": "loss", "grad_norm": "gradient norm"}
INK, FIRST, SECOND, BAND = "#444444", "#0b6e99", "#c4541b", "#dfe8d8"


@dataclass(frozen=True, kw_only=True, eq=False)
class Series:
    """One field over N steps: both legs, relative difference, floor and what the rule allows."""

    field: str
    a: Floats
    b: Floats
    difference: Floats
    floor: Floats
    limit: Floats


def draw(series: list[Series], path: Path) -> None:
    """Draw the panels one under the other, steps on one axis, and write a PNG."""
    mpl.use("agg")
    figure = Figure(figsize=(9, 3 * (1 + len(series))), dpi=110, layout="constrained")
    axes = figure.subplots(1 + len(series), 1, sharex=True)
    _losses(axes[0], next(entry for entry in series if entry.field == "loss"))
    for place, entry in enumerate(series, start=1):
        _residual(axes[place], entry)
    axes[-1].set_xlabel("step")
    figure.savefig(path, metadata={"Software": None})


def _losses(axes: Axes, loss: Series) -> None:
    steps = np.arange(len(loss.a))
    axes.plot(steps, loss.a, color=FIRST, linewidth=0.5, label="PyTorch")
    axes.plot(steps, loss.b, color=SECOND, linewidth=0.5, linestyle=(0, (4, 4)), label="JAX")
    axes.set_ylabel("loss")
    axes.legend(loc="upper right", frameon=False)


def _residual(axes: Axes, entry: Series) -> None:
    steps = np.arange(len(entry.a))
    apart = entry.difference > 0
    axes.fill_between(
        steps, 1e-18, entry.limit, color=BAND, linewidth=0, label="allowed by the rule"
    )
    axes.plot(steps, entry.floor, color=INK, linewidth=1, label="noise floor")
    axes.plot(
        steps[apart],
        entry.difference[apart],
        linestyle="none",
        marker=".",
        markersize=1.5,
        color=FIRST,
        label=f"PyTorch against JAX ({int((~apart).sum()):,} of {len(steps):,} steps are equal)",
    )
    axes.set_yscale("log")
    axes.set_ylim(1e-17, 30 * float(entry.limit.max()))  # room for the legend
    axes.set_ylabel(f"relative difference\nof the {NAMES[entry.field]}")
    axes.legend(loc="upper left", frameon=False, fontsize="small", ncols=3, markerscale=6)
