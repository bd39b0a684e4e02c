"""Properties: a trace agrees with itself, a mutation is found where it is, legs may be swapped."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from oracle.contract import Divergence, Verdict
from oracle.verdict import judge

from .conftest import floor_of, pair
from .synthetic import NAMES, Documents, documents, read, row_of

SETTINGS = settings(
    max_examples=12, deadline=None, suppress_health_check=[HealthCheck.too_slow], derandomize=True
)
NUMBERS = {"loss": "loss", "grad_norm": "grad_norm", "clip_factor": "clip", "param_norm": "params"}


def verdict_of(
    a: Documents, b: Documents, *, purpose: Any, names: tuple[str, str] = NAMES, floor: bool = True
) -> Verdict:
    with tempfile.TemporaryDirectory() as folder:
        left, right = read(Path(folder) / "a", a), read(Path(folder) / "b", b)
        path = floor_of(Path(folder), left, right) if floor else None
        return judge(
            left, right, purpose=purpose, names=names, tolerances=None, floor=path, run=None
        )


@given(
    seed=st.integers(0, 99),
    num_steps=st.integers(2, 12),
    num_train=st.integers(1, 20),
    precision=st.sampled_from(["float64", "float32"]),
    tensors_every=st.integers(0, 5),
    mode=st.sampled_from(["train", "render"]),
)
@SETTINGS
def test_a_trace_agrees_with_itself(**options: Any) -> None:
    made = documents(**options)
    verdict = verdict_of(made, made, purpose="self", floor=False)
    assert (verdict.verdict, verdict.divergences, verdict.consequences) == ("AGREE", (), ())
    assert {p.agreement for p in verdict.phases if p.agreement is not None} == {1.0}


@st.composite
def mutations(draw: st.DrawFn) -> tuple[str, int | str, int]:
    kind = draw(st.sampled_from([*NUMBERS, "lr", "ids", "mask", "text", "batch_sha256"]))
    if kind in ("ids", "mask", "text"):
        return kind, f"train-{draw(st.integers(0, 13)):03d}", draw(st.integers(0, 90))
    return kind, draw(st.integers(0, 7)), 0


def apply(made: Documents, mutation: tuple[str, int | str, int]) -> tuple[str, int | str, Any]:
    """Change one value; returns the phase, the step or example, and the position to be found."""
    kind, where, position = mutation
    if isinstance(where, str):
        row = row_of(made, where)
        if kind == "text":
            row["text"] += "."
            return "text", where, None
        row[kind][position] = 1 - row[kind][position] if kind == "mask" else 500
        return kind, where, position
    row = made["steps"][where]
    if kind == "batch_sha256":
        row[kind] = "e" * 64
        return "batch", where, None
    row[kind] += 1e-5
    return {**NUMBERS, "lr": "lr"}[kind], where, None


@given(mutations())
@SETTINGS
def test_a_mutation_is_found_exactly_where_it_is(mutation: tuple[str, int | str, int]) -> None:
    a, b = pair()
    phase, where, position = apply(b, mutation)
    verdict = verdict_of(a, b, purpose="cross")
    assert verdict.verdict == "DIVERGED"
    assert len(verdict.divergences) == 1
    first = verdict.divergences[0]
    place = first.example if isinstance(where, str) else first.step
    assert (first.phase, place, first.position) == (phase, where, position)


@given(st.lists(mutations(), min_size=1, max_size=3))
@SETTINGS
def test_swapping_the_legs_mirrors_the_verdict(
    several: list[tuple[str, int | str, int]],
) -> None:
    a, b = pair()
    for mutation in several:
        apply(b, mutation)
    forth = verdict_of(a, b, purpose="cross")
    back = verdict_of(b, a, purpose="cross", names=(NAMES[1], NAMES[0]))
    assert forth.verdict == back.verdict
    assert forth.consequences == back.consequences
    assert forth.phases == back.phases
    assert [mirrored(entry) for entry in forth.divergences] == [
        shown(entry) for entry in back.divergences
    ]


def shown(entry: Divergence) -> tuple[Any, ...]:
    diff = [(e["op"], e["a"], e["b"]) for e in entry.diff or ()]
    place = (entry.phase, entry.step, entry.example, entry.position, entry.field, entry.relative)
    return (*place, entry.a, entry.b, entry.hint, diff)


def mirrored(entry: Divergence) -> tuple[Any, ...]:
    ops = {"insert": "delete", "delete": "insert"}
    diff = [(ops.get(e["op"], e["op"]), e["b"], e["a"]) for e in entry.diff or ()]
    place = (entry.phase, entry.step, entry.example, entry.position, entry.field, entry.relative)
    return (*place, entry.b, entry.a, entry.hint, diff)


def test_a_self_comparison_without_a_floor_allows_no_difference_at_all() -> None:
    a, b = documents(), documents()
    b["steps"][6]["loss"] += 2.0**-50
    verdict = verdict_of(a, b, purpose="self", floor=False)
    assert verdict.verdict == "DIVERGED"
    assert verdict.first is not None
    assert (verdict.first.phase, verdict.first.step, verdict.first.allowed) == ("loss", 6, 0.0)


def test_a_self_comparison_sees_final_hashes_that_no_step_showed() -> None:
    a, b = documents(), documents()
    b["final"]["m_sha256"] = "e" * 64
    verdict = verdict_of(a, b, purpose="self", floor=False)
    assert verdict.first is not None
    assert (verdict.first.phase, verdict.first.field) == ("params", "done.final.m_sha256")


def test_a_self_comparison_with_a_floor_allows_the_floor() -> None:
    a, b = documents(), documents()
    b["steps"][6]["loss"] += 2.0**-50
    b["header"]["config_sha256"] = "e" * 64
    b["final"]["m_sha256"] = "e" * 64
    assert verdict_of(a, b, purpose="self").verdict == "AGREE"
