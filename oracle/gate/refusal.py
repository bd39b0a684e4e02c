"""What a policy cannot mean: checks of its rows that a JSON Schema does not make."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from oracle.config import RunConfig
from oracle.errors import ConfigError
from oracle.tolerance import load_tolerances

TRAIN_ONLY = (
    "tolerances",
    "min_steps",
    "max_mean_relative_loss_difference",
    "max_relative_loss_difference",
)
PATTERNS = ("field", "example", "tensor", "at_most", "consequences")


def check_mode(row: Mapping[str, Any], path: Path, where: str) -> None:
    """Refuse thresholds that the mode of the run does not have, or lacks."""
    given = [key for key in TRAIN_ONLY if key in row]
    if row["mode"] == "render" and given:
        raise ConfigError(f"{path}: {where} is of mode render, which has no {given[0]}.")
    missing = [key for key in TRAIN_ONLY if key not in row]
    if row["mode"] == "train" and missing:
        raise ConfigError(f"{path}: {where} lacks {', '.join(missing)}; mode train needs them.")
    limits = [row[key] for key in TRAIN_ONLY[2:] if key in row]
    for key in TRAIN_ONLY[2:]:
        if key in row and not math.isfinite(row[key]):
            raise ConfigError(f"{path}: {where}.{key} is {row[key]} and should be a number.")
    if limits and limits[0] > limits[1]:
        raise ConfigError(
            f"{path}: {where}: the mean may be {limits[0]:g} and the largest {limits[1]:g}; a mean "
            "is never larger, so that limit could not fail."
        )


def check_rules(tolerances: Path, config: RunConfig, path: Path, where: str) -> None:
    """Refuse a tolerance file of another precision, and one that everything passes."""
    rules = load_tolerances(tolerances)
    if rules.precision != config.precision:
        raise ConfigError(
            f"{path}: {where}.tolerances is for {rules.precision} and {config.path} runs in "
            f"{config.precision}."
        )
    if weak := rules.weaknesses():
        raise ConfigError(f"{path}: {where}.tolerances: {weak[0]}.")


def check_waiver(row: Mapping[str, Any], path: Path, where: str) -> None:
    """Refuse a waiver that does not say what it covers, or covers echo as a whole."""
    phase, threshold, up_to = row.get("phase"), row.get("threshold"), row.get("up_to")
    if (phase is None) == (threshold is None):
        raise ConfigError(f"{path}: {where} must name a phase or a threshold, and not both.")
    given = [key for key in PATTERNS if key in row]
    if threshold is not None and (up_to is None or given):
        what = f"has {given[0]}, which is of a phase" if given else "lacks up_to"
        raise ConfigError(f"{path}: {where} {what}; a threshold is waived up to a number.")
    if phase is not None and up_to is not None:
        raise ConfigError(f"{path}: {where} has up_to, which is of a threshold, not of a phase.")
    if up_to is not None and not math.isfinite(up_to):
        raise ConfigError(f"{path}: {where}.up_to is {up_to} and should be a number.")
    if phase == "echo" and "field" not in row:
        raise ConfigError(
            f"{path}: {where} waives echo as a whole; name the field, as the verdict names it."
        )


def with_dates_as_text(value: Any) -> Any:
    """JSON Schema knows no date: one of TOML becomes its ISO text."""
    if isinstance(value, dict):
        return {key: with_dates_as_text(entry) for key, entry in value.items()}
    if isinstance(value, list):
        return [with_dates_as_text(entry) for entry in value]
    return value.isoformat() if hasattr(value, "isoformat") else value


def check_texts(value: Any, path: Path, where: str) -> None:
    """Refuse a text of blanks: an owner, a reason or a name that says nothing."""
    if isinstance(value, dict):
        for key, entry in value.items():
            check_texts(entry, path, f"{where}.{key}" if where else key)
    elif isinstance(value, list):
        for place, entry in enumerate(value):
            check_texts(entry, path, f"{where}.{place}")
    elif isinstance(value, str) and not value.strip():
        raise ConfigError(f"{path}: {where} is blank.")
