"""Who has seen which rules: `acknowledged.toml` beside a policy.

An entry holds the hash of a tolerance or policy file, who read it, when and why, and a copy of its
values, so that what changed since can be told without the file's history. A file that is not there
as it is now shows in the gate's line until somebody acknowledges it.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Any

import tomli_w

from oracle.config import parse_toml
from oracle.errors import ConfigError
from oracle.files import read_bytes, write_atomic
from oracle.gate.rules import Change, Rules, Value, changes, read_rules

FILE = "acknowledged.toml"
HEAD = """# Who has read which rules. Written by `oracle acknowledge`; `values` are the file's
# as they were then, and what changed since shows in the gate's line.

"""
KEYS = {"file": str, "sha256": str, "by": str, "on": date, "reason": str, "values": dict}


@dataclass(frozen=True, kw_only=True)
class Acknowledged:
    """One entry. `file` is relative to the folder of `acknowledged.toml`."""

    file: str
    sha256: str
    by: str
    on: date
    reason: str
    values: Mapping[str, Value]


@dataclass(frozen=True, kw_only=True)
class Unseen:
    """A file of rules that nobody acknowledged as it is; no changes when only words changed."""

    path: Path
    ever: bool
    changes: tuple[Change, ...]

    @property
    def name(self) -> str:
        """The file with its folder."""
        return f"{self.path.parent.name}/{self.path.name}"

    @property
    def sentence(self) -> str:
        """`tolerances/float64.toml loosened steps.loss multiple 10 → 100`."""
        if not self.ever:
            return f"{self.name} was never acknowledged"
        if not self.changes:
            return f"{self.name} changed in words only"
        more = f" and {len(self.changes) - 3} more" if len(self.changes) > 3 else ""
        return f"{self.name} " + ", ".join(change.sentence for change in self.changes[:3]) + more


def read_acknowledged(folder: Path) -> Mapping[str, Acknowledged]:
    """Return the entries by file; none where there is no such file; raises ConfigError."""
    path = folder / FILE
    if not path.exists():
        return {}
    table = parse_toml(read_bytes(path, "acknowledgements", ConfigError), path)
    rows = table.pop("acknowledged", [])
    if table or not isinstance(rows, list):
        raise ConfigError(f"{path} should hold [[acknowledged]] and nothing else.")
    found: dict[str, Acknowledged] = {}
    for place, row in enumerate(rows):
        _check(row, path, place)
        if row["file"] in found:
            raise ConfigError(f"{path}: {row['file']} is acknowledged twice.")
        found[row["file"]] = Acknowledged(**row)
    return found


def _check(row: Any, path: Path, place: int) -> None:
    where = f"{path}: acknowledged.{place}"
    if not isinstance(row, dict) or row.keys() != KEYS.keys():
        raise ConfigError(f"{where} should hold {', '.join(KEYS)}; write it by oracle acknowledge.")
    for key, wanted in KEYS.items():
        value = row[key]
        if type(value) is not wanted or (isinstance(value, str) and not value.strip()):
            raise ConfigError(f"{where}.{key} should be a {wanted.__name__} that is not empty.")


def unseen(paths: Sequence[Path], folder: Path) -> tuple[Unseen, ...]:
    """Return the files that are not acknowledged as they are now, with what changed since."""
    known = read_acknowledged(folder)
    found = []
    for path in dict.fromkeys(path.resolve() for path in paths):
        rules = read_rules(path)
        entry = known.get(_relative(path, folder))
        if entry is None or entry.sha256 != rules.sha256:
            made = () if entry is None else changes(entry.values, rules.values)
            found.append(Unseen(path=path, ever=entry is not None, changes=made))
    return tuple(found)


def acknowledge(path: Path, folder: Path, *, by: str, reason: str, on: date) -> tuple[Change, ...]:
    """Write that `by` has read the rules as they are; returns what changed since the last time."""
    for what, text in (("--by", by), ("--reason", reason)):
        if not text.strip():
            raise ConfigError(f"{what} is blank; say who has read the rules, and why they are so.")
    rules, known = read_rules(path), dict(read_acknowledged(folder))
    name = _relative(rules.path, folder)
    before = known.get(name)
    known[name] = Acknowledged(
        file=name, sha256=rules.sha256, by=by.strip(), on=on, reason=reason.strip(),
        values=rules.values,
    )  # fmt: skip
    _write(folder / FILE, known)
    return () if before is None else changes(before.values, rules.values)


def _write(path: Path, known: Mapping[str, Acknowledged]) -> None:
    rows = [vars(known[name]) for name in sorted(known)]
    mode = path.stat().st_mode & 0o777 if path.exists() else 0o644
    write_atomic(path, (HEAD + tomli_w.dumps({"acknowledged": rows})).encode("utf-8"), mode=mode)


def _relative(path: Path, folder: Path) -> str:
    return Path(os.path.relpath(path.resolve(), folder.resolve())).as_posix()


def check_rules(path: Path, *, today: date) -> Rules:
    """Return the rules of a tolerance or policy file that can be used; raises ConfigError."""
    from oracle.gate.policy import load_policy
    from oracle.tolerance import load_tolerances

    table = parse_toml(read_bytes(path, "rules", ConfigError), path)
    if "policy_version" in table:
        load_policy(path, today=today)
    else:
        load_tolerances(path)
    return read_rules(path)
