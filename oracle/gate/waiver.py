"""What falls short held against the waivers of a policy: covered, by whom, and which are unused.

A waiver of a phase covers divergences of that phase, each of which must match; what it explains
stays a shortfall unless the waiver says `consequences = true`. A verdict that is not AGREE or
DIVERGED, one with a reason for which something could not be judged, and numbers of steps or
examples are beyond every waiver.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date

from oracle.contract import Divergence, Verdict
from oracle.gate.policy import Required, Waiver
from oracle.gate.threshold import Shortfall, measured_of, of_phase, parted_phases, shortfalls
from oracle.outcome import phase


@dataclass(frozen=True, kw_only=True)
class Held:
    """Shortfalls of one run: those that stay, those that a waiver covers, and the waivers used."""

    open: tuple[Shortfall, ...]
    waived: tuple[tuple[Shortfall, Waiver], ...]
    used: frozenset[int]


def hold(verdict: Verdict, required: Required, waivers: Sequence[Waiver], *, today: date) -> Held:
    """Hold the shortfalls of a verdict against the waivers; an expired one covers nothing.

    `used` are places in `waivers` of those that matched anything, expired ones included.
    """
    mine = {i: w for i, w in enumerate(waivers) if w.concerns(required)}
    by_phase: dict[str, list[int]] = {}
    for place, waiver in mine.items():
        if waiver.phase is not None:
            by_phase.setdefault(waiver.phase, []).append(place)
    covered: dict[str, tuple[int, ...]] = {}
    used: set[int] = set()
    for name, places in by_phase.items():
        found, whole = _cover(name, verdict, {i: mine[i] for i in places}, today)
        used |= found
        if whole:
            covered[name] = whole
    explained = _explaining(covered, mine, verdict)
    still: list[Shortfall] = []
    waived: list[tuple[Shortfall, Waiver]] = []
    for short in shortfalls(measured_of(verdict), required):
        if short.kind == "limit":
            by = _limit_waiver(short, mine, used, today)
        else:
            by = _by_whom(short, verdict, required, covered, explained, mine)
        if by is None:
            still.append(short)
        else:
            waived.append((short, mine[by]))
    return Held(open=tuple(still), waived=tuple(waived), used=frozenset(used))


def _cover(
    name: str, verdict: Verdict, waivers: Mapping[int, Waiver], today: date
) -> tuple[set[int], tuple[int, ...]]:
    """Return which waivers match something of a phase, and those that together cover it whole."""
    result = next(entry for entry in verdict.phases if entry.phase == name)
    found = [entry for entry in verdict.divergences if entry.phase == name]
    if not found:
        # It parts only as a consequence of an earlier phase: a waiver of the whole phase covers it.
        num_parted = result.num_compared - result.num_agreeing
        used = {i for i, w in waivers.items() if num_parted and not _pattern(w)}
        fit = [i for i in used if _holds(waivers[i], num_parted, today)]
        return used, tuple(fit[:1])
    used, counts, whole = set(), dict.fromkeys(waivers, 0), True
    for entry in found:
        matching = [i for i, w in waivers.items() if _matches(w, entry)]
        used |= set(matching)
        fit = [i for i in matching if _holds(waivers[i], 0, today)]
        whole = whole and bool(fit)
        for place in fit[:1]:
            counts[place] += 1 + entry.num_like_it
    taken = [i for i, num in counts.items() if num]
    whole = whole and all(_holds(waivers[i], counts[i], today) for i in taken)
    return used, tuple(taken) if whole else ()


def _matches(waiver: Waiver, entry: Divergence) -> bool:
    """Whether a divergence, with those like it that are not listed, is what a waiver names.

    A number that is there or finite in one leg alone is beyond every waiver: no limit bounds it.
    """
    if entry.relative is None and not phase(entry.phase).exact:
        return False
    if waiver.field not in (None, entry.field):
        return False
    for wanted, place in ((waiver.example, entry.example), (waiver.tensor, entry.tensor)):
        if wanted is not None and (wanted != place or entry.num_like_it):
            return False
    return True


def _pattern(waiver: Waiver) -> bool:
    return (waiver.field, waiver.example, waiver.tensor) != (None, None, None)


def _holds(waiver: Waiver, num: int, today: date) -> bool:
    return today <= waiver.expires and (waiver.at_most is None or num <= waiver.at_most)


def _explaining(
    covered: Mapping[str, tuple[int, ...]], mine: Mapping[int, Waiver], verdict: Verdict
) -> dict[str, int]:
    """Return the parted phases whose waiver also covers what follows from them."""
    parted = parted_phases(measured_of(verdict))
    return {
        name: places[0]
        for name, places in covered.items()
        if name in parted and all(mine[place].consequences for place in places)
    }


def _by_whom(
    short: Shortfall,
    verdict: Verdict,
    required: Required,
    covered: Mapping[str, tuple[int, ...]],
    explained: Mapping[str, int],
    mine: Mapping[int, Waiver],
) -> int | None:
    """Return the waiver that covers a shortfall of a phase, or None."""
    if short.phase is None:
        return None
    if short.kind == "agreement" and short.phase in covered:
        return covered[short.phase][0]
    result = next(entry for entry in verdict.phases if entry.phase == short.phase)
    for name, place in explained.items():
        left = [s for s in of_phase(result, required, explained={name}) if s.kind == short.kind]
        if not left:
            return place
    return None


def _limit_waiver(
    short: Shortfall, mine: Mapping[int, Waiver], used: set[int], today: date
) -> int | None:
    assert short.value is not None, "a limit is held against a number"
    for place, waiver in mine.items():
        if waiver.threshold == short.name:
            used.add(place)
            assert waiver.up_to is not None, "a waiver of a threshold has up_to"
            if today <= waiver.expires and short.value <= waiver.up_to:
                return place
    return None
