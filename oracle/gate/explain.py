"""What each threshold of a policy would have let through: of this run, and of the planted faults.

The faults are those of `faults/table.json`, each tried in a run of ten steps. A threshold is asked
alone (what would pass if it were the only one), then all are asked together.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from oracle.contract import ROOT, PhaseResult, phases
from oracle.document import as_float, loads
from oracle.errors import ConfigError
from oracle.files import read_text
from oracle.gate.judgement import Finding, Judgement
from oracle.gate.policy import Required, Waiver
from oracle.gate.threshold import LIMITS, Measured, measured_of, of_limits, of_phase, shortfalls
from oracle.report.words import short

TABLE = ROOT / "faults" / "table.json"
RENDERED = ("text", "ids", "mask")
SHOWN = 12


@dataclass(frozen=True, kw_only=True)
class Fault:
    """A planted fault: what was measured, and whether the oracle could judge it at all."""

    id: str
    first_step: int | None
    judged: bool
    measured: Measured


def read_faults(path: Path = TABLE) -> tuple[Fault, ...]:
    """Read the recorded faults; raises ConfigError when the file cannot be used."""
    try:
        return tuple(_fault(row) for row in loads(read_text(path, "fault table", ConfigError)))
    except (ValueError, KeyError, TypeError):
        raise ConfigError(f"{path} is malformed; `python -m faults --write` makes it.") from None


def _fault(row: Any) -> Fault:
    summary = row["summary"]
    mean, largest = (
        None if summary[key] is None else as_float(summary[key])
        for key in ("mean_relative_loss_difference", "max_relative_loss_difference")
    )
    units = {entry.name: entry.unit for entry in phases()}
    return Fault(
        id=row["id"],
        first_step=None if row["first"] is None else row["first"]["step"],
        judged=row["verdict"] in ("AGREE", "DIVERGED") and not row["reasons"],
        measured=Measured(
            mode=row["mode"],
            phases=[PhaseResult(unit=units[entry["phase"]], **entry) for entry in row["phases"]],
            num_steps=summary["num_steps"],
            num_examples=summary["num_examples"],
            mean_loss=mean,
            largest_loss=largest,
        ),
    )


def explain(judgement: Judgement, faults: Sequence[Fault] | None = None) -> Iterator[str]:
    """Yield the explanation, a line each."""
    known = read_faults() if faults is None else faults
    for finding in judgement.findings:
        yield f"{finding.required.label}: what would pass, of {len(known)} planted faults"
        if finding.evidence is None:
            yield f"  nothing: {finding.error}"
            continue
        measured = measured_of(finding.evidence.verdict)
        if finding.required.mode == "render":
            yield from _of_render(known, measured, finding.required)
            continue
        yield from _of_phases(known, measured, finding.required)
        yield from _of_limits(known, measured, finding.required)
        yield from _of_sizes(known, measured, finding.required)
        yield from _of_waivers(known, judgement, finding)
        free = replace(finding.required, min_steps=None, min_examples=1)
        passed = [f for f in known if f.judged and not list(shortfalls(f.measured, free))]
        missed = "; the oracle says AGREE to them" if passed and _all_agree(passed) else ""
        yield f"  all thresholds together let through {_named(passed)}{missed}"


def _of_phases(faults: Sequence[Fault], measured: Measured, required: Required) -> Iterator[str]:
    strict = replace(required, agreement={})
    alone = [f for f in faults if f.judged and not _parted(f, required)]
    stated = ", ".join(f"{a.phase} {100 * a.at_least:g} %" for a in required.agreement.values())
    what = f"every phase must agree everywhere{f', but {stated}' if stated else ''}"
    yield f"  agreement: {what}; alone it lets through {_named(alone)}"
    for entry in required.agreement.values():
        result = next(one for one in measured.phases if one.phase == entry.phase)
        may = int(result.num_compared * (1 - entry.at_least))
        slips = [
            f
            for f in faults
            if list(_of_one(f, strict, entry.phase)) and not list(_of_one(f, required, entry.phase))
        ]
        yield (
            f"  agreement of {entry.phase} {100 * entry.at_least:g} %: up to {may} of "
            f"{result.num_compared} {result.unit} may part; it overlooks {_named(slips)}"
        )


def _all_agree(faults: Sequence[Fault]) -> bool:
    return all(r.num_agreeing == r.num_compared for fault in faults for r in fault.measured.phases)


def _of_one(fault: Fault, required: Required, phase: str) -> Iterator[Any]:
    result = next(one for one in fault.measured.phases if one.phase == phase)
    return of_phase(result, required, explained=())


def _parted(fault: Fault, required: Required) -> bool:
    free = replace(required, min_steps=None, min_examples=1)
    found = shortfalls(fault.measured, free)
    return any(entry.kind in ("agreement", "unjudged") for entry in found)


def _of_limits(faults: Sequence[Fault], measured: Measured, required: Required) -> Iterator[str]:
    for name, words in LIMITS.items():
        limit, found = getattr(required, name), measured.of_limit(name)
        alone = [f for f in faults if name not in {s.name for s in of_limits(f.measured, required)}]
        room = ""
        if found is not None and 0 < found < limit:
            room = f", so {short(limit / found)} times as much would pass"
        yield (
            f"  {words}: limit {short(limit)}, measured {short(found)}{room}; alone it lets "
            f"through {_named(alone)}"
        )


def _of_sizes(faults: Sequence[Fault], measured: Measured, required: Required) -> Iterator[str]:
    assert required.min_steps is not None, "mode train has min_steps"
    late = [f for f in faults if (f.first_step or 0) >= required.min_steps]
    yield (
        f"  steps: {required.min_steps} needed, {measured.num_steps} made; a fault that first "
        f"shows after step {required.min_steps - 1} would pass: {_named(late)}"
    )
    spare = max(0, measured.num_examples - required.min_examples)
    yield (
        f"  examples: {required.min_examples} needed, {measured.num_examples} rendered; {spare} "
        "could go unnoticed by this threshold"
    )


def _of_render(faults: Sequence[Fault], measured: Measured, required: Required) -> Iterator[str]:
    def unseen(fault: Fault) -> bool:
        return not any(list(_of_one(fault, required, phase)) for phase in RENDERED)

    yield (
        "  agreement of text, ids and mask: it lets through "
        f"{_named([f for f in faults if unseen(f)])}; most show in training only"
    )
    spare = max(0, measured.num_examples - required.min_examples)
    yield f"  examples: {required.min_examples} needed, {spare} could go unnoticed"


def _of_waivers(faults: Sequence[Fault], judgement: Judgement, finding: Finding) -> Iterator[str]:
    for entry in judgement.waivers:
        waiver = entry.waiver
        if not waiver.concerns(finding.required):
            continue
        what = f"  waiver {waiver.label} of {waiver.owner}, until {waiver.expires}"
        if waiver.threshold is not None:
            yield f"{what}: up to {short(waiver.up_to)}"
        elif (waiver.field, waiver.example, waiver.tensor) != (None, None, None):
            bound = "any number" if waiver.at_most is None else f"at most {waiver.at_most}"
            yield f"{what}: {bound} of that place; other places stay closed"
        else:
            covered = [f for f in faults if f.judged and _covers(waiver)(f)]
            yield f"{what}: the whole phase; of the faults it would cover {_named(covered)}"


def _covers(waiver: Waiver) -> Callable[[Fault], bool]:
    def covers(fault: Fault) -> bool:
        parted = {r.phase: r for r in fault.measured.phases if r.num_agreeing < r.num_compared}
        left = [r for r in fault.measured.phases if r.status == "not_judged"]
        if waiver.phase not in parted or (left and not waiver.consequences):
            return False
        mine = parted[waiver.phase]
        bound = waiver.at_most is None or mine.num_compared - mine.num_agreeing <= waiver.at_most
        alone = len(parted) == 1 or waiver.consequences
        first = next(iter(parted)) == waiver.phase
        return bound and alone and first

    return covers


def _named(faults: Sequence[Fault]) -> str:
    if not faults:
        return "none"
    ids = ", ".join(fault.id for fault in faults[:SHOWN])
    more = f" and {len(faults) - SHOWN} more" if len(faults) > SHOWN else ""
    return f"{len(faults)} ({ids}{more})"
