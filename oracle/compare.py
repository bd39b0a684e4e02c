"""Two traces -> divergences in causal order, consequences marked, and what became of each phase.

Causal order. Echo, text, ids and mask are made before the first step (S-24), so they come before
everything that has a step, in the order of their phases; a train example shows the first step that
consumes it, and within a phase examples come in that order, those that no step consumes last. What
has a step comes by (step, phase, tensor). So a rendering fault precedes any numeric one, and a run
of mode `render` finds the same first divergence as the training run.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import polars as pl

from oracle.align import align_examples, align_steps
from oracle.chain import walk
from oracle.compare_checkpoint import compare_checkpoints
from oracle.compare_deliverable import compare_deliverables
from oracle.compare_echo import compare_echo
from oracle.compare_examples import Examples, compare_examples
from oracle.compare_numbers import Cells, limits, scalar_cells
from oracle.compare_order import compare_batch, compare_order
from oracle.compare_tensors import compare_weights, tensor_cells
from oracle.contract import Consequence, Divergence, PhaseResult, phases
from oracle.floor import Floor
from oracle.judged import Context, Judged, Place
from oracle.outcome import Outcome, divergence, explained_by_facts, outcome, phase
from oracle.tolerance import Floats, Tolerances
from oracle.trace import Trace


@dataclass(frozen=True, kw_only=True, eq=False)
class Comparison:
    """Everything that two traces show; `reasons` say what could not be judged.

    `relative` are the differences of each scalar field by step, nan where there is none.
    """

    divergences: tuple[Divergence, ...]
    consequences: tuple[Consequence, ...]
    phases: tuple[PhaseResult, ...]
    reasons: tuple[str, ...]
    num_steps: int
    num_examples: int
    num_tokens: int
    relative: Mapping[str, Floats]


def compare(
    a: Trace,
    b: Trace,
    *,
    names: tuple[str, str],
    tolerances: Tolerances,
    floor: Floor | None,
    exact: bool,
    control: bool = False,
    floor_helps: bool = True,
) -> Comparison:
    """Compare two traces; with `exact` the numeric phases allow no difference at all.

    `floor_helps`: whether a missing floor is all that may keep this pair from being judged.
    `control`: a stack against itself under another config. What that changes and means the same,
    files that hold the same data and micro-batches of the same rows, is no difference then.
    """
    examples, steps = align_examples(a, b), align_steps(a, b)
    echo, facts = compare_echo(a.header["facts"], b.header["facts"], control=control)
    order, order_parted = compare_order(a, b, steps, examples, names=names, parted_facts=facts)
    rendered = compare_examples(a, b, examples, names=names, parted_facts=facts)
    batch, roots = compare_batch(
        steps,
        order_parted=order_parted,
        examples_parted=rendered.parted,
        parted_facts=facts,
        control=control,
    )
    outcomes = [echo, order, *rendered.outcomes, batch]
    channels: list[Judged] = []
    reasons: list[str] = []
    if a.header["mode"] == "train":
        weights = compare_weights(a, b, names=names, parted_facts=facts)
        outcomes.append(weights)
        channels = list(_channels(a, b, steps, tolerances, floor, exact, floor_helps))
        found, reasons = walk(
            channels,
            causes=_causes(facts, roots, weights),
            eval_cause=_eval_cause(examples, rendered),
            context=_context(steps, tolerances, names),
        )
        outcomes += found
        ends = _compare_final(a, b, outcomes) if exact else []
        ends += compare_checkpoints(a, b, names=names, parted_facts=facts)
        # Where the footer already denies the file, the rows would only say it again.
        told = {entry.field for entry in ends}
        ends += [e for e in compare_deliverables(a, b, names=names) if e.field not in told]
        outcomes = _parted_at_the_end(outcomes, ends)
    both = examples.filter(pl.col("in_a") & pl.col("in_b"))
    return Comparison(
        divergences=_in_causal_order(outcomes),
        consequences=tuple(entry for found in outcomes for entry in found.consequences),
        phases=tuple(_results(outcomes)),
        reasons=tuple(reasons),
        num_steps=int((steps["in_a"] & steps["in_b"]).sum()),
        num_examples=both.height,
        num_tokens=int(both["num_tokens_a"].sum()),
        relative={c.cells.field: c.cells.relative for c in channels if _scalar(c.cells)},
    )


def _scalar(found: Cells) -> bool:
    return found.tensors is None


def _channels(
    a: Trace,
    b: Trace,
    steps: pl.DataFrame,
    tolerances: Tolerances,
    floor: Floor | None,
    exact: bool,
    floor_helps: bool,
) -> Iterator[Judged]:
    found = [*scalar_cells(steps), *tensor_cells(a, b, guard=tolerances.guard)]
    floor_helps &= not any(entry.void.any() for entry in found)
    order = {field: place for place, field in enumerate(f for p in phases() for f in p.fields)}
    for entry in sorted(found, key=lambda cells: order[cells.field]):
        ruled = entry.field in tolerances.rules
        yield Judged(
            cells=entry,
            limits=limits(entry, tolerances, floor, exact=exact),
            rule=(
                f"{entry.field}: equal, bit for bit"
                if exact or not ruled
                else tolerances.text(entry.field)
            ),
            unjudged_because=_why(tolerances, floor, ruled, floor_helps),
        )


def _why(tolerances: Tolerances, floor: Floor | None, ruled: bool, floor_helps: bool) -> str:
    if not ruled:
        return f"{tolerances.file} has no rule for it"
    if not tolerances.trajectory:
        return tolerances.trajectory_reason
    if floor is None:
        advice = "; measure it with `oracle calibrate CONFIG`" if floor_helps else ""
        return f"no noise floor of this run{advice}"
    return f"the noise floor reaches the cap of {tolerances.file}"


def _causes(
    facts: Collection[str], roots: Mapping[int, str], weights: Outcome
) -> Mapping[Place, str]:
    """Return the places at which exact phases and facts enter the numeric chain."""
    forward = phase("forward").rank
    causes: dict[Place, str] = {}
    for entry in phases():
        if not entry.exact and explained_by_facts(entry.name, facts):
            causes[(0.0, entry.rank)] = "echo"
    if roots:
        step = min(roots)
        causes.setdefault((float(step), forward), roots[step])
    if weights.result.num_agreeing < weights.result.num_compared:
        echo = weights.consequences and not weights.divergences
        causes[(0.0, forward)] = "echo" if echo else "weights"
    return causes


def _eval_cause(examples: pl.DataFrame, rendered: Examples) -> str | None:
    """Return the phase in which an example of the evaluation split parted first."""
    split = examples.filter(pl.col("split") == "eval")
    if not split.select((pl.col("in_a") & pl.col("in_b")).all()).item():
        return "order"
    parted = {rendered.parted[name] for name in split["id"] if name in rendered.parted}
    return min(parted, key=lambda name: phase(name).rank, default=None)


def _context(steps: pl.DataFrame, tolerances: Tolerances, names: tuple[str, str]) -> Context:
    both = steps.filter(pl.col("in_a") & pl.col("in_b"))

    def quantities(step: int) -> Mapping[str, float]:
        found = both.filter(pl.col("step") == step)
        if not found.height:
            return {}
        row = found.row(0, named=True)
        micro, rows, _ = row["batch_shape_a"]
        tokens, targets = row["num_tokens_a"], row["num_targets_a"]
        return {
            "the accumulation steps": float(micro),
            "the rows of the step": float(micro * rows),
            "the rows of a micro-batch": float(rows),
            "tokens per target (num_tokens for num_targets)": tokens / targets if targets else 0.0,
        }

    accumulation = both["batch_shape_a"][0][0] if both.height else 1
    return Context(
        names=names,
        precision=tolerances.precision,
        accumulation=int(accumulation),
        quantities=quantities,
    )


def _compare_final(a: Trace, b: Trace, outcomes: Sequence[Outcome]) -> list[Divergence]:
    """Compare the hashes of the footers when nothing before them parts: bit for bit."""
    parted = any(found.divergences for found in outcomes)
    finals = [trace.done["final"] or {} for trace in (a, b)]
    if parted or finals[0] == finals[1] or not all(finals):
        return []
    key = next(k for k in finals[0] if finals[0][k] != finals[1][k])
    made = divergence(
        "params",
        field=f"done.final.{key}",
        a=finals[0][key][:12],
        b=finals[1][key][:12],
        step=a.done["num_steps"] - 1,
        rule="final hashes are equal, bit for bit",
    )
    return [made]


def _parted_at_the_end(outcomes: Sequence[Outcome], made: Sequence[Divergence]) -> list[Outcome]:
    """Add what a finished run left behind to the phase that it belongs to: its end disagrees."""
    ends: dict[str, list[Divergence]] = {}
    for entry in made:
        ends.setdefault(entry.phase, []).append(entry)
    known = {found.result.phase for found in outcomes}
    fresh = [outcome(name, num_compared=0, num_agreeing=0) for name in ends if name not in known]
    return [
        _with_last_step(found, ends[found.result.phase]) if found.result.phase in ends else found
        for found in (*outcomes, *fresh)
    ]


def _with_last_step(found: Outcome, made: Sequence[Divergence]) -> Outcome:
    num_compared = max(1, found.result.num_compared)
    num_agreeing = min(found.result.num_agreeing, num_compared - 1)
    result = replace(
        found.result,
        status="diverged",
        num_compared=num_compared,
        num_agreeing=num_agreeing,
        agreement=num_agreeing / num_compared,
        first_step=found.result.first_step if found.divergences else made[0].step,
    )
    return replace(found, divergences=(*found.divergences, *made), result=result)


def _in_causal_order(outcomes: Sequence[Outcome]) -> tuple[Divergence, ...]:
    made_before = {"echo", "text", "ids", "mask"}

    def key(entry: Divergence) -> tuple[float, int]:
        rendered = entry.phase in made_before or entry.step is None
        return (-1.0 if rendered else float(entry.step or 0), phase(entry.phase).rank)

    # Within a phase the comparison has already put examples and tensors in their order.
    found = sorted((entry for found in outcomes for entry in found.divergences), key=key)
    return tuple(replace(entry, id=f"d{place}") for place, entry in enumerate(found, start=1))


def _results(outcomes: Sequence[Outcome]) -> Iterator[PhaseResult]:
    """Yield the result of every phase in causal order; those without one were not compared."""
    found = {entry.result.phase: entry.result for entry in outcomes}
    for entry in phases():
        nothing = outcome(
            entry.name, num_compared=0, num_agreeing=0, reason="nothing of it was recorded"
        )
        yield found.get(entry.name, nothing.result)
