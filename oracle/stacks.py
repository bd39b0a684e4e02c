"""Stacks (`stacks.toml`): a name, the argv that starts it (S-26), and the variables it needs.

A third stack in any language is one more entry.
"""

from __future__ import annotations

import difflib
import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from oracle.config import parse_toml
from oracle.contract import ROOT
from oracle.document import kind
from oracle.errors import ConfigError
from oracle.files import read_bytes

STACKS_FILE = ROOT / "configs" / "stacks.toml"


@dataclass(frozen=True, kw_only=True)
class Stack:
    """How a stack is started. `root`, above the folder of the file, is its working directory."""

    name: str
    argv: tuple[str, ...]
    env: Mapping[str, str]
    root: Path


def load_stacks(path: Path = STACKS_FILE) -> dict[str, Stack]:
    """Read a stacks file; raises ConfigError at the first entry that cannot be used."""
    tables = parse_toml(read_bytes(path, "stacks file", ConfigError), path)
    if not tables:
        raise ConfigError(f"{path} names no stack; an entry is [name] with argv and env.")
    root = path.resolve().parent.parent
    return {name: _stack(name, table, path, root) for name, table in tables.items()}


def pick_stacks(names: str, path: Path = STACKS_FILE) -> tuple[Stack, Stack]:
    """Return the two stacks of a pair like "torch,jax"; the same name twice is a self run."""
    known = load_stacks(path)
    wanted = [name.strip() for name in names.split(",")]
    for name in wanted:
        if name not in known:
            near = difflib.get_close_matches(name, known, n=1)
            hint = f"did you mean {near[0]}?" if near else f"known are {', '.join(known)}."
            raise ConfigError(f"unknown stack {name!r} ({path}); {hint}")
    if len(wanted) != 2:
        raise ConfigError(f"--stacks names {len(wanted)} stacks ({names}); a double run needs two.")
    return known[wanted[0]], known[wanted[1]]


def _stack(name: str, table: Any, path: Path, root: Path) -> Stack:
    if re.fullmatch(r"[a-z0-9][a-z0-9_-]{0,31}", name) is None:
        raise ConfigError(f"{path}: the stack name {name!r} must be lower-case letters and digits.")
    if not isinstance(table, dict):
        raise ConfigError(f"{path}: {name} is {kind(table)} and should be a table [{name}].")
    if unknown := sorted(table.keys() - {"argv", "env"}):
        raise ConfigError(f"{path}: [{name}] has unknown key {unknown[0]!r}; known are argv, env.")
    if missing := sorted({"argv", "env"} - table.keys()):
        raise ConfigError(f"{path}: [{name}] lacks {', '.join(missing)}.")
    argv, env = table["argv"], table["env"]
    if not isinstance(argv, list) or not argv or not all(isinstance(a, str) for a in argv):
        raise ConfigError(f"{path}: {name}.argv should be a list of one or more texts.")
    if not isinstance(env, dict) or not all(isinstance(v, str) for v in env.values()):
        raise ConfigError(f"{path}: {name}.env should be a table of texts.")
    return Stack(
        name=name,
        argv=tuple(_filled(argument, root) for argument in argv),
        env={key: _filled(value, root) for key, value in env.items()},
        root=root,
    )


def _filled(text: str, root: Path) -> str:
    # Not str.format: other braces in an argument are the stack's own.
    return text.replace("{python}", sys.executable).replace("{root}", str(root))
