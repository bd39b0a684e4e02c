"""Divergences and self-checks -> AGREE, DIVERGED, INCONCLUSIVE or ERROR (design, section 6).

DIVERGED when a rule was broken, even where something else could not be judged; INCONCLUSIVE when
nothing was broken and something could not be judged; AGREE when every channel of every step was
compared, inside tolerance, and both legs were alive. What cannot be compared at all is ERROR.
"""

from __future__ import annotations

import hashlib
import math
import tomllib
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import polars as pl

from oracle.compare import Comparison, compare
from oracle.contract import (
    CONTRACT_VERSION,
    Divergence,
    LegRecord,
    PhaseResult,
    Purpose,
    Verdict,
    VerdictName,
    phases,
)
from oracle.errors import OracleError, TraceError
from oracle.floor import Floor, holding, leg_provenance, read_floor
from oracle.health import ailments
from oracle.tolerance import Tolerances, default_file, load_tolerances
from oracle.trace import Trace

NO_TOLERANCES: Mapping[str, str] = {"file": "", "sha256": ""}
NOTHING: Mapping[str, Any] = {
    "num_steps": 0,
    "num_examples": 0,
    "num_tokens": 0,
    "mean_relative_loss_difference": None,
    "max_relative_loss_difference": None,
    "max_relative_grad_norm_difference": None,
}


def judge(
    a: Trace,
    b: Trace,
    *,
    purpose: Purpose,
    names: tuple[str, str],
    tolerances: Path | None,
    floor: Path | None,
    run: str | None,
) -> Verdict:
    """Judge two traces.

    `tolerances` defaults to the file of the run's precision. A cross comparison without a floor is
    judged on the exact phases and step 0; a self comparison without a floor must be bit-identical.
    What cannot be compared gives a verdict ERROR, never an exception.
    """
    try:
        _check_comparable(a, b, purpose, names)
        rules = load_tolerances(tolerances or default_file(_precision(a) or "float64"))
        if _precision(a) not in (None, rules.precision):
            raise TraceError(
                f"{rules.file} is for {rules.precision} and the run is {_precision(a)}; "
                "name the tolerance file of the run's precision."
            )
        measured: Floor | None = None
        refused: list[str] = []
        if floor is not None:
            measured, refused = holding(
                read_floor(floor),
                config_sha256=[trace.header["config_sha256"] for trace in (a, b)],
                legs=[
                    (trace.header["provenance"]["stack"], leg_provenance(trace.header))
                    for trace in (a, b)
                ],
            )
    except OracleError as error:
        return error_verdict(
            reasons=[str(error)], names=names, purpose=purpose, run=run, traces=(a, b)
        )
    exact = purpose == "self" and floor is None
    found = compare(a, b, names=names, tolerances=rules, floor=measured, exact=exact)
    reasons = list(ailments(a, b, purpose=purpose, names=names, tolerances=rules))
    reasons += [*found.reasons, *(refused if measured is None else ())]
    warnings = [*_typed(a, names[0]), *(refused if measured is not None else ())]
    return _verdict(a, b, found, reasons, warnings, purpose, names, rules, measured, run)


def error_verdict(
    *,
    reasons: Sequence[str],
    names: tuple[str, str],
    purpose: Purpose = "cross",
    mode: str = "train",
    run: str | None = None,
    config: Mapping[str, Any] | None = None,
    traces: tuple[Trace | None, Trace | None] = (None, None),
    paths: tuple[Path | str, Path | str] = ("", ""),
    errors: tuple[str | None, str | None] = (None, None),
    warnings: Sequence[str] = (),
) -> Verdict:
    """Return the verdict ERROR: could not be judged, and why.

    Give what is known: traces that were read, paths of the others, each failed leg's own sentence.
    """
    known = next((trace for trace in traces if trace is not None), None)
    described = {"name": "", "sha256": "", "precision": None, "num_steps": None}
    if config is not None or known is not None:
        described = dict(config or _config(known))  # type: ignore[arg-type]
    return Verdict(
        verdict="ERROR",
        purpose=purpose,
        mode=known.header["mode"] if known is not None else mode,  # type: ignore[arg-type]
        headline=f"could not be judged: {reasons[0]}" if reasons else "could not be judged",
        run=run,
        created=_now(),
        config=described,
        legs=(
            _leg(traces[0], names[0], paths[0], errors[0]),
            _leg(traces[1], names[1], paths[1], errors[1]),
        ),
        tolerances=NO_TOLERANCES,
        floor=None,
        first=None,
        divergences=(),
        consequences=(),
        phases=tuple(
            PhaseResult(
                phase=entry.name,
                status="not_compared",
                unit=entry.unit,
                num_compared=0,
                num_agreeing=0,
                agreement=None,
                reason="the run could not be judged",
            )
            for entry in phases()
        ),
        reasons=tuple(reasons),
        warnings=tuple(warnings),
        summary=NOTHING,
    )


def _verdict(
    a: Trace,
    b: Trace,
    found: Comparison,
    reasons: Sequence[str],
    warnings: Sequence[str],
    purpose: Purpose,
    names: tuple[str, str],
    rules: Tolerances,
    floor: Floor | None,
    run: str | None,
) -> Verdict:
    name: VerdictName = "AGREE"
    if found.divergences:
        name = "DIVERGED"
    elif reasons:
        name = "INCONCLUSIVE"
    first = found.divergences[0] if found.divergences else None
    summary = _summary(found)
    return Verdict(
        verdict=name,
        purpose=purpose,
        mode=a.header["mode"],
        headline=_headline(name, first, found, reasons, names, summary),
        run=run,
        created=_now(),
        config=_config(a),
        legs=(_leg(a, names[0]), _leg(b, names[1])),
        tolerances={"file": rules.file, "sha256": rules.sha256},
        floor=None
        if floor is None
        else {"file": floor.file, "sha256": floor.sha256, "provenance": floor.provenance},
        first=first,
        divergences=found.divergences,
        consequences=found.consequences,
        phases=found.phases,
        reasons=tuple(reasons),
        warnings=tuple(warnings),
        summary=summary,
    )


def _check_comparable(a: Trace, b: Trace, purpose: Purpose, names: tuple[str, str]) -> None:
    """Raise TraceError when two traces are not of one run, or share nothing."""
    keys = ["contract", "mode"] + (["config_sha256"] if purpose == "cross" else [])
    for key in keys:
        if a.header[key] != b.header[key]:
            raise TraceError(
                f"the traces are of different runs: {key} is {_short(a.header[key])} in {names[0]} "
                f"and {_short(b.header[key])} in {names[1]}."
            )
    if a.header["contract"] != CONTRACT_VERSION:
        raise TraceError(
            f"both traces follow contract {a.header['contract']} and this oracle "
            f"{CONTRACT_VERSION}; use the oracle of that contract."
        )
    for trace, name in zip((a, b), names, strict=True):
        if trace.steps["step"].n_unique() != trace.steps.height:
            raise TraceError(f"{name} recorded a step twice in {trace.path}.")
    if a.header["mode"] == "train":
        shared = a.steps.join(b.steps, on="step", how="semi")
        if not shared.height:
            raise TraceError(
                f"no step is in both traces: {names[0]} has {_span(a)}, {names[1]} {_span(b)}."
            )
    ids = [trace.tokens.select("split", "id") for trace in (a, b)]
    if not ids[0].join(ids[1], on=["split", "id"], how="semi").head(1).collect().height:
        raise TraceError("no example is in both traces; they are of different data.")


def _summary(found: Comparison) -> Mapping[str, Any]:
    loss = [v for v in found.relative.get("steps.loss", ()) if not math.isnan(v)]
    norm = [v for v in found.relative.get("steps.grad_norm", ()) if not math.isnan(v)]
    return {
        "num_steps": found.num_steps,
        "num_examples": found.num_examples,
        "num_tokens": found.num_tokens,
        "mean_relative_loss_difference": sum(loss) / len(loss) if loss else None,
        "max_relative_loss_difference": max(loss, default=None),
        "max_relative_grad_norm_difference": max(norm, default=None),
    }


def _headline(
    name: VerdictName,
    first: Divergence | None,
    found: Comparison,
    reasons: Sequence[str],
    names: tuple[str, str],
    summary: Mapping[str, Any],
) -> str:
    """Return a sentence that makes sense alone."""
    legs = f"{names[0]} and {names[1]}"
    if first is not None:
        others = len(found.divergences) - 1
        more = f"; {others} more independent divergence{'s' * (others > 1)}" if others else ""
        return f"{legs} part in {first.phase}{_where(first)}{more}"
    if name == "INCONCLUSIVE":
        return f"{legs} could not be judged to the end: {reasons[0]}"
    what = f"{summary['num_examples']} examples"
    if summary["num_steps"]:
        what = f"{summary['num_steps']} steps and {what}"
    worst = summary["max_relative_loss_difference"]
    tail = "" if worst is None else f"; losses differ by {worst:.2g} at most"
    return f"{legs} agree on {what}{tail}"


def _where(entry: Divergence) -> str:
    parts = [] if entry.step is None else [f"step {entry.step}"]
    parts += [] if entry.example is None else [f"example {entry.example}"]
    parts += [] if entry.position is None else [f"token {entry.position}"]
    parts += [] if entry.tensor is None else [entry.tensor]
    if not parts:
        parts = [entry.field.removeprefix("header.facts.")]
    return f" at {', '.join(parts)}" + (f" ({entry.hint})" if entry.hint else "")


def _typed(trace: Trace, name: str) -> list[str]:
    """Warn of control tokens that a user typed: they encode as control tokens (S-05)."""
    typed = trace.tokens.filter(pl.col("typed_control_tokens") > 0).select("id").collect()["id"]
    if not len(typed):
        return []
    return [
        f"{len(typed)} examples hold control tokens that were typed in a message, as {name} counts "
        f"them; they are control tokens to the model (first: {typed[0]})"
    ]


def _config(trace: Trace) -> Mapping[str, Any]:
    return {
        "name": _config_name(trace),
        "sha256": trace.header["config_sha256"],
        "precision": _precision(trace),
        "num_steps": trace.header["facts"].get("num_steps"),
    }


def _config_name(trace: Trace) -> str:
    """Return the name in the run config when it still is the one that was run, else its file's."""
    path = Path(trace.header["provenance"]["config_path"])
    try:
        raw = path.read_bytes()
        if hashlib.sha256(raw).hexdigest() == trace.header["config_sha256"]:
            return str(tomllib.loads(raw.decode("utf-8"))["name"])
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError, KeyError):
        return path.stem
    return path.stem


def _precision(trace: Trace) -> str | None:
    """Return the dtype of the parameters as the run config spells it; None when nothing trained."""
    dtypes = trace.header["facts"].get("dtypes")
    return None if dtypes is None else str(dtypes["param"]).rpartition(".")[2]


def _leg(
    trace: Trace | None, name: str, path: Path | str = "", error: str | None = None
) -> LegRecord:
    if trace is None:
        return LegRecord(
            name=name, stack=None, trace=str(path), code_sha256=None, versions={}, error=error
        )
    provenance = trace.header["provenance"]
    return LegRecord(
        name=name,
        stack=provenance["stack"],
        trace=str(trace.path),
        code_sha256=provenance["code_sha256"],
        versions=provenance["versions"],
        error=error,
    )


def _span(trace: Trace) -> str:
    if not trace.steps.height:
        return "none"
    first, last = trace.steps["step"][0], trace.steps["step"][-1]
    return f"steps {first} to {last}"


def _short(value: str) -> str:
    return value[:12] if len(value) == 64 else value


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
