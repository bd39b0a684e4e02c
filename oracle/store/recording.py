"""A judged run directory -> its record: files become objects, verdict and manifest become rows.

The trace of a leg without a footer is not kept: the leg may be resumed, and would write into it.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from oracle.document import violation
from oracle.errors import OracleError
from oracle.floor import read_floor
from oracle.revision import git
from oracle.runs import Run, open_run, refuse_running
from oracle.store.objects import Objects
from oracle.store.record import EARLIER, Record, Row

LISTED = ("run.json", "verdict.json", "report.html")


def make_record(path: Path, objects: Objects) -> Record:
    """Keep the files of a run directory as objects and return its record.

    Raises OracleError when a leg runs or there is no verdict: such a run is not finished.
    """
    run = open_run(path)
    refuse_running(run)
    document = read_verdict(run)
    files: list[dict[str, Any]] = []
    for source in sorted(_files(run)):
        relative = os.fsencode(source.relative_to(run.path)).decode("utf-8", "backslashreplace")
        row = {"path": relative, "sha256": objects.put(source), "num_bytes": source.stat().st_size}
        files.append({"run_id": run.manifest.run, **row})
    objects.sync_folders(row["sha256"] for row in files)
    return Record(
        run=_run_row(run, document, sum(row["num_bytes"] for row in files)),
        leg=tuple(_leg_rows(run, document)),
        phase=tuple(_phase_rows(run, document)),
        file=tuple(files),
    )


def floor_row(path: Path, objects: Objects) -> Row:
    """Keep a floor file as an object and return its row; raises ConfigError when it is none."""
    floor = read_floor(path)
    digest = objects.put(path)
    objects.sync_folders([digest])
    kept = {name: floor.provenance[name] for name in ("config_name", "config_sha256", "precision")}
    return kept | {
        "name": path.stem,
        "sha256": digest,
        "num_steps": floor.num_steps,
        "created": floor.provenance["created"],
        "num_bytes": path.stat().st_size,
    }


def after(record: Record, before: Record) -> Record | None:
    """Return a record that supersedes an earlier one of its run; None when nothing changed."""
    earlier = [row for row in before.file if row["path"].startswith(f"{EARLIER}/")]
    then = {path: sha for path, sha in before.files.items() if not path.startswith(f"{EARLIER}/")}
    if then == record.files:
        return None
    if then.get("verdict.json") not in (None, record.files["verdict.json"]):
        last = next(row for row in before.file if row["path"] == "verdict.json")
        earlier.append({**last, "path": f"{EARLIER}/{len(earlier) + 1}/verdict.json"})
    return replace(record, file=(*record.file, *earlier), supersedes=before.sha256)


def read_verdict(run: Run) -> Mapping[str, Any]:
    """Return the document of `verdict.json`; raises OracleError when there is none, or no valid."""
    from oracle.document import loads

    path = run.path / "verdict.json"
    try:
        document = loads(path.read_bytes())
    except FileNotFoundError:
        raise OracleError(
            f"{run.path} has no verdict.json: a run is kept when it was judged."
        ) from None
    except ValueError as error:
        raise OracleError(f"{path} is no verdict ({error}); judge the run again.") from None
    if (reason := violation(document, "verdict")) is not None:
        raise OracleError(f"{path} is no verdict ({reason}); judge the run again.")
    found: Mapping[str, Any] = document
    return found


def _files(run: Run) -> Iterator[Path]:
    """Yield what is kept: manifest, verdict, page, bundle, logs, each trace that has a footer."""
    traces = [run.trace(leg) for leg in run.manifest.legs]
    folders = [path for path in traces if (path / "done.json").exists()]
    for folder in (run.path / "bundle", run.logs, *folders):
        for path in folder.rglob("*"):
            if path.is_file() and not path.is_symlink() and path.suffix != ".tmp":
                yield path
    yield from (run.path / name for name in LISTED if (run.path / name).is_file())


def _run_row(run: Run, document: Mapping[str, Any], num_bytes: int) -> Row:
    manifest, first, summary = run.manifest, document["first"], document["summary"]
    branch, author = _git(Path(manifest.config_path).parent, manifest.git_commit)
    return {
        "id": manifest.run,
        "created": manifest.created,
        "recorded": datetime.now(UTC).isoformat(timespec="microseconds"),
        "mode": manifest.mode,
        "purpose": manifest.purpose,
        "config_name": document["config"]["name"],
        "config_sha256": manifest.config_sha256,
        "precision": document["config"]["precision"],
        "num_steps": summary["num_steps"],
        "num_examples": summary["num_examples"],
        "commit": manifest.git_commit,
        "branch": branch,
        "author": author,
        "contract": manifest.contract,
        "verdict": document["verdict"],
        "headline": document["headline"],
        "first_phase": None if first is None else first["phase"],
        "first_step": None if first is None else first["step"],
        "max_relative_loss_difference": _finite(summary["max_relative_loss_difference"]),
        "mean_relative_loss_difference": _finite(summary["mean_relative_loss_difference"]),
        "tolerances_sha256": document["tolerances"]["sha256"],
        "floor_sha256": None if document["floor"] is None else document["floor"]["sha256"],
        "num_bytes": num_bytes,
    }


def _finite(value: float | str | None) -> float | None:
    """Return a figure that every database can hold: what is not finite (a string) is nothing."""
    return None if isinstance(value, str) else value


def _leg_rows(run: Run, document: Mapping[str, Any]) -> Iterator[Row]:
    for place, leg in enumerate(document["legs"]):
        entry = run.manifest.legs.get(leg["name"])
        yield {
            "run_id": run.manifest.run,
            "place": place,
            "name": leg["name"],
            "stack": leg["stack"] or (entry.stack if entry else leg["name"]),
            "code_sha256": leg["code_sha256"],
            "trace_sha256": leg["trace_sha256"],
        }


def _phase_rows(run: Run, document: Mapping[str, Any]) -> Iterator[Row]:
    for result in document["phases"]:
        kept = ("phase", "status", "num_compared", "num_agreeing")
        yield {"run_id": run.manifest.run} | {name: result[name] for name in kept}


def _git(folder: Path, commit: str | None) -> tuple[str | None, str | None]:
    """Return the branch and the author of a run's commit, as far as git tells by now."""
    if commit is None:
        return None, None
    sha = commit.removesuffix("+")
    author = git(folder, "log", "-1", "--format=%an", sha, "--")
    branch = None
    if (git(folder, "rev-parse", "HEAD") or "").strip() == sha:
        branch = (git(folder, "symbolic-ref", "--quiet", "--short", "HEAD") or "").strip()
        # A CI system checks out a commit, not a branch, and tells the name beside it.
        branch = branch or os.environ.get("GITHUB_HEAD_REF") or os.environ.get("GITHUB_REF_NAME")
        branch = branch or os.environ.get("CI_COMMIT_REF_NAME")
    return branch or None, (author or "").strip() or None
