"""The run config (S-01): TOML held against `run.schema.json`; a fault has its line and remedy.

A config holds no conversation, so its values are shown in messages.
"""

from __future__ import annotations

import copy
import difflib
import hashlib
import math
import re
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jsonschema.exceptions import ValidationError

from oracle.contract import schema
from oracle.document import demand, field_name, kind, shown_value, validator
from oracle.errors import ConfigError
from oracle.files import read_bytes

LARGEST_INTEGER = 2**63 - 1
SPLITS = ("train", "eval", "edge")


@dataclass(frozen=True, kw_only=True)
class RunConfig:
    """A valid run config. `content` are its bytes, `root` the folder that its paths start from."""

    path: Path
    root: Path
    content: bytes
    sha256: str
    values: Mapping[str, Any]

    @property
    def name(self) -> str:
        """Name of the run, part of the names of its directories."""
        return str(self.values["name"])

    @property
    def num_steps(self) -> int:
        """Updates that a leg makes."""
        return int(self.values["train"]["num_steps"])

    @property
    def precision(self) -> str:
        """`float64` or `float32`."""
        return str(self.values["train"]["precision"])

    def file(self, relative: str) -> Path:
        """Return a path of the config, resolved against the root."""
        return self.root / relative

    def absolute_values(self) -> dict[str, Any]:
        """Return a copy of the values whose paths are absolute: a config that may lie anywhere."""
        values: dict[str, Any] = copy.deepcopy(dict(self.values))
        data, model = values["data"], values["model"]
        for split in SPLITS:
            data[split] = [str(self.file(name).resolve()) for name in data[split]]
        for table, key in ((data, "template"), (data, "tokenizer"), (model, "checkpoint")):
            table[key] = str(self.file(table[key]).resolve())
        return values

    def data_files(self) -> Iterator[tuple[str, str]]:
        """Yield (split, path as written) in the order of S-24."""
        for split in SPLITS:
            for name in self.values["data"][split]:
                yield split, name


def load_config(path: Path, *, root: Path | None = None) -> RunConfig:
    """Read and check a run config; raises ConfigError at its first fault.

    `root` is the folder that relative paths start from, by default the config's own.
    """
    content = read_bytes(path, "config", ConfigError)
    values = parse_toml(content, path)
    text = content.decode("utf-8")
    _check_schema(values, path, text)
    _check_numbers(values, path, text)
    _check_relations(values, path, text)
    return RunConfig(
        path=path.resolve(),
        root=(root or path.parent).resolve(),
        content=content,
        sha256=hashlib.sha256(content).hexdigest(),
        values=values,
    )


def parse_toml(content: bytes, path: Path) -> dict[str, Any]:
    """Parse TOML 1.0; raises ConfigError with the line."""
    try:
        return tomllib.loads(content.decode("utf-8"))
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path} is not UTF-8 (byte {error.start}).") from None
    except tomllib.TOMLDecodeError as error:
        reason = str(error)
        place = re.search(r" \(at line (\d+), column (\d+)\)$", reason)
        where = f"{path}:{place[1]}" if place else str(path)
        reason = reason[: place.start()] if place else reason
        hint = ", or text without quotes" if reason == "Invalid value" else ""
        raise ConfigError(f"{where} is not TOML: {reason}{hint}.") from None
    except ValueError:  # TOML's own limit is 64 bits
        raise ConfigError(f"{path} holds a number or date that cannot be read.") from None
    except RecursionError:
        raise ConfigError(f"{path} holds lists or tables that are nested too deep.") from None


def _check_schema(values: dict[str, Any], path: Path, text: str) -> None:
    # An unknown key goes first: it is nearly always the misspelt twin of a missing one.
    try:
        errors = sorted(
            validator("run").iter_errors(values),
            key=lambda e: (e.validator != "additionalProperties", [*map(str, e.absolute_path)]),
        )
    except ValueError:  # jsonschema prints what it refuses; Python prints 4,300 digits at most
        raise ConfigError(f"{path} holds an integer that does not fit in 64 bits (S-01).") from None
    if not errors:
        return
    sentence = _sentence(errors[0], path, text)
    more = f" (fault 1 of {len(errors)} in this file)" if len(errors) > 1 else ""
    raise ConfigError(f"{sentence}{more}.")


def _sentence(error: ValidationError, path: Path, text: str) -> str:
    table = ".".join(str(part) for part in error.absolute_path)
    if error.validator == "additionalProperties":
        known = list(error.schema["properties"])
        key = min(set(error.instance) - set(known))
        full = f"{table}.{key}" if table else key
        return f"{_where(path, text, full)}: unknown key {full}{_suggestion(key, table, known)}"
    if error.validator == "required":
        missing = [key for key in error.validator_value if key not in error.instance]
        names = ", ".join(f"{table}.{key}" if table else key for key in missing)
        return f"{_where(path, text, table)}: lacks {names}; every key is required (S-01)"
    value = error.instance
    where = _where(path, text, table)
    reason = demand(error, reveal=True)
    if isinstance(value, str) and "a number" in reason + "an integer" and _is_number(value):
        reason += f"; write it without quotes: {value}"
    if table == "contract":
        reason += "; this oracle knows contract 1"
    return f"{where}: {field_name(error)} {reason}"


def _is_number(text: str) -> bool:
    return re.fullmatch(r"[+-]?[0-9]+(\.[0-9]+)?([eE][+-]?[0-9]+)?", text) is not None


def _suggestion(key: str, table: str, known: list[str]) -> str:
    """Name the nearest key of this table, the table that the key belongs to, or all keys."""
    initials = [name for name in known if "".join(w[0] for w in name.split("_")) == key]
    if near := difflib.get_close_matches(key, known, n=1, cutoff=0.6) or initials:
        return f"; did you mean {table + '.' if table else ''}{near[0]}?"
    for other, field in schema("run")["properties"].items():
        if key in field.get("properties", {}):
            return f"; it belongs in [{other}]"
    return f"; known are {', '.join(known)}"


def line_of(text: str, dotted: str) -> int | None:
    """Return the 1-based line of a key or table of a config; None when it has none of its own."""
    current = ""
    for number, line in enumerate(text.splitlines(), start=1):
        if header := re.match(r"\s*\[\s*([A-Za-z0-9_.-]+)\s*\]", line):
            current = header[1]
            if current == dotted:
                return number
        elif entry := re.match(r"\s*([A-Za-z0-9_.-]+)\s*=", line):
            full = f"{current}.{entry[1]}" if current else entry[1]
            if full == dotted or dotted.startswith(full + "."):
                return number
    return None


def _where(path: Path, text: str, dotted: str) -> str:
    line = line_of(text, dotted)
    return str(path) if line is None else f"{path}:{line}"


def _check_numbers(values: Mapping[str, Any], path: Path, text: str, table: str = "") -> None:
    """Refuse what JSON Schema lets pass: NaN, infinity, 2.0 for an integer, more than 64 bits."""
    fields = schema("run")["properties"]
    if table:
        fields = fields[table]["properties"]
    for key, value in values.items():
        full = f"{table}.{key}" if table else key
        if isinstance(value, Mapping):
            _check_numbers(value, path, text, full)
        elif isinstance(value, float) and not math.isfinite(value):
            where = _where(path, text, full)
            raise ConfigError(f"{where}: {full} is {value} and should be a finite number.")
        elif isinstance(value, float) and fields[key].get("type") == "integer":
            where = _where(path, text, full)
            raise ConfigError(
                f"{where}: {full} is {kind(value)} ({value}) and should be an integer; "
                f"write {int(value)}."
            )
        elif isinstance(value, int) and value > LARGEST_INTEGER:
            where = _where(path, text, full)
            raise ConfigError(
                f"{where}: {full} is {shown_value(value)} and does not fit in 64 bits (S-01)."
            )


def _check_relations(values: Mapping[str, Any], path: Path, text: str) -> None:
    warmup, num_steps = values["schedule"]["warmup_steps"], values["train"]["num_steps"]
    if warmup >= num_steps:
        where = _where(path, text, "schedule.warmup_steps")
        raise ConfigError(
            f"{where}: schedule.warmup_steps is {warmup} and train.num_steps is {num_steps}; "
            "the warm-up must be shorter than the run (S-01)."
        )
