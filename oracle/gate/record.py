"""A gate's answer as the document of `gate.schema.json`."""

from __future__ import annotations

import json
from typing import Any

from oracle.document import violation
from oracle.errors import OracleError
from oracle.gate.judgement import Finding, Judgement, WaiverState
from oracle.gate.line import line
from oracle.gate.rules import Change
from oracle.gate.threshold import Shortfall
from oracle.report.json import encode

VERSION = "1"


def document(judgement: Judgement) -> dict[str, Any]:
    """Return the document: what each required run came to, waivers, rules that changed."""
    policy = judgement.policy
    made: dict[str, Any] = encode(
        {
            "gate_version": VERSION,
            "gate": judgement.gate,
            "exit_code": judgement.exit_code,
            "line": line(judgement),
            "commit": judgement.commit.sha,
            "policy": {"name": policy.name, "file": str(policy.path), "sha256": policy.sha256},
            "required": [_finding(finding) for finding in judgement.findings],
            "waivers": [_waiver(entry) for entry in judgement.waivers],
            "failures": list(judgement.failures),
            "unacknowledged": [
                {
                    "file": str(entry.path),
                    "ever": entry.ever,
                    "sentence": entry.sentence,
                    "changes": [_change(change) for change in entry.changes],
                }
                for entry in judgement.unseen
            ],
            "moved": [
                {
                    "file": str(entry.path),
                    "new": entry.new,
                    "sentence": entry.sentence,
                    "changes": [_change(change) for change in entry.changes],
                }
                for entry in judgement.moved
            ],
        }
    )
    return made


def dumps(judgement: Judgement) -> str:
    """Return the document as JSON; raises OracleError when it is off the schema: our own bug."""
    made = document(judgement)
    if (reason := violation(made, "gate")) is not None:
        raise OracleError(f"the gate's document: {reason} (gate.schema.json).")
    return json.dumps(made, indent=1, allow_nan=False) + "\n"


def _change(change: Change) -> dict[str, Any]:
    return {
        "rule": change.rule,
        "direction": change.direction,
        "was": change.was,
        "now": change.now,
    }


def _finding(finding: Finding) -> dict[str, Any]:
    evidence, held = finding.evidence, finding.held
    verdict = None if evidence is None else evidence.verdict
    return {
        "run": finding.required.config.name,
        "mode": finding.required.mode,
        "gate": finding.gate,
        "id": None if finding.run is None else finding.run.path.name,
        "verdict": None if verdict is None else verdict.verdict,
        "rejudged": None if evidence is None else evidence.rejudged,
        "error": finding.error,
        "reasons": list(finding.reasons),
        "notes": [] if evidence is None else list(evidence.notes),
        "summary": None if verdict is None else dict(verdict.summary),
        "agreement": {}
        if verdict is None
        else {result.phase: result.agreement for result in verdict.phases},
        "shortfalls": [] if held is None else [_shortfall(entry) for entry in held.open],
        "waived": []
        if held is None
        else [_shortfall(entry) | {"by": waiver.owner} for entry, waiver in held.waived],
    }


def _shortfall(entry: Shortfall) -> dict[str, Any]:
    return {"threshold": entry.name, "kind": entry.kind, "sentence": entry.sentence}


def _waiver(entry: WaiverState) -> dict[str, Any]:
    waiver = entry.waiver
    return {
        "what": waiver.label,
        "owner": waiver.owner,
        "reason": waiver.reason,
        "expires": waiver.expires.isoformat(),
        "state": entry.state,
    }
