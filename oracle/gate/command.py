"""What `oracle gate` and `oracle acknowledge` do: the line goes to stdout, the rest to stderr."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, date, datetime
from pathlib import Path

from rich.console import Console

from oracle.errors import ConfigError, OracleError
from oracle.files import write_atomic
from oracle.gate.acknowledge import acknowledge as write_acknowledgement
from oracle.gate.acknowledge import check_rules
from oracle.gate.evidence import Commit
from oracle.gate.history import moved_since
from oracle.gate.judgement import judge_gate
from oracle.gate.line import details, line
from oracle.gate.policy import load_policy
from oracle.gate.record import dumps
from oracle.gate.search import named_runs, newest_runs
from oracle.revision import git, revision


def run_gate(
    runs: Sequence[str],
    *,
    policy_path: Path,
    commit: str | None,
    allow_dirty: bool,
    rejudge: bool,
    explain: bool,
    base: str | None = None,
    record: Path | None = None,
    out: Path,
    as_json: bool,
) -> int:
    """`oracle gate`: returns the exit code."""
    errors, today = Console(stderr=True), datetime.now(UTC).date()
    policy = load_policy(policy_path, today=today)
    gated = gated_commit(commit, allow_dirty=allow_dirty)
    found = named_runs(runs, policy, out) if runs else newest_runs(policy, out, gated)
    judgement = judge_gate(policy, found, gated, today=today, rejudge=rejudge)
    if base is not None:
        judgement = replace(judgement, moved=moved_since(judgement.files, base))
    if record is not None:
        write_atomic(record, dumps(judgement).encode(), mode=0o644)
    _print(Console(), dumps(judgement) if as_json else line(judgement) + "\n")
    for sentence in details(judgement):
        _print(errors, f"  {sentence}\n")
    if explain:
        from oracle.gate.explain import explain as explained

        for sentence in explained(judgement):
            _print(errors if as_json else Console(), f"{sentence}\n")
    return judgement.exit_code


def gated_commit(text: str | None, *, allow_dirty: bool) -> Commit:
    """Return the commit that `--commit` names, or HEAD of the working directory, which is clean."""
    if text is not None:
        found = git(Path.cwd(), "rev-parse", "--verify", "--quiet", f"{text}^{{commit}}")
        if found is None and re.fullmatch(r"[0-9a-f]{40}|[0-9a-f]{64}", text) is None:
            raise OracleError(f"--commit {text} is no commit of {Path.cwd()}.")
        return Commit(sha=text if found is None else found.strip(), allow_dirty=allow_dirty)
    here = revision(Path.cwd())
    if here is None:
        raise OracleError(
            f"{Path.cwd()} is in no git repository, so it is not known which commit is gated; name "
            "one with --commit."
        )
    if here.endswith("+") and not allow_dirty:
        raise OracleError(
            f"{Path.cwd()} has uncommitted changes, so rules and code are of no commit; commit "
            "them, or say --allow-dirty."
        )
    return Commit(sha=here.removesuffix("+"), allow_dirty=allow_dirty)


def acknowledge(path: Path, folder: Path, *, by: str, reason: str) -> list[str]:
    """`oracle acknowledge`: returns what to print. `folder` keeps acknowledged.toml.

    A policy is acknowledged beside itself, a tolerance file in `folder`.
    """
    today: date = datetime.now(UTC).date()
    kind = check_rules(path, today=today)
    if "unacknowledged" in kind.values:
        folder = path.resolve().parent
    if not folder.is_dir():
        raise ConfigError(f"{folder} does not exist, so nothing can be acknowledged there.")
    made = write_acknowledgement(path, folder, by=by, reason=reason, on=today)
    name = f"{path.resolve().parent.name}/{path.name}"
    return [f"{name} acknowledged by {by}", *(f"  {change.sentence}" for change in made)]


def _print(console: Console, text: str) -> None:
    console.print(text, markup=False, highlight=False, soft_wrap=True, end="")
