"""Divergences and self-checks -> AGREE, DIVERGED, INCONCLUSIVE or ERROR (design, section 6).

DIVERGED when a rule was broken, even where something else could not be judged; INCONCLUSIVE when
nothing was broken and something could not be judged; AGREE when every channel of every step was
compared, inside tolerance, and both legs were alive. What cannot be compared at all is ERROR.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from oracle.compare import Comparison, compare
from oracle.compare_checkpoint import has_checkpoint
from oracle.contract import (
    CONTRACT_VERSION,
    PhaseResult,
    Purpose,
    Verdict,
    VerdictName,
    phases,
)
from oracle.described import describe_config, describe_leg, precision_of
from oracle.errors import OracleError, TraceError
from oracle.floor import Floor, holding, leg_provenance, read_floor
from oracle.headline import headline
from oracle.health import ailments
from oracle.tolerance import Tolerances, default_file, load_tolerances
from oracle.trace import Trace

NO_TOLERANCES: Mapping[str, str] = {"file": "", "sha256": ""}
NONE = np.zeros(0)
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
        rules = load_tolerances(tolerances or default_file(precision_of(a) or "float64"))
        if precision_of(a) not in (None, rules.precision):
            raise TraceError(
                f"{rules.file} is for {rules.precision} and the run is {precision_of(a)}; "
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
    control = purpose == "self" and a.header["config_sha256"] != b.header["config_sha256"]
    ill = list(ailments(a, b, purpose=purpose, names=names, tolerances=rules))
    found = compare(
        a,
        b,
        names=names,
        tolerances=rules,
        floor=measured,
        exact=exact,
        control=control,
        floor_helps=not ill,
    )
    reasons = [*ill, *found.reasons, *(refused if measured is None else ())]
    warnings = [*_typed(a, names[0]), *(refused if measured is not None else ())]
    # A leg of a run owes its checkpoint; a trace that was copied may have left it behind.
    (warnings if run is None else reasons).extend(_without_checkpoint(a, b, names))
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
        described = dict(config or describe_config(known))  # type: ignore[arg-type]
    return Verdict(
        verdict="ERROR",
        purpose=purpose,
        mode=known.header["mode"] if known is not None else mode,  # type: ignore[arg-type]
        headline=f"could not be judged: {reasons[0]}" if reasons else "could not be judged",
        run=run,
        created=_now(),
        config=described,
        legs=(
            describe_leg(traces[0], names[0], paths[0], errors[0]),
            describe_leg(traces[1], names[1], paths[1], errors[1]),
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
        headline=headline(name, found.divergences, reasons, names, summary),
        run=run,
        created=_now(),
        config=describe_config(a),
        legs=(describe_leg(a, names[0]), describe_leg(b, names[1])),
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
    if not a.digests.join(b.digests, on=["split", "id"], how="semi").height:
        raise TraceError("no example is in both traces; they are of different data.")


def _summary(found: Comparison) -> Mapping[str, Any]:
    loss, norm = (
        values[~np.isnan(values)]
        for values in (found.relative.get(f"steps.{f}", NONE) for f in ("loss", "grad_norm"))
    )
    return {
        "num_steps": found.num_steps,
        "num_examples": found.num_examples,
        "num_tokens": found.num_tokens,
        "mean_relative_loss_difference": float(loss.mean()) if len(loss) else None,
        "max_relative_loss_difference": float(loss.max()) if len(loss) else None,
        "max_relative_grad_norm_difference": float(norm.max()) if len(norm) else None,
    }


def _typed(trace: Trace, name: str) -> list[str]:
    """Warn of control tokens that a user typed: they encode as control tokens (S-05)."""
    typed = trace.digests.filter(pl.col("typed_control_tokens") > 0)["id"]
    if not len(typed):
        return []
    return [
        f"{len(typed)} examples hold control tokens that were typed in a message, as {name} counts "
        f"them; they are control tokens to the model (first: {typed[0]})"
    ]


def _without_checkpoint(a: Trace, b: Trace, names: tuple[str, str]) -> list[str]:
    if a.header["mode"] == "render":
        return []
    return [
        f"{name} has no checkpoint/, so the weights that it delivers were not checked (S-13)"
        for trace, name in zip((a, b), names, strict=True)
        if not has_checkpoint(trace)
    ]


def _span(trace: Trace) -> str:
    if not trace.steps.height:
        return "none"
    first, last = trace.steps["step"][0], trace.steps["step"][-1]
    return f"steps {first} to {last}"


def _short(value: str) -> str:
    return value[:12] if len(value) == 64 else value


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
