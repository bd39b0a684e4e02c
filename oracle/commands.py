"""What the commands do, behind `cli`: each draws on the modules that know, and prints.

Progress goes to stderr, verdicts to stdout, so that `oracle run … --json > verdict.json` works.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from rich.console import Console
from rich.table import Table

from oracle.config import load_config
from oracle.contract import Purpose, Verdict
from oracle.double_run import (
    Judging,
    begin,
    execute,
    judge_run,
    reopen,
    resume_command,
    traces_of,
    write_reports,
)
from oracle.errors import ConfigError, OracleError
from oracle.inputs import check_inputs
from oracle.leg import Limits
from oracle.live import progress_view
from oracle.runs import Mode, Run, find_run
from oracle.stacks import load_stacks, pick_stacks
from oracle.store import keep
from oracle.trace import read_trace
from oracle.vectors import CaseResult, run_vectors, vector_files


def double_run(
    config_path: Path | None,
    mode: Mode,
    *,
    stacks: str,
    stacks_file: Path,
    out: Path,
    resume: str | None,
    tolerances: Path | None,
    floor: str,
    stall_seconds: float,
    reveal_text: bool,
    no_report: bool,
    as_json: bool,
) -> int:
    """`oracle run` and `oracle render`: returns the exit code of the verdict."""
    errors = Console(stderr=True)
    _check_files_of_judging(tolerances, floor)
    if resume is not None:
        run = reopen(find_run(resume, out).path, config_path=config_path, mode=mode)
    elif config_path is not None:
        run = begin(config_path, stacks=stacks, stacks_file=stacks_file, out=out, mode=mode)
    else:
        raise ConfigError(f"give a config, or --resume RUN: oracle {mode} CONFIG.")
    _print(errors, str(run.path))
    num_steps = load_config(run.config).num_steps if mode == "train" else None
    try:
        with progress_view(errors, num_steps=num_steps) as view:
            ends = execute(run, limits=Limits(stall_seconds=stall_seconds), on_progress=view)
    except KeyboardInterrupt:
        _print(errors, f"stopped; {_left_behind(run)}. To go on: {resume_command(run)}")
        return 130
    judged = judge_run(run, ends, Judging(tolerances=tolerances, floor=floor))
    write_reports(judged, html=not no_report, reveal=reveal_text)
    _print_verdict(judged.verdict, as_json=as_json)
    if not no_report:
        _print(errors, f"report  {run.path / 'report.html'}")
    keep(run.path, lambda line: _print(errors, line))
    return judged.verdict.exit_code


def _left_behind(run: Run) -> str:
    """Say what an interrupted run can be taken up from."""
    if run.manifest.mode == "render":
        return "a rendering is short and starts anew"
    kept = [leg for leg in run.manifest.legs if any(run.trace(leg).glob("snapshots/*.safetensors"))]
    if len(kept) == len(run.manifest.legs):
        return "both legs kept a snapshot"
    return f"{kept[0]} kept a snapshot, the other leg starts anew" if kept else "no snapshot yet"


def check(config_path: Path, stacks: str, stacks_file: Path) -> None:
    """`oracle check`."""
    from oracle.explain import print_inputs

    pair = pick_stacks(stacks, stacks_file)
    inputs = check_inputs(load_config(config_path))
    console = Console()
    print_inputs(inputs, pair, console)
    _print(console, "Everything that the config names was read and can be used.")


def calibrate(
    config_path: Path,
    *,
    stacks: str,
    stacks_file: Path,
    out: Path,
    variants: str,
    base: str | None,
    stall_seconds: float,
) -> int:
    """`oracle calibrate`: returns 0, or 130 when it was stopped."""
    from oracle.calibrate import calibrate as measure
    from oracle.calibrate import chosen

    errors = Console(stderr=True)
    names = chosen(variants)
    config = check_inputs(load_config(config_path)).config
    try:
        path = measure(
            config_path,
            stacks=pick_stacks(stacks, stacks_file),
            out=out,
            on_progress=lambda line: _print(errors, line),
            variants=names,
            bases=None if base is None else traces_of(find_run(base, out)),
            limits=Limits(stall_seconds=stall_seconds),
            view=lambda: progress_view(errors, num_steps=config.num_steps),
        )
    except KeyboardInterrupt:
        _print(errors, "stopped; what is finished is kept, and the same command goes on from there")
        return 130
    _print(Console(), str(path))
    keep(path, lambda line: _print(errors, line))
    return 0


def compare(
    a: Path,
    b: Path,
    *,
    purpose: Purpose,
    tolerances: Path | None,
    floor: str,
    out: Path,
    html: Path | None,
    reveal_text: bool,
    as_json: bool,
) -> int:
    """`oracle compare`: returns the exit code of the verdict."""
    from oracle.floor import choose_floor
    from oracle.verdict import judge

    _check_files_of_judging(tolerances, floor)
    traces = read_trace(a), read_trace(b)
    first, second = (trace.header["provenance"]["stack"] for trace in traces)
    names = (first, second) if first != second else (f"{first}-a", f"{second}-b")
    headers = [trace.header for trace in traces]
    path, why_none = choose_floor(floor, out / "floors", headers, purpose=purpose)
    verdict = judge(
        *traces, purpose=purpose, names=names, tolerances=tolerances, floor=path, run=None
    )
    if why_none is not None:
        verdict = replace(verdict, warnings=(*verdict.warnings, why_none))
    if html is not None:
        from oracle.files import write_atomic
        from oracle.report.html import render

        write_atomic(html, render(verdict, *traces, reveal=reveal_text).encode())
    _print_verdict(verdict, as_json=as_json)
    return verdict.exit_code


def show(
    run: str,
    out: Path,
    *,
    step: int | None,
    phase: str | None,
    example: str | None,
    reveal_text: bool,
) -> None:
    """`oracle show`."""
    from oracle import store
    from oracle.report.show import print_show

    errors = Console(stderr=True)
    path = store.find_run(run, out, lambda line: _print(errors, line)).path
    print_show(path, step=step, phase=phase, example=example, reveal=reveal_text, console=Console())


def validate_trace(path: Path, nonce: str | None) -> None:
    """`oracle validate-trace`."""
    trace = read_trace(path, nonce=nonce)
    counts = trace.done["num_examples"]
    examples = ", ".join(f"{counts[split]:,} {split}" for split in ("train", "eval", "edge"))
    num_tensors = trace.tensors.select("step").collect().height
    _print(
        Console(),
        f"{path} is a valid {trace.header['mode']} trace of {trace.header['provenance']['stack']}: "
        f"{trace.steps.height:,} steps, {examples} examples, {num_tensors:,} rows of tensors.",
    )


def vectors(name: str, stacks_file: Path, folder: Path, clauses: Sequence[str]) -> int:
    """`oracle vectors`: returns 0 when every case passes, else 1."""
    known = load_stacks(stacks_file)
    if name not in known:
        raise ConfigError(f"unknown stack {name!r} ({stacks_file}); known are {', '.join(known)}.")
    files = vector_files(folder)
    if clauses:
        files = [path for path in files if path.stem in clauses]
        if not files:
            raise ConfigError(f"{folder} holds no vectors of {', '.join(clauses)}.")
    console, failed = Console(), 0
    for path in files:
        try:
            results = run_vectors(known[name], path)
        except OracleError as error:
            failed += 1
            _print(console, f"{path.stem}  FAIL  {error}")
            continue
        failed += sum(result.reason is not None for result in results)
        _print_clause(console, path.stem, results)
    return 1 if failed else 0


def _print_clause(console: Console, clause: str, results: Sequence[CaseResult]) -> None:
    wrong = [result for result in results if result.reason is not None]
    word = "FAIL" if wrong else "pass"
    _print(console, f"{clause}  {word}  {len(results) - len(wrong)} of {len(results)} cases")
    table = Table.grid(padding=(0, 2))
    for result in wrong:
        table.add_row("", result.name, result.reason)
    if wrong:
        console.print(table, markup=False, highlight=False)


def _check_files_of_judging(tolerances: Path | None, floor: str) -> None:
    """Refuse files that cannot be read before hours of training, not after."""
    if tolerances is not None:
        from oracle.tolerance import load_tolerances

        load_tolerances(tolerances)
    if floor not in ("auto", "none"):
        from oracle.floor import read_floor

        read_floor(Path(floor))


def _print_verdict(verdict: Verdict, *, as_json: bool) -> None:
    if as_json:
        from oracle.report.json import dumps

        print(dumps(verdict), end="")
        return
    from oracle.report.text import print_verdict

    print_verdict(verdict, Console())


def _print(console: Console, line: str) -> None:
    console.print(line, markup=False, highlight=False, soft_wrap=True)
