"""The runs that a gate looks at: those that were named, or the newest of this commit.

The newest and not the best: an earlier AGREE never hides a later DIVERGED of the same commit. A run
whose directory is gone comes from the store, which restores it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from oracle.errors import OracleError
from oracle.gate.evidence import Commit, why_not
from oracle.gate.policy import Policy, Required
from oracle.runs import Run, find_run, open_run

if TYPE_CHECKING:
    from oracle.store.store import Store

Found = Mapping[str, Run | str]  # label of a required run -> the run, or why there is none


def named_runs(texts: Sequence[str], policy: Policy, out: Path) -> Found:
    """Return the named runs by the requirement that each is of.

    Raises OracleError for a run that is of none, and for two runs of one.
    """
    found: dict[str, Run | str] = {}
    for run in {run.path: run for run in (_named(text, out) for text in texts)}.values():
        matching = [one for one in policy.required if why_not(run, one) is None]
        if not matching:
            raise OracleError(_unwanted(run, policy))
        for one in matching:
            other = found.get(one.label)
            if isinstance(other, Run):
                raise OracleError(
                    f"{other.path.name} and {run.path.name} are both runs of {one.label}; name one."
                )
            found[one.label] = run
    for one in policy.required:
        found.setdefault(one.label, f"{one.label} is required and no run of it was named")
    return found


def _named(text: str, out: Path) -> Run:
    try:
        return find_run(text, out)
    except OracleError:
        store = _store(out)
        if store is None:
            raise
        return store.directory(store.find(text))


def _store(out: Path) -> Store | None:
    """Return the store of a folder of runs if it has one: SQLAlchemy takes a while to import."""
    if not (out / "store").is_dir():
        return None
    from oracle.store import open_store

    return open_store(out)


def _unwanted(run: Run, policy: Policy) -> str:
    """Say why a run is of no requirement: the one that is nearest to it, and what differs."""
    named = [one for one in policy.required if run.path.name.startswith(f"{one.config.name}-")]
    near = sorted(named or policy.required, key=lambda one: one.mode != run.manifest.mode)[0]
    return (
        f"{run.path.name} is no run that {policy.path.name} requires: as {near.label}, "
        f"{why_not(run, near)}."
    )


def newest_runs(policy: Policy, out: Path, commit: Commit) -> Found:
    """Return the newest run of this commit below `out` for each requirement."""
    runs, num_unreadable = [], 0
    for path in out.glob("*/run.json"):
        if path.parent.is_symlink():
            continue
        try:
            runs.append(open_run(path.parent))
        except OracleError:
            num_unreadable += 1
    runs += _stored_only(policy, out, commit, {run.path.name for run in runs})
    unreadable = f"; {num_unreadable} run directories cannot be read" if num_unreadable else ""
    return {one.label: _newest(one, runs, out, commit, unreadable) for one in policy.required}


def _stored_only(policy: Policy, out: Path, commit: Commit, known: set[str]) -> list[Run]:
    """Return the runs of this commit that the store alone has, restored."""
    store = _store(out)
    if store is None:
        return []
    configs = {one.config.sha256 for one in policy.required}
    return [
        store.directory(stored)
        for stored in store.runs()
        if stored.id not in known
        and stored.config_sha256 in configs
        and (stored.commit or "").removesuffix("+") == commit.sha
    ]


def _newest(
    required: Required, runs: Sequence[Run], out: Path, commit: Commit, unreadable: str
) -> Run | str:
    same = [run for run in runs if why_not(run, required) is None]
    here = [run for run in same if _of_commit(run, commit)]
    if here:
        # The name ends in random digits: it settles the order of runs of one second.
        return max(here, key=lambda run: (run.manifest.created, run.path.name))
    others = f"; {len(same)} of other commits" if same else ""
    verb = "run" if required.mode == "train" else "render"
    return (
        f"{required.label} has no run of commit {commit.sha[:12]} in {out}{others}{unreadable}; "
        f"oracle {verb} {required.config.path} makes one"
    )


def _of_commit(run: Run, commit: Commit) -> bool:
    return (run.manifest.git_commit or "").removesuffix("+") == commit.sha
