"""Every planted fault is reported, first in the phase that the catalogue expects, without text."""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import cache

import pytest

from faults.fault import Fault, all_faults, planted_root
from faults.range import Range
from oracle.contract import Verdict
from oracle.document import violation
from oracle.report.json import dumps

FAULTS = all_faults()
KNOWN_MISSES: dict[str, str] = {}  # id -> why; strict, so a miss that is mended must leave
SIZES = (12, 24)  # characters of a content that must not stand together in a verdict


def test_there_are_enough_faults_in_both_stacks() -> None:
    catalogued = [fault for fault in FAULTS if not fault.id.startswith("X")]
    assert len(catalogued) >= 34
    assert len(FAULTS) - len(catalogued) >= 10
    share = sum(fault.stack == "torch" for fault in FAULTS) / len(FAULTS)
    assert 0.35 < share < 0.65


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.id)
def test_a_fault_fits_the_code(fault: Fault, tmp_path) -> None:  # type: ignore[no-untyped-def]
    planted_root(fault, tmp_path / "root")


def marked() -> Iterator[object]:
    for fault in FAULTS:
        missed = KNOWN_MISSES.get(fault.id)
        marks = [pytest.mark.xfail(reason=missed, strict=True)] if missed else []
        yield pytest.param(fault, id=fault.id, marks=marks)


@pytest.mark.parametrize("fault", list(marked()))
def test_a_fault_is_reported_first_where_it_arises(fault: Fault, ground: Range) -> None:
    tried = ground.try_fault(fault)
    verdict = tried.verdict
    assert verdict.verdict == "DIVERGED", (verdict.headline, verdict.reasons)
    assert tried.phase in fault.expect, verdict.headline
    assert not tried.others, "consequences count as divergences of their own"
    assert len(verdict.divergences) <= 6
    assert violation(json.loads(dumps(verdict)), "verdict") is None
    assert not shown_contents(verdict, ground)


def shown_contents(verdict: Verdict, ground: Range) -> set[str]:
    """Pieces of conversations that a verdict shows; control tokens and ids are no text."""
    text = dumps(verdict)
    return {piece for size in SIZES for piece in grams(text, size) & contents(ground, size)}


@cache
def contents(ground: Range, size: int) -> frozenset[str]:
    found: set[str] = set()
    for path in ground.folder.glob("*.jsonl"):
        # Edge examples speak of control tokens, as the oracle does: only longer pieces tell
        if path.name.endswith("edge.jsonl") and size < max(SIZES):
            continue
        for line in path.read_text("utf-8").rstrip("\n").split("\n"):
            for message in json.loads(line)["messages"]:
                content = message["content"]
                found |= grams(content, size) | grams(json.dumps(content), size)
    return frozenset(piece for piece in found if "<|" not in piece and "|>" not in piece)


def grams(text: str, size: int) -> set[str]:
    return {text[i : i + size] for i in range(len(text) - size + 1)}
