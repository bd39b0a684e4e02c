"""Runs, a policy and a commit -> PASS, FAIL, ERROR or INCONCLUSIVE, with everything that led there.

ERROR when a required run is missing or cannot count; else FAIL when a threshold was not kept, a
waiver is expired or unused, or unacknowledged rules are to fail; else INCONCLUSIVE when a run could
not be judged; else PASS. A run that could not be judged is never waived.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Literal

from oracle.errors import OracleError
from oracle.gate.acknowledge import Unseen, unseen
from oracle.gate.evidence import Commit, Evidence, examine
from oracle.gate.history import Moved
from oracle.gate.policy import Policy, Required, Waiver
from oracle.gate.search import Found
from oracle.gate.threshold import Shortfall
from oracle.gate.waiver import Held, hold
from oracle.runs import Run

Gate = Literal["PASS", "FAIL", "ERROR", "INCONCLUSIVE"]
EXIT_CODES: Mapping[Gate, int] = {"PASS": 0, "FAIL": 1, "ERROR": 2, "INCONCLUSIVE": 3}


@dataclass(frozen=True, kw_only=True)
class Finding:
    """What became of one required run. `error`: why it cannot count; `held` is None then."""

    required: Required
    run: Run | None
    evidence: Evidence | None = None
    error: str | None = None
    held: Held | None = None

    @property
    def reasons(self) -> tuple[str, ...]:
        """Why it could not be judged although both traces are there."""
        return () if self.evidence is None else self.evidence.verdict.reasons

    @property
    def gate(self) -> Gate:
        """What this run alone makes of the gate."""
        if self.error is not None or self.held is None:
            return "ERROR"
        if self.reasons and not self.parted:
            return "INCONCLUSIVE"
        return "FAIL" if self.held.open else "PASS"

    @property
    def parted(self) -> bool:
        """Whether a rule is broken that no waiver covers, whatever else could not be judged."""
        open = () if self.held is None else self.held.open
        return any(short.kind == "agreement" for short in open)


@dataclass(frozen=True, kw_only=True)
class WaiverState:
    """A waiver and what became of it; `unknown` while a run that it is of could not be judged."""

    waiver: Waiver
    state: Literal["used", "unused", "expired", "unknown"]


@dataclass(frozen=True, kw_only=True)
class Judgement:
    """The gate's answer."""

    policy: Policy
    commit: Commit
    findings: tuple[Finding, ...]
    waivers: tuple[WaiverState, ...]
    unseen: tuple[Unseen, ...]
    moved: tuple[Moved, ...] = ()

    @property
    def files(self) -> tuple[Path, ...]:
        """The files of rules that the answer rests on: tolerances, then the policy."""
        return _files(self.policy)

    @property
    def failures(self) -> tuple[str, ...]:
        """What makes the gate red besides its runs: waivers, rules that nobody acknowledged."""
        found = [
            f"waiver {entry.waiver.label} of {entry.waiver.owner} "
            + (f"expired on {entry.waiver.expires}" if entry.state == "expired" else "is unused")
            for entry in self.waivers
            if entry.state in ("expired", "unused")
        ]
        if self.policy.unacknowledged == "fail" and self.unseen:
            found.append("rules are not acknowledged as they are")
        return tuple(found)

    @property
    def gate(self) -> Gate:
        """The answer in a word."""
        gates = {finding.gate for finding in self.findings}
        if "ERROR" in gates:
            return "ERROR"
        if "FAIL" in gates or self.failures:
            return "FAIL"
        return "INCONCLUSIVE" if "INCONCLUSIVE" in gates else "PASS"

    @property
    def exit_code(self) -> int:
        """0 passes, 1 fails, 2 cannot be judged, 3 inconclusive."""
        return EXIT_CODES[self.gate]


def judge_gate(
    policy: Policy, found: Found, commit: Commit, *, today: date, rejudge: bool = True
) -> Judgement:
    """Judge every required run and hold it against the policy; raises for a broken policy only."""
    findings = tuple(
        _finding(one, found[one.label], policy, commit, today=today, rejudge=rejudge)
        for one in policy.required
    )
    return Judgement(
        policy=policy,
        commit=commit,
        findings=findings,
        waivers=tuple(_states(policy, findings, today)),
        unseen=unseen(_files(policy), policy.path.parent),
    )


def _files(policy: Policy) -> tuple[Path, ...]:
    found = [one.tolerances for one in policy.required if one.tolerances is not None]
    return tuple(dict.fromkeys(path.resolve() for path in (*found, policy.path)))


def _finding(
    required: Required,
    run: Run | str,
    policy: Policy,
    commit: Commit,
    *,
    today: date,
    rejudge: bool,
) -> Finding:
    if isinstance(run, str):
        return Finding(required=required, run=None, error=run)
    try:
        evidence = examine(run, required, commit, rejudge=rejudge)
    except OracleError as error:
        return Finding(required=required, run=run, error=str(error).removesuffix("."))
    if evidence.verdict.verdict == "ERROR":
        return Finding(required=required, run=run, error=evidence.verdict.headline)
    held = hold(evidence.verdict, required, policy.waivers, today=today)
    return Finding(required=required, run=run, evidence=evidence, held=held)


def _states(policy: Policy, findings: Sequence[Finding], today: date) -> list[WaiverState]:
    states = []
    for place, waiver in enumerate(policy.waivers):
        mine = [finding for finding in findings if waiver.concerns(finding.required)]
        if waiver.expires < today:
            state = "expired"
        elif any(finding.held is not None and place in finding.held.used for finding in mine):
            state = "used"
        else:
            judged = all(finding.gate in ("PASS", "FAIL") for finding in mine)
            state = "unused" if judged else "unknown"
        states.append(WaiverState(waiver=waiver, state=state))  # type: ignore[arg-type]
    return states


def shortfalls_left(judgement: Judgement) -> tuple[tuple[Finding, Shortfall], ...]:
    """Return what falls short and is not waived, run by run."""
    return tuple(
        (finding, short)
        for finding in judgement.findings
        if finding.held is not None and finding.gate == "FAIL"
        for short in finding.held.open
    )
