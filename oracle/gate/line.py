"""The gate in one line, and the lines below it that say everything.

GATE PASS  clinical-demo AGREE 60 steps · loss ≤ 4.2e-16 · policy merge.toml · commit fe2ffe5
"""

from __future__ import annotations

from collections.abc import Iterator

from oracle.errors import one_line
from oracle.gate.judgement import Finding, Judgement, shortfalls_left
from oracle.report.words import short


def line(judgement: Judgement) -> str:
    """Return the gate in one line that makes sense alone."""
    parts = [_what(judgement)]
    losses = [
        value
        for finding in judgement.findings
        if finding.evidence is not None
        and (value := finding.evidence.verdict.summary["max_relative_loss_difference"]) is not None
    ]
    if losses and judgement.gate == "PASS":
        parts.append(f"loss ≤ {short(max(losses))}")
    waived = sum(len(f.held.waived) for f in judgement.findings if f.held is not None)
    if waived:
        until = min(entry.waiver.expires for entry in judgement.waivers if entry.state == "used")
        parts.append(f"{waived} waived, until {until} at the latest")
    changed = [entry.sentence for entry in judgement.unseen if entry.ever]
    if changed:
        parts.append(f"rules changed since acknowledged: {'; '.join(changed)}")
    if judgement.moved:
        moved = "; ".join(entry.sentence for entry in judgement.moved)
        parts.append(f"this change touches rules: {moved}")
    never = [entry.name for entry in judgement.unseen if not entry.ever]
    if never:
        parts.append(f"rules never acknowledged: {', '.join(never)}")
    parts.append(f"policy {judgement.policy.path.name}")
    parts.append(f"commit {commit(judgement)}")
    return one_line(f"GATE {judgement.gate}  " + " · ".join(parts))


def commit(judgement: Judgement) -> str:
    """Return the commit, shortened, with `+` when a run was made with uncommitted changes."""
    dirty = any(
        finding.run is not None and (finding.run.manifest.git_commit or "").endswith("+")
        for finding in judgement.findings
    )
    return judgement.commit.sha[:7] + ("+" if dirty else "")


def _what(judgement: Judgement) -> str:
    """Return what passed, or the first thing that did not and how many more there are."""
    if judgement.gate == "PASS":
        return ", ".join(_passed(finding) for finding in judgement.findings)
    wrong = list(_wrong(judgement))
    more = f" (and {len(wrong) - 1} more)" if len(wrong) > 1 else ""
    return wrong[0] + more


def _passed(finding: Finding) -> str:
    assert finding.evidence is not None, "what passed was judged"
    verdict = finding.evidence.verdict
    steps, examples = verdict.summary["num_steps"], verdict.summary["num_examples"]
    size = f"{steps} steps" if finding.required.mode == "train" else f"{examples} examples"
    return f"{finding.required.label} {verdict.verdict} {size}"


def _wrong(judgement: Judgement) -> Iterator[str]:
    for finding in judgement.findings:
        if finding.error is not None:
            yield finding.error
    for finding, entry in shortfalls_left(judgement):
        yield f"{finding.required.label}: {entry.sentence}"
    yield from judgement.failures
    for finding in judgement.findings:
        for reason in finding.reasons:
            yield f"{finding.required.label} could not be judged: {reason}"


def details(judgement: Judgement) -> Iterator[str]:
    """Yield what the line leaves out: everything that fell short, waivers, notes, rules."""
    wrong = list(_wrong(judgement))
    yield from wrong if len(wrong) > 1 else ()
    for finding in judgement.findings:
        label = finding.required.label
        for entry, waiver in finding.held.waived if finding.held is not None else ():
            yield (
                f"{label}: waived by {waiver.owner} until {waiver.expires}: {entry.sentence} "
                f"({waiver.reason})"
            )
        for agreement in finding.required.agreement.values():
            yield (
                f"{label}: {agreement.phase} may agree on {100 * agreement.at_least:g} % "
                f"({agreement.reason})"
            )
        for note in finding.evidence.notes if finding.evidence is not None else ():
            yield f"{label}: {note}"
    for rules in judgement.unseen:
        for change in rules.changes[3:]:
            yield f"{rules.path.name}: {change.sentence}"
