"""Known patterns of order, batches, weights and numbers in plain words.

A hint is a fact about the two values with a usual cause. It names legs and decides nothing.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import polars as pl

from oracle.trace import Trace

SEEDS = (0, 1, 2, 3, 42, 123, 1234, 1337, 2021, 2024)
MAX_SORTED = 20_000  # ids that a hint about the seed is ready to hash for each seed
EXACT = 1e-7  # relative: how exactly a ratio must be met to be named


def lost_example_hint(leg: str, split: str, *, last: bool) -> str:
    """Say which leg lost an example; the last of a file is a line reader's usual loss."""
    if last:
        return f"{leg} lost the last line of the {split} data: a last line without a newline"
    return f"{leg} lost examples of the {split} split"


def steps_per_epoch_hint(lengths: Sequence[int | None], names: tuple[str, str]) -> str | None:
    """Say that the last, partial batch is dropped when an epoch is one step shorter."""
    if None in lengths:
        return None
    a, b = (int(n or 0) for n in lengths)
    if abs(a - b) != 1:
        return None
    return f"{names[a > b]} drops the last partial batch"


def examples_hint(a: Trace, b: Trace, row: Mapping[str, Any], names: tuple[str, str]) -> str | None:
    """Say what the examples of the first parted step look like in the leg that is odd."""
    traces = (a, b)
    for odd in (1, 0):
        mine, other = row["examples_" + "ab"[odd]], row["examples_" + "ab"[1 - odd]]
        if len(mine) != len(set(mine)):
            return f"{names[odd]} takes the same example more than once in a step"
        longer = len(other) < len(mine) and mine[: len(other)] == other
        if longer and _earlier(traces[odd], row["step"], mine[len(other) :]):
            return f"{names[odd]} repeats ids to fill the last batch of the epoch"
        epoch_before = row["epoch_" + "ab"[1 - odd]] > row["epoch_" + "ab"[odd]]
        if epoch_before and _partial(traces[odd], row["step"]):
            return f"{names[1 - odd]} drops the last partial batch"
        repeats = [_repeats_first_epoch(trace, row["step"]) for trace in traces]
        if row["epoch_" + "ab"[odd]] > 0 and repeats[odd] and not repeats[1 - odd]:
            return f"{names[odd]} has the same order as in epoch 0"
    if sorted(row["examples_a"]) == sorted(row["examples_b"]):
        return "the same examples in another order within the step"
    return _seed_hint(traces, row, names)


def batch_hint(field: str, shape_a: Sequence[int], shape_b: Sequence[int]) -> str | None:
    """Say what another shape, or other bytes of one shape, usually come from."""
    if field == "batch_sha256":
        return "same shape and counts: padding side, positions, segments or labels differ"
    if field != "batch_shape":
        return None
    if math.prod(shape_a) == math.prod(shape_b):
        return "the same number of positions in another shape: rows were joined or split"
    if list(shape_a[:2]) == list(shape_b[:2]):
        return "the rows are padded to another length"
    return None


def ratio_hint(
    a: float, b: float, names: tuple[str, str], quantities: Mapping[str, float]
) -> str | None:
    """Say that one value is exactly a known multiple of the other.

    `quantities` are numbers of the step (accumulation steps, rows, tokens per target …) by name.
    """
    if a == 0 or b == 0 or not math.isfinite(a) or not math.isfinite(b):
        return None
    if a == -b:
        return "the same value with the other sign"
    for name, value in quantities.items():
        if not value > 0 or abs(value - 1) < 1e-3:
            continue
        for words, factor in ((name, value), (f"the square root of {name}", math.sqrt(value))):
            for odd, ratio in ((1, b / a), (0, a / b)):
                if abs(ratio / factor - 1) < EXACT:
                    other = names[1 - odd]
                    return f"{names[odd]} is {other} times {words} ({factor:.6g})"
    for odd, x, y in ((1, a, b), (0, b, a)):
        square = x * x  # a float: it overflows to infinity and underflows to 0
        if x > 0 and abs(x - 1) > 1e-3 and 0 < square < math.inf and abs(y / square - 1) < EXACT:
            return f"{names[odd]} is the square of {names[1 - odd]}"
    return None


def lr_hint(
    place: int, a: Sequence[float], b: Sequence[float], names: tuple[str, str], accumulation: int
) -> str | None:
    """Say which value of the other leg's schedule a learning rate is."""
    for odd, mine, other in ((1, b, a), (0, a, b)):
        name, reference = names[odd], names[1 - odd]
        if len(mine) > place + 1 and _same(mine[place : place + 2], other[place + 1 : place + 3]):
            return f"{name} is one step ahead: its rate is the next one of {reference}"
        if place > 0 and _same(mine[place : place + 2], other[place - 1 : place + 1]):
            return f"{name} is one step behind: its rate is the previous one of {reference}"
        if mine[place] == 0 and other[place] > 0 and place == 0:
            return f"{name} begins its warm-up at 0"
        if accumulation > 1:
            faster = [
                other[t * accumulation] for t in range(len(mine)) if t * accumulation < len(other)
            ]
            if len(faster) > 2 and _same(mine[: len(faster)], faster):
                return f"the schedule of {name} moves {accumulation} steps a step"
    return None


def one_sided_hint(a: float, b: float, names: tuple[str, str]) -> str | None:
    """Say which leg alone is not finite."""
    for odd, mine, other in ((1, b, a), (0, a, b)):
        if not math.isfinite(mine) and math.isfinite(other):
            return f"only {names[odd]} is not finite"
    return None


def clip_hint(a: float, b: float, names: tuple[str, str]) -> str | None:
    """Say that one leg does not clip."""
    for odd, mine, other in ((1, b, a), (0, a, b)):
        if mine == 1 and other < 1:
            return f"{names[odd]} does not clip"
    return None


def _same(a: Sequence[float], b: Sequence[float]) -> bool:
    return len(a) == len(b) > 0 and all(
        abs(x - y) <= 1e-12 * max(abs(x), abs(y)) for x, y in zip(a, b, strict=True)
    )


def _epoch_of(trace: Trace, step: int) -> tuple[pl.DataFrame, int]:
    """Return the steps of the epoch that `step` is in, and how many come before it there."""
    epoch = trace.steps.filter(pl.col("step") == step)["epoch"].item()
    rows = trace.steps.filter(pl.col("epoch") == epoch)
    return rows, int((rows["step"] < step).sum())


def _earlier(trace: Trace, step: int, examples: Sequence[str]) -> bool:
    """Whether the leg took these examples before in the same epoch."""
    rows, before = _epoch_of(trace, step)
    seen = set(rows["examples"].head(before).explode().to_list())
    return bool(examples) and set(examples) <= seen


def _partial(trace: Trace, step: int) -> bool:
    rows, before = _epoch_of(trace, step)
    return before == rows.height - 1


def _repeats_first_epoch(trace: Trace, step: int) -> bool:
    _, before = _epoch_of(trace, step)
    first = trace.steps.filter(pl.col("epoch") == 0)["examples"]
    mine = trace.steps.filter(pl.col("step") == step)["examples"].item().to_list()
    return before < len(first) and first[before].to_list() == mine


def _seed_hint(
    traces: tuple[Trace, Trace], row: Mapping[str, Any], names: tuple[str, str]
) -> str | None:
    """Hold the first examples of the epoch against the order of S-08, for this and other seeds."""
    facts = traces[0].header["facts"]
    ids = traces[0].digests.filter(pl.col("split") == "train")["id"].to_list()
    if len(ids) > MAX_SORTED:
        return None
    epoch = row["epoch_a"]
    right = _firsts(facts["seed"], epoch, ids)
    found = []
    for odd in (0, 1):
        rows, _ = _epoch_of(traces[odd], row["step"])
        mine = rows["examples"].explode().head(4).to_list()
        if mine == right[: len(mine)]:
            continue
        seed = next((s for s in _seeds(facts["seed"]) if _firsts(s, epoch, ids)[:4] == mine), None)
        if seed is not None:
            return f"{names[odd]} has the order of another seed ({seed})"
        found.append(names[odd])
    return f"{found[0]} does not follow the order of S-08" if len(found) == 1 else None


def _seeds(seed: int) -> Iterator[int]:
    yield from (other for other in (*SEEDS, seed + 1, seed - 1) if other != seed and other >= 0)


def _firsts(seed: int, epoch: int, ids: Sequence[str]) -> list[str]:
    def key(name: str) -> str:
        return hashlib.sha256(f"{seed}:{epoch}:{name}".encode()).hexdigest()

    return sorted(ids, key=key)[:4]
