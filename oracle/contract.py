"""The contract as Python values: schemas, phases, and the frozen records that the other modules
pass on.

The only module that knows where `configs/contract` lies. Shapes: N steps, E examples, R tensor
rows.
"""

from __future__ import annotations

import functools
import json
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

ROOT = Path(__file__).resolve().parent.parent
CONTRACT_DIR = ROOT / "configs" / "contract"
CONTRACT_VERSION = "1"

VerdictName = Literal["AGREE", "DIVERGED", "INCONCLUSIVE", "ERROR"]
EXIT_CODES: Mapping[str, int] = {"AGREE": 0, "DIVERGED": 1, "ERROR": 2, "INCONCLUSIVE": 3}
Purpose = Literal["cross", "self"]
SchemaName = Literal["run", "trace", "verdict", "policy", "gate"]


@functools.cache
def schema(name: SchemaName) -> dict[str, Any]:
    """Return the JSON Schema `{name}.schema.json` of the contract."""
    loaded: dict[str, Any] = json.loads((CONTRACT_DIR / f"{name}.schema.json").read_text("utf-8"))
    return loaded


@dataclass(frozen=True, kw_only=True)
class Phase:
    """One phase of a step (`phases.toml`). `rank` is its place in causal order.

    A difference in one of `facts` (dotted names in the header, or prefixes) explains a divergence.
    """

    rank: int
    name: str
    exact: bool
    unit: str
    clause: str
    fields: tuple[str, ...]
    facts: tuple[str, ...]
    causes: tuple[str, ...]


@functools.cache
def phases() -> tuple[Phase, ...]:
    """Return the phases in causal order."""
    rows = tomllib.loads((CONTRACT_DIR / "phases.toml").read_text("utf-8"))["phase"]
    return tuple(
        Phase(
            rank=rank,
            name=row["name"],
            exact=row["exact"],
            unit=row["unit"],
            clause=row["clause"],
            fields=tuple(row["fields"]),
            facts=tuple(row["facts"]),
            causes=tuple(row["causes"]),
        )
        for rank, row in enumerate(rows)
    )


@dataclass(frozen=True, kw_only=True)
class Divergence:
    """One broken rule. `a` and `b` are shown as they stand: never text, never ordinary token ids.

    `absolute`, `relative` and `ulps` are of the two values; `allowed` is the largest relative
    difference that the rule lets pass. `diff` is a list of `{"op", "a": [start, end), "b": [start,
    end)}` in characters (text) or tokens (ids, mask).
    """

    id: str
    phase: str
    step: int | None = None
    split: str | None = None
    example: str | None = None
    position: int | None = None
    tensor: str | None = None
    field: str
    a: str
    b: str
    absolute: float | None = None
    relative: float | None = None
    ulps: float | None = None
    allowed: float | None = None
    rule: str
    clause: str
    hint: str | None = None
    num_like_it: int = 0
    diff: tuple[Mapping[str, Any], ...] | None = None


@dataclass(frozen=True, kw_only=True)
class Consequence:
    """A phase that parts because an earlier one (`because`) did; listed, not counted."""

    phase: str
    first_step: int | None
    num: int
    because: str


@dataclass(frozen=True, kw_only=True)
class PhaseResult:
    """What became of a phase. `agreement` is `num_agreeing / num_compared`, None when nothing was
    compared.
    """

    phase: str
    status: Literal["agree", "diverged", "consequence", "not_judged", "not_compared"]
    unit: str
    num_compared: int
    num_agreeing: int
    agreement: float | None
    first_step: int | None = None
    worst_relative: float | None = None
    worst_step: int | None = None
    reason: str | None = None


@dataclass(frozen=True, kw_only=True)
class LegRecord:
    """A leg as the verdict names it. `error` is the leg's own sentence when it failed.

    `trace_sha256` is the hash of its done.json, which hashes every file that was judged.
    """

    name: str
    stack: str | None
    trace: str
    code_sha256: str | None
    versions: Mapping[str, str]
    trace_sha256: str | None = None
    error: str | None = None


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """The verdict on a pair of traces; `to_json` gives the document of `verdict.schema.json`."""

    verdict: VerdictName
    purpose: Purpose
    mode: Literal["train", "render"]
    headline: str
    run: str | None
    created: str
    config: Mapping[str, Any]
    legs: tuple[LegRecord, LegRecord]
    tolerances: Mapping[str, str]
    floor: Mapping[str, Any] | None
    first: Divergence | None
    divergences: tuple[Divergence, ...]
    consequences: tuple[Consequence, ...]
    phases: tuple[PhaseResult, ...]
    reasons: tuple[str, ...]
    warnings: tuple[str, ...]
    summary: Mapping[str, Any]
    contract: str = CONTRACT_VERSION
    verdict_version: str = field(default="1", init=False)

    @property
    def exit_code(self) -> int:
        """The documented exit code of this verdict."""
        return EXIT_CODES[self.verdict]
