"""Phases `text`, `ids`, `mask` (S-03 to S-07): every rendered example of the three splits, exactly.

A part of an example is explained only by an earlier part of the same example, or by a fact of the
phase. Values shown are lengths, positions and control tokens, never text or ordinary ids.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import polars as pl

from oracle.align import example_rows
from oracle.contract import Consequence, Divergence
from oracle.hints_text import text_hint
from oracle.hints_tokens import ids_hint, mask_hint
from oracle.outcome import Outcome, divergence, explained_by_facts, grouped, outcome
from oracle.side import Side, side
from oracle.tokendiff import Ids, codepoints, common_prefix, diff, mask_diff
from oracle.trace import Trace

EARLIER: Mapping[str, Sequence[str]] = {"text": (), "ids": ("text",), "mask": ("text", "ids")}
MAX_DETAILED = 500  # divergent examples of a phase that are looked into; the others are counted


@dataclass(frozen=True, kw_only=True)
class Examples:
    """Outcomes of the three phases; `parted`: id of a parted example -> its first parted phase."""

    outcomes: tuple[Outcome, Outcome, Outcome]
    parted: Mapping[str, str]


def compare_examples(
    a: Trace,
    b: Trace,
    pairs: pl.DataFrame,
    *,
    names: tuple[str, str],
    parted_facts: Collection[str],
) -> Examples:
    """Compare the examples that both legs rendered (`pairs` of `align_examples`)."""
    both = pairs.filter(pl.col("in_a") & pl.col("in_b")).with_columns(
        text=~pl.col("text_equal"),
        ids=~pl.col("ids_equal")
        | (pl.col("num_tokens_before_truncation_a") != pl.col("num_tokens_before_truncation_b"))
        | (pl.col("typed_control_tokens_a") != pl.col("typed_control_tokens_b")),
        mask=~pl.col("mask_equal"),
    )
    outcomes, earlier = [], pl.lit(False)
    for name, describe in DESCRIBE.items():
        parted = both.filter(name)
        explained = explained_by_facts(name, parted_facts)
        alone = parted.clear() if explained else parted.filter(~earlier)
        outcomes.append(
            outcome(
                name,
                num_compared=both.height,
                num_agreeing=both.height - parted.height,
                divergences=_detail(a, b, alone, names, describe),
                consequences=_explained(name, parted, explained),
            )
        )
        earlier = earlier | pl.col(name)
    return Examples(
        outcomes=(outcomes[0], outcomes[1], outcomes[2]),
        parted={
            row["id"]: next(name for name in DESCRIBE if row[name])
            for row in both.filter(pl.any_horizontal(*DESCRIBE)).iter_rows(named=True)
        },
    )


def control_tokens(trace: Trace) -> Mapping[int, str]:
    """Return the contents of a leg's control tokens by id (header fact `special_ids`)."""
    return {number: content for content, number in trace.header["facts"]["special_ids"].items()}


def _explained(name: str, parted: pl.DataFrame, by_facts: bool) -> list[Consequence]:
    """Return the consequences of a phase: one for each phase that explains it."""
    if by_facts:
        step: Any = parted["first_step"].min()
        return [Consequence(phase=name, first_step=step, num=parted.height, because="echo")]
    found = []
    rest = parted
    for cause in EARLIER[name]:
        mine = rest.filter(cause)
        rest = rest.filter(~pl.col(cause))
        first: Any = mine["first_step"].min()
        found.append(Consequence(phase=name, first_step=first, num=mine.height, because=cause))
    return found


def _detail(
    a: Trace,
    b: Trace,
    alone: pl.DataFrame,
    names: tuple[str, str],
    describe: Describe,
) -> Sequence[Divergence]:
    """Look into the first independent divergences; differences are aligned for the shown ones."""
    looked = alone.head(MAX_DETAILED)
    wanted = looked["id"].to_list()
    if not wanted:
        return []
    rows_a, rows_b = example_rows(a, wanted), example_rows(b, wanted)
    control_a, control_b = control_tokens(a), control_tokens(b)
    sides: dict[str, tuple[Side, Side]] = {}
    found = []
    for row in looked.iter_rows(named=True):
        left = side(rows_a[row["id"]], name=names[0], control=control_a)
        right = side(rows_b[row["id"]], name=names[1], control=control_b)
        sides[row["id"]] = (left, right)
        found.append(
            replace(
                describe(left, right, row),
                step=row["first_step"],
                split=row["split"],
                example=row["id"],
            )
        )
    listed = grouped(found, extra=alone.height - looked.height)
    return [replace(entry, diff=_aligned(entry, *sides[entry.example or ""])) for entry in listed]


def _aligned(entry: Divergence, a: Side, b: Side) -> tuple[Mapping[str, Any], ...] | None:
    if entry.field == "tokens.text":
        return diff(codepoints(a.text), codepoints(b.text))
    if entry.field == "tokens.ids":
        return diff(a.ids, b.ids)
    return mask_diff(a.mask, b.mask) if entry.field == "tokens.mask" else None


def _describe_text(a: Side, b: Side, row: Mapping[str, Any]) -> Divergence:
    place = common_prefix(codepoints(a.text), codepoints(b.text))
    left, right = (
        f"{len(leg.text)} characters, {'ends' if len(leg.text) == place else 'differs'} at {place}"
        for leg in (a, b)
    )
    return divergence("text", field="tokens.text", a=left, b=right, hint=text_hint(a, b))


def _describe_ids(a: Side, b: Side, row: Mapping[str, Any]) -> Divergence:
    if row["ids_equal"]:
        field = "num_tokens_before_truncation"
        if row[f"{field}_a"] == row[f"{field}_b"]:
            field = "typed_control_tokens"
        left, right = f"{row[f'{field}_a']}", f"{row[f'{field}_b']}"
        return divergence("ids", field=f"tokens.{field}", a=left, b=right)
    place = common_prefix(a.ids, b.ids)
    left, right = (f"{len(leg.ids)} tokens, {leg.token(place)} at {place}" for leg in (a, b))
    return divergence(
        "ids", field="tokens.ids", a=left, b=right, position=place, hint=ids_hint(a, b)
    )


def _describe_mask(a: Side, b: Side, row: Mapping[str, Any]) -> Divergence:
    place = common_prefix(a.mask, b.mask)
    left, right = (_target(leg.mask, place) for leg in (a, b))
    return divergence(
        "mask", field="tokens.mask", a=left, b=right, position=place, hint=mask_hint(a, b)
    )


def _target(mask: Ids, place: int) -> str:
    word = "target" if place < len(mask) and mask[place] else "ignored"
    return f"{word} ({int(mask.sum())} targets of {len(mask)} tokens)"


Describe = Callable[[Side, Side, Mapping[str, Any]], Divergence]
DESCRIBE: Mapping[str, Describe] = {
    "text": _describe_text,
    "ids": _describe_ids,
    "mask": _describe_mask,
}
