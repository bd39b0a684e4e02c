"""Reasons for which two traces cannot be judged: legs that are dead, channels that are missing.

Each has passed as agreement in some public project (faults.md, group F). A sentence here makes a
verdict INCONCLUSIVE unless it is DIVERGED.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import polars as pl

from oracle.contract import Purpose
from oracle.health_tensors import tensor_ailments
from oracle.tolerance import Tolerances
from oracle.trace import Trace

CHANNELS = ("lr", "loss", "grad_norm", "clip_factor", "param_norm")


def ailments(
    a: Trace, b: Trace, *, purpose: Purpose, names: tuple[str, str], tolerances: Tolerances
) -> Iterator[str]:
    """Yield every reason for which agreement of these traces would mean nothing."""
    codes = [trace.header["provenance"]["code_sha256"] for trace in (a, b)]
    if purpose == "cross" and codes[0] == codes[1]:
        yield (
            f"both legs ran the same code ({codes[0][:12]}): a stack was compared with itself; "
            "give two stacks, or compare with the purpose self"
        )
    if a.header["mode"] == "render":
        return
    yield from (f"{tolerances.file}: {sentence}" for sentence in tolerances.weaknesses())
    yield from _lengths(a, b, tolerances)
    for trace, name in zip((a, b), names, strict=True):
        yield from (f"{name} {sentence}" for sentence in _missing(trace))
        yield from (f"{name} is dead: {sentence}" for sentence in _dead(trace))
    yield from tensor_ailments(a, b, names=names)


def _lengths(a: Trace, b: Trace, tolerances: Tolerances) -> Iterator[str]:
    both = min(a.steps.height, b.steps.height)
    if both < tolerances.minimum_steps:
        yield f"{both} steps are too few: {tolerances.file} asks for {tolerances.minimum_steps}"
    stated = a.header["facts"]["num_steps"]
    if a.steps.height == b.steps.height < stated:
        yield f"the run has {stated} steps and both legs recorded {both}"


def _missing(trace: Trace) -> Iterator[str]:
    for column in CHANNELS:
        if column not in trace.steps.columns or trace.steps[column].null_count():
            yield f"has steps without {column}, which is required"
    hashes = trace.tensors.filter(pl.col("kind") == "init").select("sha256").collect()
    if not hashes.height or hashes["sha256"].null_count():
        yield "has no hashes of its initial tensors, which are required"
    if trace.done["final"] is None:
        yield "states no hashes of its final tensors, which are required"
    facts = trace.header["facts"]
    num_entries = sum(math.prod(entry["shape"]) for entry in facts["parameters"].values())
    if num_entries != facts["num_parameters"]:
        yield f"names parameters of {num_entries} entries and counts {facts['num_parameters']}"


def _dead(trace: Trace) -> Iterator[str]:
    """Yield signs that a leg did not train at all; only where the steps could show it."""
    steps = trace.steps
    if steps["grad_norm"].count() and (steps["grad_norm"] == 0).all():
        yield "its gradient norm is 0 at every step"
    elif steps.height > 1 and steps["loss"].n_unique() == 1 and steps["loss"].is_finite().all():
        yield "its loss never moves"
    # A norm can stand still for a step by rounding; not for all of them at a positive rate.
    moves = steps.filter(pl.col("lr") > 0).height > 1
    if moves and steps["param_norm"].n_unique() == 1 and steps["param_norm"].is_finite().all():
        yield "its parameters never change"
