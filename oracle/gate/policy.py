"""A policy (`configs/gates/*.toml`): required runs, thresholds, waivers; read and checked whole.

A policy that could never fail, or never pass, is refused: a threshold of 0, a limit that most
faults stay under, a share under 1 without a reason, a waiver without owner, reason and end.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date, timedelta
from pathlib import Path
from typing import Any, Literal

from oracle.config import RunConfig, load_config, parse_toml
from oracle.document import violation
from oracle.errors import ConfigError
from oracle.files import read_bytes
from oracle.gate.refusal import (
    check_mode,
    check_rules,
    check_texts,
    check_waiver,
    with_dates_as_text,
)

Mode = Literal["train", "render"]


@dataclass(frozen=True, kw_only=True)
class Agreement:
    """A threshold under 1 of one phase. `consequences`: what it explains may stay unjudged."""

    phase: str
    at_least: float
    reason: str
    consequences: bool = False


@dataclass(frozen=True, kw_only=True)
class Required:
    """A run that must be there. Loss limits are relative differences; None in mode render."""

    config: RunConfig
    mode: Mode
    stacks: tuple[str, str]
    tolerances: Path | None
    min_steps: int | None
    min_examples: int
    max_mean_relative_loss_difference: float | None
    max_relative_loss_difference: float | None
    agreement: Mapping[str, Agreement]

    @property
    def label(self) -> str:
        """Name in the gate's line: that of the config, and its mode unless it trains."""
        return self.config.name if self.mode == "train" else f"{self.config.name} ({self.mode})"

    def at_least(self, phase: str) -> float:
        """Share of a phase that must agree."""
        return self.agreement[phase].at_least if phase in self.agreement else 1.0


@dataclass(frozen=True, kw_only=True)
class Waiver:
    """What may fall short until the end of `expires`: a phase's divergences, or a loss limit."""

    run: str
    owner: str
    reason: str
    expires: date
    mode: Mode | None = None
    phase: str | None = None
    field: str | None = None
    example: str | None = None
    tensor: str | None = None
    at_most: int | None = None
    consequences: bool = False
    threshold: str | None = None
    up_to: float | None = None

    @property
    def label(self) -> str:
        """What it covers, in a few words."""
        parts = [self.field, self.example, self.tensor]
        places = "".join(f" {part}" for part in parts if part is not None)
        return f"{self.run} {self.phase or self.threshold}{places}"

    def concerns(self, required: Required) -> bool:
        """Whether it is of this run."""
        return required.config.name == self.run and self.mode in (None, required.mode)


@dataclass(frozen=True, kw_only=True)
class Policy:
    """A policy file."""

    path: Path
    sha256: str
    name: str
    unacknowledged: Literal["show", "fail"]
    longest_waiver_days: int
    required: tuple[Required, ...]
    waivers: tuple[Waiver, ...]


def load_policy(path: Path, *, today: date) -> Policy:
    """Read a policy; raises ConfigError at its first fault. Its paths start from its own folder."""
    content = read_bytes(path, "policy", ConfigError)
    table = with_dates_as_text(parse_toml(content, path))
    if (reason := violation(table, "policy", reveal=True)) is not None:
        raise ConfigError(f"{path}: {reason} (policy.schema.json).")
    check_texts(table, path, "")
    required = tuple(
        _required(row, path, f"required.{place}") for place, row in enumerate(table["required"])
    )
    keys = [(one.config.name, one.mode) for one in required]
    for key in keys:
        if keys.count(key) > 1:
            raise ConfigError(f"{path}: the run {key[0]} of mode {key[1]} is required twice.")
    latest = today + timedelta(days=table["longest_waiver_days"])
    waivers = tuple(
        _waiver(row, path, f"waiver.{place}", required, latest)
        for place, row in enumerate(table.get("waiver", []))
    )
    return Policy(
        path=path.resolve(),
        sha256=hashlib.sha256(content).hexdigest(),
        name=table["name"],
        unacknowledged=table["unacknowledged"],
        longest_waiver_days=table["longest_waiver_days"],
        required=required,
        waivers=waivers,
    )


def _required(row: Mapping[str, Any], path: Path, where: str) -> Required:
    config = load_config(path.parent / row["config"])
    if config.name != row["run"]:
        raise ConfigError(
            f"{path}: {where}.run is {row['run']!r} and {config.path} has the name "
            f"{config.name!r}; a required run bears the name of its config."
        )
    first, second = row["stacks"]
    if first == second:
        raise ConfigError(
            f"{path}: {where}.stacks names {first!r} twice: a stack compared with itself never "
            "satisfies a gate."
        )
    check_mode(row, path, where)
    tolerances = path.parent / row["tolerances"] if "tolerances" in row else None
    if tolerances is not None:
        check_rules(tolerances, config, path, where)
    if row.get("min_steps", 0) > config.num_steps:
        raise ConfigError(
            f"{path}: {where}.min_steps is {row['min_steps']} and {config.path} makes "
            f"{config.num_steps} steps, so no run could pass."
        )
    return Required(
        config=config,
        mode=row["mode"],
        stacks=(first, second),
        tolerances=tolerances,
        min_steps=row.get("min_steps"),
        min_examples=row["min_examples"],
        max_mean_relative_loss_difference=row.get("max_mean_relative_loss_difference"),
        max_relative_loss_difference=row.get("max_relative_loss_difference"),
        agreement=_agreements(row, path, where),
    )


def _agreements(row: Mapping[str, Any], path: Path, where: str) -> Mapping[str, Agreement]:
    found: dict[str, Agreement] = {}
    for entry in row.get("agreement", []):
        if not math.isfinite(entry["at_least"]):
            raise ConfigError(f"{path}: {where}.agreement.at_least is {entry['at_least']}.")
        if entry["phase"] in found:
            raise ConfigError(f"{path}: {where}.agreement names {entry['phase']} twice.")
        found[entry["phase"]] = Agreement(**entry)
    return found


def _waiver(
    row: Mapping[str, Any],
    path: Path,
    where: str,
    required: tuple[Required, ...],
    latest: date,
) -> Waiver:
    try:
        expires = date.fromisoformat(row["expires"])
    except ValueError:
        raise ConfigError(
            f"{path}: {where}.expires is {row['expires']}, which is no day."
        ) from None
    check_waiver(row, path, where)
    waiver = Waiver(**{**row, "expires": expires})
    if not any(waiver.concerns(one) for one in required):
        mode = "" if waiver.mode is None else f" of mode {waiver.mode}"
        known = ", ".join(dict.fromkeys(one.config.name for one in required))
        raise ConfigError(
            f"{path}: {where} is of the run {waiver.run!r}{mode}, which is not required; required "
            f"are {known}."
        )
    if expires > latest:
        raise ConfigError(
            f"{path}: {where} expires on {expires}; longest_waiver_days lets a waiver last until "
            f"{latest} at most."
        )
    return waiver
