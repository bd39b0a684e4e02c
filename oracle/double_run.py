"""A double run from config to verdict: check, launch both legs, read their traces, judge, report.

The run directory is there before a leg starts, and says at any moment how far the run came.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from oracle.bundle import check_unchanged, make_bundle, read_bundle, read_by_leg
from oracle.config import load_config
from oracle.contract import Verdict
from oracle.errors import ConfigError, OracleError, TraceError
from oracle.files import write_atomic
from oracle.inputs import check_inputs
from oracle.launch import run_legs
from oracle.leg import BAD_INPUT, Leg, LegEnd, Limits
from oracle.progress import OnProgress
from oracle.runs import Mode, Run, create_run, open_run, refuse_running
from oracle.stacks import Stack, load_stacks, pick_stacks
from oracle.trace import Trace, read_trace


@dataclass(frozen=True, kw_only=True)
class Judging:
    """Files that a verdict rests on; None takes those of the repository, or no floor."""

    tolerances: Path | None = None
    floor: str = "auto"  # a file, "auto" or "none"


@dataclass(frozen=True, kw_only=True)
class Judged:
    """A verdict with the traces that it is of, None where a leg left none."""

    run: Run
    verdict: Verdict
    traces: tuple[Trace | None, Trace | None]


def begin(config_path: Path, *, stacks: str, stacks_file: Path, out: Path, mode: Mode) -> Run:
    """Check everything that a config names and make the directory of a new run."""
    pair = pick_stacks(stacks, stacks_file)
    inputs = check_inputs(load_config(config_path), weights=mode == "train")
    return create_run(
        out, inputs.config, make_bundle(inputs), pair, stacks_file.resolve(), mode=mode
    )


def reopen(path: Path, *, config_path: Path | None, mode: Mode) -> Run:
    """Open an interrupted run, refusing one whose config or input files have changed."""
    run = open_run(path)
    if run.manifest.mode != mode:
        raise OracleError(
            f"{run.path.name} is a {run.manifest.mode} run; resume it with `oracle "
            f"{'run' if run.manifest.mode == 'train' else 'render'}`."
        )
    refuse_running(run)
    config = load_config(config_path or Path(run.manifest.config_path))
    now = make_bundle(check_inputs(config, weights=mode == "train"))
    check_unchanged(read_bundle(run.path / "bundle" / "bundle.json"), now, config)
    return run.updated(status="running")


def execute(run: Run, *, limits: Limits, on_progress: OnProgress | None) -> tuple[LegEnd, ...]:
    """Start the legs that are not done yet and wait for all; KeyboardInterrupt marks the run."""
    stacks = load_stacks(Path(run.manifest.stacks_file))
    legs = [_leg(run, name, stacks) for name in run.manifest.legs if not _is_done(run, name)]

    def on_start(process_ids: Mapping[str, int]) -> None:
        entries = dict(run.manifest.legs)
        for name, process_id in process_ids.items():
            entries[name] = replace(entries[name], process_id=process_id)
        run.updated(legs=entries)

    try:
        ends = run_legs(legs, limits=limits, on_progress=on_progress, on_start=on_start)
    except KeyboardInterrupt:
        run.updated(status="interrupted")
        raise
    except OracleError:
        run.updated(status="failed")
        raise
    run.updated(status="failed" if any(end.error for end in ends) else "finished")
    return ends


def judge_run(run: Run, ends: tuple[LegEnd, ...], judging: Judging) -> Judged:
    """Read the traces of a run and judge them; a leg without one gives the verdict ERROR."""
    from oracle.floor import choose_floor
    from oracle.verdict import judge

    errors = {end.name: end.error for end in ends}
    traces: dict[str, Trace | None] = dict.fromkeys(run.manifest.legs)
    for name in traces:
        if errors.get(name) is None:
            traces[name], errors[name] = _read(run, name)
    names = _pair(run)
    a, b = (traces[name] for name in names)
    if a is None or b is None:
        run = run.updated(status="failed")
        verdict = _unjudged(run, ends, errors, (a, b))
    else:
        floor, why_none = choose_floor(
            judging.floor,
            run.path.parent / "floors",
            (a.header, b.header),
            purpose=run.manifest.purpose,
        )
        verdict = judge(
            a,
            b,
            purpose=run.manifest.purpose,
            names=names,
            tolerances=judging.tolerances,
            floor=floor,
            run=run.manifest.run,
        )
        notes = [note for note in (why_none, _changed_inputs(run, (a, b))) if note is not None]
        verdict = replace(verdict, warnings=(*verdict.warnings, *notes))
    return Judged(run=run, verdict=verdict, traces=(a, b))


def traces_of(run: Run) -> dict[str, Trace]:
    """Return the traces of a finished run by stack, as the stacks file names it.

    Raises TraceError when a leg left none.
    """
    traces = {}
    for name, entry in run.manifest.legs.items():
        trace, error = _read(run, name)
        if trace is None:
            raise TraceError(f"leg {name} of {run.path.name}: {error}")
        traces[entry.stack] = trace
    return traces


def _changed_inputs(run: Run, traces: tuple[Trace, Trace]) -> str | None:
    """Say when both legs read the same bytes and these are not those that were checked."""
    bundle = read_bundle(run.path / "bundle" / "bundle.json")
    config = load_config(run.config, root=Path(run.manifest.root))
    found = [read_by_leg(bundle, config, trace.header["facts"]["files"]) for trace in traces]
    return found[0] if all(found) else None


def _unjudged(
    run: Run,
    ends: tuple[LegEnd, ...],
    errors: Mapping[str, str | None],
    traces: tuple[Trace | None, Trace | None],
) -> Verdict:
    """Return the verdict ERROR of legs that left no trace: who failed, why, and how to go on."""
    from oracle.verdict import error_verdict

    names = _pair(run)
    config = load_config(run.config, root=Path(run.manifest.root))
    # The leg that failed by itself comes first; the one that was stopped for it is no reason.
    stopped = {end.name for end in ends if end.stopped_for is not None}
    culprits = [name for name in names if errors[name] is not None and name not in stopped]
    # A leg that refused its input will refuse it again, and one that ended well has no state left.
    resumable = all(end.return_code not in (0, BAD_INPUT) for end in ends if end.name in culprits)
    return error_verdict(
        reasons=[f"leg {name}: {errors[name]}" for name in culprits],
        names=names,
        purpose=run.manifest.purpose,
        mode=run.manifest.mode,
        run=run.manifest.run,
        config={
            "name": config.name,
            "sha256": config.sha256,
            "precision": config.precision,
            "num_steps": config.num_steps,
        },
        traces=traces,
        paths=(run.trace(names[0]), run.trace(names[1])),
        errors=(errors[names[0]], errors[names[1]]),
        warnings=[f"to go on from the last snapshots: {resume_command(run)}"] if resumable else [],
    )


def resume_command(run: Run) -> str:
    """Return the command that takes an interrupted run up again."""
    verb = "run" if run.manifest.mode == "train" else "render"
    return f"oracle {verb} --resume {_shown(run.path)}"


def _shown(path: Path) -> str:
    here = Path.cwd()
    return str(path.relative_to(here) if path.is_relative_to(here) else path)


def write_reports(judged: Judged, *, html: bool, reveal: bool) -> None:
    """Write `verdict.json` and, when asked for, `report.html` into the run directory."""
    from oracle.report.json import dumps

    path = judged.run.path
    write_atomic(path / "verdict.json", dumps(judged.verdict).encode())
    if html:
        from oracle.report.html import render

        page = render(judged.verdict, *judged.traces, reveal=reveal)
        write_atomic(path / "report.html", page.encode())


def _leg(run: Run, name: str, stacks: Mapping[str, Stack]) -> Leg:
    entry, out = run.manifest.legs[name], run.trace(name)
    if entry.stack not in stacks:
        raise ConfigError(f"{run.manifest.stacks_file} has no stack {entry.stack} any more.")
    begun = out.is_dir() and any(out.iterdir())
    if begun and run.manifest.mode == "render":
        shutil.rmtree(out)  # a render has no snapshot to resume from (S-26): it starts again
    return Leg(
        name=name,
        stack=stacks[entry.stack],
        mode=run.manifest.mode,
        config=run.config,
        root=Path(run.manifest.root),
        out=out,
        logs=run.logs,
        nonce=entry.nonce,
        resume=begun and run.manifest.mode == "train",
    )


def _is_done(run: Run, name: str) -> bool:
    return (run.trace(name) / "done.json").exists() and _read(run, name)[0] is not None


def _read(run: Run, name: str) -> tuple[Trace | None, str | None]:
    manifest = run.manifest
    try:
        trace = read_trace(
            run.trace(name),
            nonce=manifest.legs[name].nonce,
            config_sha256=manifest.config_sha256,
        )
    except TraceError as error:
        return None, str(error)
    return trace, None


def _pair(run: Run) -> tuple[str, str]:
    a, b = run.manifest.legs
    return a, b


def _stack_names(run: Run) -> tuple[str, str]:
    a, b = (entry.stack for entry in run.manifest.legs.values())
    return a, b
