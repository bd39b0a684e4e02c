"""A run directory -> a verdict that the gate stands by, or one sentence why there is none.

`verdict.json` is a file that anybody can write, so it is never the evidence. The traces are: their
footers hash every file, and the verdict names the hash of each footer. The gate judges the traces
again and holds the result against the stored verdict; where both rest on the same rules and the
same floor and differ, one of them was edited.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from oracle.contract import CONTRACT_VERSION, Verdict
from oracle.errors import OracleError
from oracle.files import sha256_file
from oracle.floor import choose_floor
from oracle.gate.policy import Required
from oracle.gate.sameness import difference
from oracle.report.json import loads
from oracle.runs import Run
from oracle.tolerance import default_file, load_tolerances
from oracle.trace import Trace, read_trace
from oracle.verdict import judge


@dataclass(frozen=True, kw_only=True)
class Commit:
    """The commit that is gated, and whether runs with uncommitted changes count."""

    sha: str
    allow_dirty: bool = False


@dataclass(frozen=True, kw_only=True)
class Evidence:
    """The verdict on a run, judged again unless `rejudged` is false; `notes` are worth knowing."""

    run: Run
    verdict: Verdict
    rejudged: bool
    notes: tuple[str, ...]


def why_not(run: Run, required: Required) -> str | None:
    """Return why a run is not the required one, or None: config, mode, stacks."""
    found = run.manifest
    if found.mode != required.mode:
        return f"it is of mode {found.mode}, not {required.mode}"
    if found.config_sha256 != required.config.sha256:
        return (
            f"its config has the hash {found.config_sha256[:12]} and {required.config.path} has "
            f"{required.config.sha256[:12]}: the config was edited, or it is another one"
        )
    stacks = [leg.stack for leg in found.legs.values()]
    if sorted(stacks) != sorted(required.stacks):
        return f"it compared {' with '.join(stacks)}, not {' with '.join(required.stacks)}"
    return None


def examine(run: Run, required: Required, commit: Commit, *, rejudge: bool) -> Evidence:
    """Return the evidence of a run; raises OracleError when it cannot count, with the reason."""
    _check_manifest(run, commit)
    stored = _stored(run)
    first, second = (_trace(run, name) for name in run.manifest.legs)
    _check_bound(run, stored, (first, second))
    rules = required.tolerances or default_file("float64")
    notes: list[str] = []
    if not rejudge:
        if (
            required.mode == "train"
            and stored.tolerances["sha256"] != load_tolerances(rules).sha256
        ):
            raise OracleError(
                f"{_of(run)} was judged by {stored.tolerances['file']} as it was then, and "
                f"{rules} is another file now; gate it without --no-rejudge."
            )
        return Evidence(run=run, verdict=stored, rejudged=False, notes=("not judged again",))
    floor, note = _floor(run, stored, (first, second))
    if note is not None:
        notes.append(note)
    names = (stored.legs[0].name, stored.legs[1].name)
    fresh = judge(
        first,
        second,
        purpose="cross",
        names=names,
        tolerances=rules,
        floor=floor,
        run=run.manifest.run,
    )
    fresh = replace(fresh, created=stored.created)
    if _same_basis(fresh, stored):
        if (what := difference(stored, fresh)) is not None:
            raise OracleError(
                f"{_of(run)}: verdict.json says {what[1]} for {what[0]} and its traces give "
                f"{what[2]}; it was edited, or judged by another oracle: run it again."
            )
    elif fresh.verdict != stored.verdict:
        notes.append(f"stored verdict {stored.verdict}, judged anew {fresh.verdict}")
    return Evidence(run=run, verdict=fresh, rejudged=True, notes=tuple(notes))


def _check_manifest(run: Run, commit: Commit) -> None:
    found = run.manifest
    if found.contract != CONTRACT_VERSION:
        raise OracleError(
            f"{_of(run)} follows contract {found.contract} and this oracle {CONTRACT_VERSION}; run "
            "it again."
        )
    if found.status != "finished":
        raise OracleError(f"{_of(run)} is {found.status}, not finished; resume it or run it again.")
    if found.git_commit is None:
        raise OracleError(f"{_of(run)} has no commit: it was made outside a git repository.")
    sha = found.git_commit.removesuffix("+")
    if sha != commit.sha:
        raise OracleError(
            f"{_of(run)} is of commit {sha[:12]} and {commit.sha[:12]} is gated; run it again on "
            "that commit, or name it with --commit."
        )
    if found.git_commit.endswith("+") and not commit.allow_dirty:
        raise OracleError(
            f"{_of(run)} was made with uncommitted changes on {sha[:12]}, so it is of no commit; "
            "commit and run it again, or say --allow-dirty."
        )


def _stored(run: Run) -> Verdict:
    path = run.path / "verdict.json"
    try:
        stored = loads(path.read_text("utf-8"))
    except FileNotFoundError:
        raise OracleError(f"{_of(run)} has no verdict.json, so it was never judged.") from None
    except (OSError, UnicodeDecodeError):
        raise OracleError(f"{path} cannot be read; run it again.") from None
    except OracleError as error:
        raise OracleError(f"{path}: {error}") from None
    pairs = (
        ("run", stored.run, run.manifest.run),
        ("contract", stored.contract, CONTRACT_VERSION),
        ("config hash", stored.config["sha256"], run.manifest.config_sha256),
        ("mode", stored.mode, run.manifest.mode),
        ("purpose", stored.purpose, "cross"),
        ("legs", [leg.name for leg in stored.legs], list(run.manifest.legs)),
    )
    for what, in_verdict, wanted in pairs:
        if in_verdict != wanted:
            raise OracleError(
                f"{_of(run)}: the {what} of verdict.json is {in_verdict!r} and should be "
                f"{wanted!r}; it is the verdict of another run: run it again."
            )
    if stored.verdict == "ERROR":
        raise OracleError(f"{_of(run)}: {stored.headline}.")
    return stored


def _trace(run: Run, leg: str) -> Trace:
    return read_trace(
        run.trace(leg),
        nonce=run.manifest.legs[leg].nonce,
        config_sha256=run.manifest.config_sha256,
    )


def _check_bound(run: Run, stored: Verdict, traces: Sequence[Trace]) -> None:
    """Refuse traces that are not those that the verdict was made of."""
    for leg, trace in zip(stored.legs, traces, strict=True):
        digest = sha256_file(trace.path / "done.json")
        if leg.trace_sha256 != digest:
            raise OracleError(
                f"{_of(run)}: the trace of {leg.name} has the hash {digest[:12]} and its verdict "
                f"was made of {str(leg.trace_sha256)[:12]}; it was edited after its verdict: run "
                "it again."
            )


def _floor(run: Run, stored: Verdict, traces: Sequence[Trace]) -> tuple[Path | None, str | None]:
    """Return the floor of the stored verdict while it is there, else the one that holds now."""
    if run.manifest.mode == "render":
        return None, None
    known: Any = stored.floor
    folder = run.path.parent / "floors"
    if known is not None:
        # The folder of runs may have been moved, as between the jobs of a pipeline.
        for place in (Path(known["file"]), folder / Path(known["file"]).name):
            if place.is_file() and sha256_file(place) == known["sha256"]:
                return place, None
    headers = [trace.header for trace in traces]
    path, why = choose_floor("auto", folder, headers, purpose="cross")
    if known is not None:
        return path, f"the floor of its verdict is gone; {path.name if path else 'none'} taken"
    return path, why if path is None else f"judged with a floor measured since ({path.name})"


def _same_basis(fresh: Verdict, stored: Verdict) -> bool:
    floors = [None if one.floor is None else one.floor["sha256"] for one in (fresh, stored)]
    rules = [one.tolerances["sha256"] for one in (fresh, stored)]
    return floors[0] == floors[1] and (rules[0] == rules[1] or fresh.mode == "render")


def _of(run: Run) -> str:
    return f"run {run.path.name}"
