"""Rules of `configs/tolerances` and measured floors -> the largest relative difference that passes.

A rule is of one field of `phases.toml`. At step `t` it allows, as long as that is at most `cap`,

    allowed(t) = multiple * max(floor(t), minimum_ulps of the run's dtype)

and judges nothing where the floor is larger (`nan`). Without a floor it allows `step0` at step 0
and judges no later step; a rule with `needs_floor = false` judges every step by `minimum_ulps`.
"""

from __future__ import annotations

import hashlib
import math
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from oracle.contract import ROOT, phases
from oracle.errors import ConfigError

Floats = npt.NDArray[np.float64]

# Seven of ten real faults move the loss of an untrained model by less than 1 %: a rule that passes
# a tenth passes most of them, and no comparison by it is an agreement.
ABSURD = 0.1

DTYPES: Mapping[str, type[np.floating[Any]]] = {"float64": np.float64, "float32": np.float32}
NUMERIC_FIELDS = tuple(
    field
    for phase in phases()
    if not phase.exact
    for field in phase.fields
    if field != "steps.eval_targets"
)


@dataclass(frozen=True, kw_only=True)
class Rule:
    """How far one field may part; all bounds are relative differences except `minimum_ulps`."""

    field: str
    multiple: float
    cap: float
    minimum_ulps: float
    step0: float
    needs_floor: bool
    reason: str
    provenance: str

    def weakness(self, precision: str) -> str | None:
        """Return why the rule would pass anything, or None."""
        bounds = {
            "cap": self.cap,
            "step0": self.step0,
            "minimum_ulps": self.minimum_ulps * float(np.finfo(DTYPES[precision]).eps),
        }
        for name, bound in bounds.items():
            if not bound < ABSURD:
                return (
                    f"{name} of {self.field} lets a relative difference of {bound:.3g} pass; "
                    f"a rule must stay under {ABSURD}"
                )
        return None


@dataclass(frozen=True, kw_only=True)
class Tolerances:
    """A tolerance file. `trajectory`: whether steps after the first are judged at all."""

    file: str
    sha256: str
    precision: str
    minimum_steps: int
    trajectory: bool
    trajectory_reason: str
    guard: float
    rules: Mapping[str, Rule]

    def weaknesses(self) -> list[str]:
        """Return every reason for which an agreement by these rules would mean nothing."""
        found = [f"no rule for {field}" for field in NUMERIC_FIELDS if field not in self.rules]
        weak = [rule.weakness(self.precision) for rule in self.rules.values()]
        if not self.guard < ABSURD:
            weak.append(f"guard of tensors is {self.guard:.3g}; it must stay under {ABSURD}")
        return found + [sentence for sentence in weak if sentence is not None]

    def text(self, field: str) -> str:
        """Return the rule as a report names it: file, field, what it demands."""
        rule = self.rules[field]
        if not rule.needs_floor:
            return f"{self.file}: {field}: at most {rule.minimum_ulps:g} units in the last place"
        return f"{self.file}: {field}: {rule.multiple:g} x floor, at most {rule.cap:g}"


def default_file(precision: str) -> Path:
    """Return the tolerance file of a precision."""
    return ROOT / "configs" / "tolerances" / f"{precision}.toml"


def load_tolerances(path: Path) -> Tolerances:
    """Read a tolerance file; raises ConfigError when it is missing, malformed or incomplete."""
    try:
        raw = path.read_bytes()
        table = tomllib.loads(raw.decode("utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise ConfigError(f"{path} cannot be read as a tolerance file: {error}.") from None
    rules = table.pop("rule", {})
    _check_keys(path, "the file", table, {"precision", "run", "tensors"})
    run, tensors = table["run"], table["tensors"]
    _check_keys(path, "[run]", run, {"minimum_steps", "trajectory", "reason"})
    _check_keys(path, "[tensors]", tensors, {"guard", "reason"})
    if table["precision"] not in DTYPES:
        raise ConfigError(
            f"{path}: precision is {table['precision']!r}; known: {', '.join(DTYPES)}."
        )
    _check_types(path, "[run]", run, {"minimum_steps": int, "trajectory": bool, "reason": str})
    _check_types(path, "[tensors]", tensors, {"guard": float, "reason": str})
    return Tolerances(
        file=_shown(path),
        sha256=hashlib.sha256(raw).hexdigest(),
        precision=table["precision"],
        minimum_steps=run["minimum_steps"],
        trajectory=run["trajectory"],
        trajectory_reason=run["reason"],
        guard=tensors["guard"],
        rules={field: _rule(path, field, row) for field, row in rules.items()},
    )


def allowed(
    rule: Rule,
    *,
    steps: npt.NDArray[np.int64],
    scale: Floats,
    floor: Floats | None,
    precision: str,
    trajectory: bool,
) -> Floats:
    """Return the largest relative difference that passes in each cell, nan where none is judged.

    `scale` is the magnitude that differences are relative to, `floor` the running maximum at each
    cell's step (nan where it was not measured).
    """
    least = rule.minimum_ulps * ulp(scale, precision) / np.where(scale > 0, scale, 1.0)
    if not rule.needs_floor:
        return least
    if floor is None:
        limit = np.where(steps == 0, np.maximum(rule.step0, least), math.nan)
    else:
        raised = rule.multiple * np.maximum(floor, least)  # nan where no floor was measured
        limit = np.where(raised <= rule.cap, raised, math.nan)
    return limit if trajectory else np.where(steps == 0, limit, math.nan)


def ulp(scale: Floats, precision: str) -> Floats:
    """Return the distance to the next number of the precision, at each magnitude."""
    dtype = DTYPES[precision]
    finite = np.where(np.isfinite(scale), np.abs(scale), 0.0)
    held = np.minimum(finite, float(np.finfo(dtype).max)).astype(dtype)
    return np.asarray(np.spacing(held), dtype=np.float64)


def _rule(path: Path, field: str, row: Mapping[str, Any]) -> Rule:
    names = {entry.name for entry in fields(Rule)} - {"field"}
    where = f'[rule."{field}"]'
    if field not in NUMERIC_FIELDS:
        raise ConfigError(f"{path}: {where} is not a numeric field of phases.toml.")
    _check_keys(path, where, row, names)
    numbers = {"multiple": float, "cap": float, "minimum_ulps": float, "step0": float}
    _check_types(
        path, where, row, numbers | {"needs_floor": bool, "reason": str, "provenance": str}
    )
    for name in numbers:
        if math.isnan(row[name]) or row[name] < 0:
            raise ConfigError(f"{path}: {where} {name} is {row[name]}; it must be at least 0.")
    for name in ("reason", "provenance"):
        if not row[name].strip():
            raise ConfigError(f"{path}: {where} has an empty {name}; say where the number is from.")
    return Rule(field=field, **row)


def _check_keys(path: Path, where: str, table: Mapping[str, Any], names: set[str]) -> None:
    missing, unknown = names - table.keys(), table.keys() - names
    if missing:
        raise ConfigError(f"{path}: {where} lacks {', '.join(sorted(missing))}.")
    if unknown:
        raise ConfigError(f"{path}: {where} has unknown {', '.join(sorted(unknown))}.")


def _check_types(
    path: Path, where: str, table: Mapping[str, Any], types: Mapping[str, type]
) -> None:
    for name, wanted in types.items():
        value = table[name]
        good = type(value) is wanted or (wanted is float and type(value) is int)
        if not good:
            raise ConfigError(
                f"{path}: {where} {name} is {value!r} and should be a {wanted.__name__}."
            )


def _shown(path: Path) -> str:
    """Return the path relative to the repository when it lies there, else its name."""
    resolved = path.resolve()
    return str(resolved.relative_to(ROOT)) if resolved.is_relative_to(ROOT) else resolved.name
