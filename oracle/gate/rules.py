"""A tolerance or policy file as flat values, and what a change of one means: looser or stricter.

`rule.steps.loss.multiple` of a tolerance file, `required.clinical-demo/train.min_steps` or
`waiver.clinical-demo/eval.expires` of a policy: a row of a list goes by what it is about, so that
another order is no change. Reasons and names are left out: words loosen nothing.
"""

from __future__ import annotations

import hashlib
import tomllib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from oracle.config import parse_toml
from oracle.errors import ConfigError
from oracle.files import read_bytes

Value = str | int | float | bool
Direction = Literal["loosened", "tightened", "changed"]

WORDS = {"reason", "provenance", "owner", "name", "policy_version"}
# A larger value lets more pass, or less.
LOOSER_UP = {
    *("multiple", "cap", "minimum_ulps", "step0", "guard"),
    *("max_mean_relative_loss_difference", "max_relative_loss_difference"),
    *("longest_waiver_days", "expires", "at_most", "up_to", "consequences"),
}
LOOSER_DOWN = {"minimum_steps", "trajectory", "min_steps", "min_examples", "at_least"}
STRICT = {"unacknowledged": "fail"}  # what a key was before any other value loosened it


@dataclass(frozen=True, kw_only=True)
class Rules:
    """A file of rules: where it lies, what it holds, and its values by flat name."""

    path: Path
    sha256: str
    values: Mapping[str, Value]


@dataclass(frozen=True, kw_only=True)
class Change:
    """One value that is another now, None where there was or is none; or a whole row (`row`)."""

    rule: str
    direction: Direction
    was: Value | None
    now: Value | None
    row: bool = False

    @property
    def sentence(self) -> str:
        """`loosened steps.loss multiple 10 → 100`."""
        name = self.rule.removeprefix("rule.")
        if self.row:
            return f"{self.direction} {name} ({'removed' if self.now is None else 'added'})"
        head, _, key = name.rpartition(".")
        name = f"{head} {key}" if head else name
        return f"{self.direction} {name} {_shown(self.was)} → {_shown(self.now)}"


def read_rules(path: Path) -> Rules:
    """Read a tolerance or policy file as flat values; raises ConfigError when it is no TOML."""
    content = read_bytes(path, "rules", ConfigError)
    return Rules(
        path=path.resolve(),
        sha256=hashlib.sha256(content).hexdigest(),
        values=dict(_flat(parse_toml(content, path), "")),
    )


def flat_values(text: str) -> Mapping[str, Value]:
    """Return the flat values of a file's text; empty when it is no TOML."""
    try:
        return dict(_flat(tomllib.loads(text), ""))
    except tomllib.TOMLDecodeError:
        return {}


def changes(was: Mapping[str, Value], now: Mapping[str, Value]) -> tuple[Change, ...]:
    """Return what differs, loosened values first; a row that came or went is one change."""
    found: dict[str, Change] = {}
    for rule in [*now, *(rule for rule in was if rule not in now)]:
        if was.get(rule) == now.get(rule):
            continue
        row = rule.rpartition(".")[0]
        came, went = not _has(was, row), not _has(now, row)
        if row and (came or went):
            found[row] = Change(
                rule=row,
                direction="loosened" if came is _grants(row) else "tightened",
                was=None if came else row,
                now=None if went else row,
                row=True,
            )
        else:
            direction = _direction(rule, was.get(rule), now.get(rule))
            found[rule] = Change(
                rule=rule, direction=direction, was=was.get(rule), now=now.get(rule)
            )
    order: Sequence[Direction] = ("loosened", "changed", "tightened")
    return tuple(sorted(found.values(), key=lambda change: order.index(change.direction)))


def _has(values: Mapping[str, Value], row: str) -> bool:
    return any(rule.startswith(f"{row}.") for rule in values)


def _grants(row: str) -> bool:
    """Whether a row lets something pass by being there: a waiver, a threshold under 1."""
    return row.startswith("waiver.") or ".agreement." in row


def _direction(rule: str, was: Value | None, now: Value | None) -> Direction:
    key = rule.rpartition(".")[2]
    if was is None or now is None:
        # `consequences` grants more; the bounds of a waiver narrow it.
        return "loosened" if (was is None) is (key == "consequences") else "tightened"
    if key in STRICT:
        return "tightened" if now == STRICT[key] else "loosened"
    if key not in LOOSER_UP | LOOSER_DOWN or isinstance(was, str) is not isinstance(now, str):
        return "changed"
    larger = now > was  # type: ignore[operator]
    return "loosened" if larger is (key in LOOSER_UP) else "tightened"


def _flat(value: Any, where: str) -> Iterator[tuple[str, Value]]:
    if isinstance(value, dict):
        for key, entry in value.items():
            if not (key in WORDS and not isinstance(entry, dict)):
                yield from _flat(entry, f"{where}.{key}" if where else key)
    elif isinstance(value, list) and value and all(isinstance(row, dict) for row in value):
        names = Counter[str]()
        for row in value:
            name = _about(row)
            names[name] += 1
            again = f"#{names[name]}" if names[name] > 1 else ""
            yield from _flat(row, f"{where}.{name}{again}")
    elif isinstance(value, list):
        yield where, ", ".join(str(entry) for entry in value)
    elif isinstance(value, (bool, int, float, str)):
        yield where, value
    else:
        yield where, str(value)  # a date


def _about(row: Mapping[str, Any]) -> str:
    keys = ("run", "mode", "phase", "threshold", "field", "example", "tensor")
    return "/".join(str(row[key]) for key in keys if key in row)


def _shown(value: Value | None) -> str:
    if value is None:
        return "(none)"
    if isinstance(value, bool):
        return str(value).lower()
    return f"{value:g}" if isinstance(value, float) else str(value)
