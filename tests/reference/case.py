"""One case of a golden vector (S-27), and the three ways to know what it must give."""

from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, kw_only=True)
class Case:
    """`literal` is worked by hand; None means that the reference computes it."""

    name: str
    kind: str
    given: dict[str, Any]
    literal: dict[str, Any] | None
    rtol: float = 0.0
    atol: float = 0.0


@dataclass(frozen=True, kw_only=True)
class Clause:
    """All cases of one vector file; `note` states tolerances and their reasons."""

    clause: str
    note: str
    cases: list[Case] = field(default_factory=list)


def hand(
    name: str, kind: str, given: dict[str, Any], literal: dict[str, Any], rtol: float = 0.0
) -> Case:
    """A case whose expected value is a literal, worked from the clause with pencil and paper."""
    return Case(name=name, kind=kind, given=given, literal=literal, rtol=rtol)


def computed(
    name: str, kind: str, given: dict[str, Any], *, rtol: float = 0.0, atol: float = 0.0
) -> Case:
    """A case that the reference works out."""
    return Case(name=name, kind=kind, given=given, literal=None, rtol=rtol, atol=atol)


def refused(name: str, kind: str, given: dict[str, Any]) -> Case:
    """A case that the clause refuses."""
    return Case(name=name, kind=kind, given=given, literal={"error": True})
