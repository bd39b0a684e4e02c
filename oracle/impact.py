"""What a divergence costs: paired differences over seeds, with intervals, ranked.

A fault is measured against the clean run of the same stack, config and seed, so that what the seed
does cancels. The held-out loss is that of the delivered weights in the clean stack: a faulty leg's
own evaluation would render, mask or average with the fault in it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

CONFIDENCE = 0.95


@dataclass(frozen=True, kw_only=True)
class Losses:
    """What one training run came to, in nats per target token.

    `held_out`: loss of the final weights on the held-out split, in the clean stack. `final`: mean
    training loss of the last steps, as the leg itself recorded it.
    """

    held_out: float
    final: float


@dataclass(frozen=True, kw_only=True)
class Interval:
    """Mean of n paired differences with the half width of its Student interval."""

    mean: float
    half_width: float
    num: int

    @property
    def excludes_zero(self) -> bool:
        """Whether the interval lies on one side of 0."""
        return abs(self.mean) > self.half_width

    def __str__(self) -> str:
        return f"{self.mean:+.3g} ± {self.half_width:.2g}"


@dataclass(frozen=True, kw_only=True)
class Impact:
    """What one fault costs, against the clean runs of the same seeds."""

    fault: str
    title: str
    phase: str
    held_out: Interval
    final: Interval


def interval(differences: Sequence[float]) -> Interval:
    """Return mean and Student interval of paired differences.

    half width = t(0.975, n - 1) · s / sqrt(n), s the sample standard deviation. A difference that
    is not finite makes both infinite. Raises ValueError for fewer than two.
    """
    n = len(differences)
    if n < 2:
        raise ValueError(f"{n} seeds give no interval; 2 or more are needed, 3 are asked for")
    if not all(map(math.isfinite, differences)):
        return Interval(mean=math.inf, half_width=math.inf, num=n)
    from scipy.stats import t  # 1 s to import

    mean = math.fsum(differences) / n
    spread = math.sqrt(math.fsum((d - mean) ** 2 for d in differences) / (n - 1))
    quantile = float(t.ppf((1 + CONFIDENCE) / 2, n - 1))
    return Interval(mean=mean, half_width=quantile * spread / math.sqrt(n), num=n)


def impact(
    fault: str,
    title: str,
    phase: str,
    *,
    clean: Mapping[int, Losses],
    faulty: Mapping[int, Losses],
) -> Impact:
    """Pair the runs of a fault with the clean ones by seed."""
    if clean.keys() < faulty.keys():
        raise ValueError(f"{fault}: seeds {sorted(faulty.keys() - clean.keys())} have no clean run")
    return Impact(
        fault=fault,
        title=title,
        phase=phase,
        held_out=interval([faulty[s].held_out - clean[s].held_out for s in sorted(faulty)]),
        final=interval([faulty[s].final - clean[s].final for s in sorted(faulty)]),
    )


def ranked(impacts: Sequence[Impact]) -> list[Impact]:
    """Return the dearest fault first: by the size of the mean held-out difference."""
    return sorted(impacts, key=lambda one: (-abs(one.held_out.mean), one.fault))


def weight(of: Sequence[Impact], against: Sequence[Impact]) -> float | None:
    """Return how many times the mean size of one group's impact is that of another's."""
    sizes = [
        [abs(one.held_out.mean) for one in group if math.isfinite(one.held_out.mean)]
        for group in (of, against)
    ]
    if not all(sizes) or sum(sizes[1]) == 0:
        return None
    return (sum(sizes[0]) / len(sizes[0])) / (sum(sizes[1]) / len(sizes[1]))
