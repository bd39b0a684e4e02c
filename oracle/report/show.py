"""One place of a stored run in the terminal: a step, a phase, an example, in both legs.

Text and ordinary token ids only with `reveal`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.text import Text

from oracle.align import align_steps, example_rows
from oracle.compare_numbers import Cells, scalar_cells, units
from oracle.contract import Divergence, Verdict, phases
from oracle.errors import OracleError
from oracle.report.json import loads
from oracle.report.text import print_verdict
from oracle.report.tokens import Cell, Example, Names, Token
from oracle.report.tokens import example as aligned
from oracle.report.words import STATUS_WORDS, apart, percent, place, short, visible
from oracle.trace import Trace, read_trace

MAX_ROWS = 40
MAX_DIVERGENCES = 5
TOKEN_PHASES = ("text", "ids", "mask")
OPS = {"replace": "≠", "delete": "−", "insert": "+"}


def print_show(
    run_dir: Path,
    *,
    step: int | None,
    phase: str | None,
    example: str | None,
    reveal: bool,
    console: Console,
) -> int:
    """Print a run, or one place of it; returns exit code 0.

    Raises OracleError when there is no verdict, or no such step, phase or example.
    """
    verdict = read_verdict(run_dir)
    _check_phase(phase)
    if step is None and phase is None and example is None:
        print_verdict(verdict, console)
        _print_run(verdict, run_dir, console)
        return 0
    listed = [d for d in verdict.divergences if phase is None or d.phase == phase]
    if phase is not None:
        _print_phase(verdict, phase, listed, console)
    if example is None and phase in TOKEN_PHASES:
        here = [d for d in listed if step is None or d.step == step]
        example = next((d.example for d in here if d.example is not None), None)
    if step is None and example is None:
        return 0
    legs = verdict.legs
    a, b = (read_trace(run_dir / leg.name) for leg in legs)
    if step is not None:
        _print_step(a, b, step, [leg.name for leg in legs], verdict, console)
    if example is not None:
        found = _example(a, b, example, reveal=reveal)
        _print_example(found, [leg.name for leg in legs], reveal=reveal, console=console)
    return 0


def read_verdict(run_dir: Path) -> Verdict:
    """Read `verdict.json` of a run directory; raises OracleError."""
    path = run_dir / "verdict.json"
    try:
        return loads(path.read_text("utf-8"))
    except OSError as error:
        raise OracleError(
            f"{path} cannot be read ({error.strerror}): the run was not judged yet, or is no run."
        ) from None


def _check_phase(phase: str | None) -> None:
    names = [p.name for p in phases()]
    if phase is not None and phase not in names:
        raise OracleError(f"{phase!r} is no phase; the phases are {', '.join(names)}.")


def _put(console: Console, text: str | Text = "") -> None:
    console.print(text if isinstance(text, Text) else Text(text), soft_wrap=True, highlight=False)


def _print_run(verdict: Verdict, run_dir: Path, console: Console) -> None:
    _put(console)
    _put(console, f"  run     {visible(str(run_dir))} · {verdict.mode} · {verdict.created}")
    for leg in verdict.legs:
        versions = ", ".join(f"{name} {version}" for name, version in leg.versions.items())
        code = (leg.code_sha256 or "unknown")[:12]
        _put(console, visible(f"  {leg.name:<7} {leg.stack} · code {code} · {versions}"))
    floor = "none measured" if verdict.floor is None else str(verdict.floor["file"])
    _put(console, visible(f"  rules   {verdict.tolerances['file']} · floor {floor}"))
    if (run_dir / "report.html").exists():
        _put(console, visible(f"  page    {run_dir / 'report.html'}"))


def _print_phase(
    verdict: Verdict, phase: str, listed: Sequence[Divergence], console: Console
) -> None:
    result = next((r for r in verdict.phases if r.phase == phase), None)
    if result is None:
        _put(console, f"{phase}  not compared")
        return
    share = percent(result.num_agreeing, result.num_compared)
    reason = "" if result.reason is None else f" · {result.reason}"
    _put(
        console,
        visible(
            f"{phase}  {STATUS_WORDS[result.status]} · {result.num_agreeing} of "
            f"{result.num_compared} {result.unit} agree ({share}){reason}"
        ),
    )
    for item in listed[:MAX_DIVERGENCES]:
        more = f" (and {item.num_like_it} like it)" if item.num_like_it else ""
        names = [leg.name for leg in verdict.legs]
        _put(console, f"  {place(item)}{more}")
        _put(console, visible(f"    {names[0]} {item.a} · {names[1]} {item.b}"))
        for line in (apart(item), item.hint or "", f"{item.rule} · clause {item.clause}"):
            if line:
                _put(console, visible(f"    {line}"))
    if len(listed) > MAX_DIVERGENCES:
        _put(console, f"  {len(listed) - MAX_DIVERGENCES} more in verdict.json")


def _print_step(
    a: Trace, b: Trace, step: int, names: Sequence[str], verdict: Verdict, console: Console
) -> None:
    frame = align_steps(a, b).filter(step=step)
    if frame.height == 0:
        last = max((t.steps["step"][-1] for t in (a, b) if t.steps.height), default=None)
        known = "nothing was trained" if last is None else f"its steps end at {last}"
        raise OracleError(f"the run has no step {step}; {known}.")
    rows = [("field", *names, "absolute", "relative", "ulps", "clause")]
    row = frame.row(0, named=True)
    for phase in phases():
        for field in phase.fields:
            column = field.partition(".")[2]
            if field.startswith("steps.") and column != "step" and phase.exact:
                rows.append((column, *_exact(row, column), "", "", "", phase.clause))
    precision = verdict.config["precision"] or "float64"
    whole = {found.field: found for found in scalar_cells(align_steps(a, b))}
    clauses = {field: phase.clause for phase in phases() for field in phase.fields}
    for found in scalar_cells(frame):
        if len(found.steps):
            numbers = _numbers(whole[found.field], step, precision)
            rows.append((found.field.partition(".")[2], *numbers, clauses[found.field]))
    _put(console, f"step {step}")
    for line in _columns(rows):
        _put(console, f"  {line}")


def _exact(row: dict[str, object], column: str) -> tuple[str, str]:
    """Values of an exact column as shown: small ones as they stand, long ones equal or not."""
    a, b = row[f"{column}_a"], row[f"{column}_b"]
    if column in ("examples", "batch_sha256"):
        word = "equal" if a == b else "differs"
        sides = [v if isinstance(v, str) else " ".join(map(str, v)) for v in (a or "", b or "")]  # type: ignore[call-overload]
        if a == b:
            return word, word
        return visible(sides[0][:40]), visible(sides[1][:40])
    return ("absent" if a is None else str(a)), ("absent" if b is None else str(b))


def _numbers(found: Cells, step: int, precision: str) -> tuple[str, str, str, str, str]:
    at = int(np.searchsorted(found.steps, step))
    a, b = float(found.a[at]), float(found.b[at])
    ulps = units(found, at, precision)
    absolute, relative = float(found.absolute[at]), float(found.relative[at])
    return repr(a), repr(b), short(absolute), short(relative), short(ulps)


def _columns(rows: Sequence[Sequence[str]]) -> Iterator[str]:
    widths = [max(len(row[k]) for row in rows) for k in range(len(rows[0]))]
    for row in rows:
        yield "  ".join(c.ljust(w) for c, w in zip(row, widths, strict=True)).rstrip()


def _example(a: Trace, b: Trace, id: str, *, reveal: bool) -> Example:
    rows = [example_rows(trace, [id]).get(id) for trace in (a, b)]
    left, right = rows
    if left is None or right is None:
        who = "neither leg has" if left is None and right is None else "one leg lacks"
        raise OracleError(f"{who} an example {visible(id)!r}.")
    return aligned((Names.of(a, reveal=reveal), Names.of(b, reveal=reveal)), (left, right))


def _print_example(found: Example, names: Sequence[str], *, reveal: bool, console: Console) -> None:
    _put(
        console,
        f"example {found.id} ({found.split}) · {found.num_a} tokens against {found.num_b}, "
        f"{found.num_different} differ",
    )
    for piece in found.pieces:
        if piece.op == "equal":
            continue
        (i, j), (k, l) = piece.a, piece.b
        shown = f": «{piece.text_a}» against «{piece.text_b}»" if reveal else ""
        _put(console, f"  text {OPS[piece.op]} characters {i}–{j} against {k}–{l}{shown}")
    rows = [("", names[0], "", names[1])]
    rows += [_cell_row(cell) for cell in found.cells[:MAX_ROWS]]
    for line in _columns(rows):
        _put(console, f"  {line}")
    if (hidden := len(found.cells) - MAX_ROWS + found.num_hidden) > 0:
        _put(console, f"  {hidden} more rows on the page")
    if not reveal:
        _put(console, Text("  text and ordinary ids are hidden: --reveal-text", style="dim"))


def _cell_row(cell: Cell) -> tuple[str, str, str, str]:
    if cell.num_folded:
        return "", f"… {cell.num_folded} equal", "", "…"
    return "" if cell.same else "≠", _token(cell.a), "", _token(cell.b)


def _token(token: Token | None) -> str:
    if token is None:
        return "absent"
    name = "•" if token.name is None else token.name
    id = "" if token.id is None else f" ({token.id})"
    return f"{token.position:>5} {'target ' if token.target else 'ignored'} {name}{id}"
