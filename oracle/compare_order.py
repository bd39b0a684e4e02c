"""Phases `order` and `batch` (S-08 to S-11): which examples a step takes, and the arrays they give.

What the data gave, the number of examples and of steps in an epoch, belongs to `order`. A lost or
added example explains every later difference of the order; a batch is explained by the order of its
step, by the rendering of its examples, or by a fact.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import polars as pl

from oracle.contract import Consequence, Divergence
from oracle.hints import batch_hint, examples_hint, lost_example_hint, steps_per_epoch_hint
from oracle.outcome import Outcome, divergence, explained_by_facts, grouped, outcome, phase
from oracle.trace import Trace

BATCH_FIELDS = ("batch_shape", "num_tokens", "num_targets", "batch_sha256")


def compare_order(
    a: Trace,
    b: Trace,
    steps: pl.DataFrame,
    examples: pl.DataFrame,
    *,
    names: tuple[str, str],
    parted_facts: Collection[str],
) -> tuple[Outcome, frozenset[int]]:
    """Compare what the data gave and the examples of each step; also return the parted steps."""
    both = steps.filter(pl.col("in_a") & pl.col("in_b"))
    parted = both.filter(_differs("epoch") | _differs("examples"))
    given = _compare_examples_given(a, b, examples, names)
    # Only a train example that is lost, added or moved changes which examples a step takes.
    of_train = any(entry.split == "train" for entry in given)
    because = "order"
    if explained_by_facts("order", parted_facts):
        divergences, because, num_explained = [], "echo", parted.height + len(given)
    elif of_train:
        divergences, num_explained = given, parted.height
    else:
        divergences, num_explained = given + _compare_epochs(a, b, parted, names), 0
    missing = _missing_steps(steps, names)
    return outcome(
        "order",
        num_compared=both.height,
        num_agreeing=both.height - parted.height,
        divergences=[*divergences, *missing],
        consequences=[
            Consequence(
                phase="order", first_step=_first(parted), num=num_explained, because=because
            )
        ],
    ), frozenset(parted["step"].to_list())


def compare_batch(
    steps: pl.DataFrame,
    *,
    order_parted: Collection[int],
    examples_parted: Mapping[str, str],
    parted_facts: Collection[str],
    control: bool = False,
) -> tuple[Outcome, Mapping[int, str]]:
    """Compare shape, counts and hash of each step's arrays.

    Also return the parted steps, each with the phase in which it began to part. With `control` (a
    stack against itself under another config) the rows of a step may be cut into micro-batches in
    another way: their bytes, which the hash is of, are the same.
    """
    both = steps.filter(pl.col("in_a") & pl.col("in_b"))
    if control:
        both = both.with_columns(
            pl.when(_rows_and_length("a").eq_missing(_rows_and_length("b")))
            .then("batch_shape_a")
            .otherwise("batch_shape_b")
            .alias("batch_shape_b")
        )
    parted = both.filter(pl.any_horizontal(_differs(field) for field in BATCH_FIELDS))
    found: list[Divergence] = []
    roots: dict[int, str] = {}
    by_facts = explained_by_facts("batch", parted_facts)
    for row in parted.iter_rows(named=True):
        taken = {*row["examples_a"], *row["examples_b"]}
        rendered = {examples_parted[name] for name in taken if name in examples_parted}
        if by_facts or row["step"] in order_parted:
            roots[row["step"]] = "echo" if by_facts else "order"
        elif rendered:
            roots[row["step"]] = min(rendered, key=lambda name: phase(name).rank)
        else:
            roots[row["step"]] = "batch"
            found.append(_of_batch(row))
    explained = [name for name in dict.fromkeys(roots.values()) if name != "batch"]
    result = outcome(
        "batch",
        num_compared=both.height,
        num_agreeing=both.height - parted.height,
        divergences=grouped(found),
        consequences=[
            Consequence(
                phase="batch",
                first_step=next(step for step, root in roots.items() if root == name),
                num=sum(root == name for root in roots.values()),
                because=name,
            )
            for name in explained
        ],
    )
    return result, roots


def _compare_examples_given(
    a: Trace, b: Trace, examples: pl.DataFrame, names: tuple[str, str]
) -> list[Divergence]:
    """Return lost examples, or moved ones; numbers of examples when the rows tell nothing."""
    counts = [trace.header["facts"]["num_examples"] for trace in (a, b)]
    found = []
    for row in examples.filter(pl.col("in_a") != pl.col("in_b")).iter_rows(named=True):
        holder = "a" if row["in_a"] else "b"
        last = row[f"index_{holder}"] == max(c[row["split"]] for c in counts) - 1
        found.append(
            divergence(
                "order",
                field="tokens.id",
                a="present" if row["in_a"] else "absent",
                b="present" if row["in_b"] else "absent",
                step=row["first_step"],
                split=row["split"],
                example=row["id"],
                hint=lost_example_hint(names[row["in_a"]], row["split"], last=last),
            )
        )
    if found:
        return grouped(found)
    moved = examples.filter(pl.col("index_a") != pl.col("index_b"))
    for row in moved.iter_rows(named=True):
        places = {"split": row["split"], "example": row["id"], "step": row["first_step"]}
        left, right = f"{row['index_a']}", f"{row['index_b']}"
        found.append(divergence("order", field="tokens.index", a=left, b=right, **places))
    for split in ("train", "eval", "edge"):
        if counts[0][split] != counts[1][split]:
            field = f"header.facts.num_examples.{split}"
            left, right = (f"{count[split]}" for count in counts)
            found.append(divergence("order", field=field, a=left, b=right, split=split))
    return grouped(found)


def _compare_epochs(
    a: Trace, b: Trace, parted: pl.DataFrame, names: tuple[str, str]
) -> list[Divergence]:
    """Return another length of the epoch, and other examples in a step that it does not explain."""
    found: list[Divergence] = []
    lengths = [trace.header["facts"].get("steps_per_epoch") for trace in (a, b)]
    if lengths[0] != lengths[1]:
        found.append(
            divergence(
                "order",
                field="header.facts.steps_per_epoch",
                a=f"{lengths[0]}",
                b=f"{lengths[1]}",
                hint=steps_per_epoch_hint(lengths, names),
            )
        )
        parted = parted.filter(pl.col("step") < min(n for n in lengths if n is not None))
    if parted.height:
        row = parted.row(0, named=True)
        by_epoch = row["examples_a"] == row["examples_b"]
        found.append(
            divergence(
                "order",
                field="steps.epoch" if by_epoch else "steps.examples",
                a=f"{row['epoch_a']}" if by_epoch else _examples_text(row["examples_a"]),
                b=f"{row['epoch_b']}" if by_epoch else _examples_text(row["examples_b"]),
                step=row["step"],
                example=_first_other(row["examples_a"], row["examples_b"]),
                hint=examples_hint(a, b, row, names),
                num_like_it=parted.height - 1,
            )
        )
    return found


def _missing_steps(steps: pl.DataFrame, names: tuple[str, str]) -> list[Divergence]:
    one_sided = steps.filter(pl.col("in_a") != pl.col("in_b"))
    if not one_sided.height:
        return []
    row = one_sided.row(0, named=True)
    counts = [int(steps["in_a"].sum()), int(steps["in_b"].sum())]
    return [
        divergence(
            "order",
            field="steps.step",
            a=f"{counts[0]} steps",
            b=f"{counts[1]} steps",
            step=row["step"],
            hint=f"{names[row['in_a']]} has no step {row['step']}",
            num_like_it=one_sided.height - 1,
        )
    ]


def _of_batch(row: Mapping[str, Any]) -> Divergence:
    field = next(f for f in BATCH_FIELDS if row[f"{f}_a"] != row[f"{f}_b"])
    left, right = row[f"{field}_a"], row[f"{field}_b"]
    if field == "batch_sha256":
        left, right = left[:12], right[:12]
    return divergence(
        "batch",
        field=f"steps.{field}",
        a=f"{left}",
        b=f"{right}",
        step=row["step"],
        hint=batch_hint(field, row["batch_shape_a"], row["batch_shape_b"]),
    )


def _differs(field: str) -> pl.Expr:
    return pl.col(f"{field}_a").ne_missing(pl.col(f"{field}_b"))


def _rows_and_length(leg: str) -> pl.Expr:
    """Return (A·B, T) of a step's arrays (A, B, T), as one value."""
    shape = pl.col(f"batch_shape_{leg}").list
    return pl.struct(rows=shape.get(0) * shape.get(1), length=shape.get(2))


def _first(parted: pl.DataFrame) -> int | None:
    return int(parted["step"][0]) if parted.height else None


def _first_other(a: Sequence[str], b: Sequence[str]) -> str | None:
    """Return the first example of `a` that is not at its place in `b`."""
    for place, name in enumerate(a):
        if place >= len(b) or b[place] != name:
            return name
    return b[len(a)] if len(b) > len(a) else None


def _examples_text(examples: Sequence[str]) -> str:
    shown = ", ".join(examples[:3]) + (", …" if len(examples) > 3 else "")
    return f"{len(examples)} examples" + (f": {shown}" if examples else "")
