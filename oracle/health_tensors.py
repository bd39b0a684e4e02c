"""Whether the rows of tensors/ can bear witness: every row that S-21 asks for, and live sketches.

Without this, a row that is missing on both sides is never compared and passes as agreement, and so
does a sketch of zeros: the norms that are left are poor witnesses.

Reach of a sketch. Over random signs E|sketch|^2 = norm^2. With n <= 64 entries each bucket holds
one entry at most and the two are equal. With more, each bucket is a sum under random signs, so
whatever the entries are, |sketch| > k norm has a probability below 2 exp(-k^2 / 2) (Khintchine):
3e-14 for k = 8. A short sketch is no such sign, because entries that share a bucket may cancel (a
hot column of a matrix whose width is a multiple of 64); so only the median row of a kind must not
be shorter than 1/8 of its norm, and none may be zero.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import polars as pl

from oracle.compare_tensors import KINDS
from oracle.described import read_config
from oracle.statistics import NUM_BUCKETS
from oracle.trace import Trace

REACH = 8.0
EQUAL = 1e-6  # relative, for n <= 64: a sum of squares in another order
SMALLEST_NORM = 1e-300  # below it the entries of a sketch underflow
OF_ALL_PARAMETERS = ("init", "param")


def tensor_ailments(a: Trace, b: Trace, *, names: tuple[str, str]) -> Iterator[str]:
    """Yield why the tensor rows of two traces of mode train cannot bear out an agreement."""
    every, recorded = _tensors_every(a), _recorded_steps(a) | _recorded_steps(b)
    for trace, name in zip((a, b), names, strict=True):
        steps = _expected_steps(trace.done["num_steps"], every, recorded)
        missing = _missing_rows(trace, steps)
        if missing.height:
            step, kind, tensor = missing.row(0)
            yield (
                f"{name} lacks {missing.height} rows of tensors/ that S-21 asks for, first {kind} "
                f"of {tensor} at step {step}"
            )
        yield from (f"{name} {sentence}" for sentence in _sketches(trace))


def _tensors_every(trace: Trace) -> int | None:
    """Return the rhythm that the run config states; None when that file is not at hand."""
    config = read_config(trace)
    return None if config is None else int(config["trace"]["tensors_every"])


def _recorded_steps(trace: Trace) -> set[int]:
    return set(trace.reach.filter(pl.col("kind") != "init")["step"].unique().to_list())


def _expected_steps(num_steps: int, every: int | None, recorded: set[int]) -> list[int]:
    """Return the steps that tensors are due at (S-21); without a config, by the rhythm begun."""
    if every is None:
        every = min(recorded - {0}, default=num_steps) if recorded else 0
    return [t for t in range(num_steps) if every and (t % every == 0 or t == num_steps - 1)]


def _missing_rows(trace: Trace, steps: list[int]) -> pl.DataFrame:
    """Return (step, kind, name) of every row that should be there and is not."""
    facts = trace.header["facts"]["parameters"]
    names = pl.DataFrame(
        {"name": list(facts), "trainable": [entry["trainable"] for entry in facts.values()]},
        schema={"name": pl.String, "trainable": pl.Boolean},
    )
    due = [(0, "init"), *((step, kind) for step in steps for kind in KINDS)]
    return (
        pl.DataFrame(due, schema={"step": pl.Int64, "kind": pl.String}, orient="row")
        .join(names, how="cross")
        .filter(pl.col("trainable") | pl.col("kind").is_in(OF_ALL_PARAMETERS))
        .join(
            trace.reach,
            on=["step", "kind", "name"],
            how="anti",
            maintain_order="left",
        )
        .select("step", "kind", "name")
    )


def _sketches(trace: Trace) -> Iterator[str]:
    sizes = {
        name: math.prod(entry["shape"])
        for name, entry in trace.header["facts"]["parameters"].items()
    }
    rows = trace.reach.filter(
        pl.col("norm").is_finite() & (pl.col("norm") > SMALLEST_NORM)
    ).with_columns(
        size=pl.col("name").replace_strict(sizes, default=NUM_BUCKETS + 1, return_dtype=pl.Int64)
    )
    exact = (pl.col("size") <= NUM_BUCKETS) & ((pl.col("reach") - 1).abs() > EQUAL)
    bad = rows.filter(exact | (pl.col("reach") > REACH) | (pl.col("reach") == 0))
    if bad.height:
        row = bad.row(0, named=True)
        yield (
            f"has {bad.height} sketches that cannot be of their tensors, first {row['kind']} of "
            f"{row['name']} at step {row['step']}: length {row['reach'] * row['norm']:.3g} under "
            f"a norm of {row['norm']:.3g} (S-21)"
        )
    medians = rows.group_by("kind").agg(pl.col("reach").median()).sort("kind")
    for kind, ratio in medians.filter(pl.col("reach") < 1 / REACH).iter_rows():
        yield (
            f"has sketches of kind {kind} whose length is {ratio:.3g} of the norm in the median "
            "(S-21)"
        )
