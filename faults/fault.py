"""A planted fault as a value, and a copy of the repository's stacks that has it.

A fault is a TOML file: what goes wrong in the field, where it was reported, which fragment of which
module becomes what, and the phase in which the oracle must report it. A fragment must occur exactly
once, so a patch that no longer fits the code fails loudly instead of planting nothing.
"""

from __future__ import annotations

import shutil
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
KEYS = {"id", "title", "source", "stack", "expect", "planted_by", "patch", "config", "note"}


@dataclass(frozen=True, kw_only=True)
class Patch:
    """In `file` of the stack's package the one occurrence of `find` becomes `replace`."""

    file: str
    find: str
    replace: str


@dataclass(frozen=True, kw_only=True)
class Fault:
    """One planted fault.

    `expect` names the phases that may be reported first. `config` holds changes of the base config
    (section -> key -> value, or key -> value) for faults that show under some settings only.
    """

    id: str
    title: str
    source: str
    stack: str
    expect: tuple[str, ...]
    planted_by: str
    patches: tuple[Patch, ...]
    config: Mapping[str, Any]


def load_fault(path: Path) -> Fault:
    """Read a fault file; raises ValueError for an unknown or missing key."""
    row = tomllib.loads(path.read_text("utf-8"))
    if unknown := set(row) - KEYS:
        raise ValueError(f"{path}: unknown keys {sorted(unknown)}; known are {sorted(KEYS)}")
    if missing := KEYS - {"config", "note"} - set(row):
        raise ValueError(f"{path}: missing keys {sorted(missing)}")
    if path.stem != row["id"]:
        raise ValueError(f"{path}: id is {row['id']!r}; it must be the name of the file")
    return Fault(
        id=row["id"],
        title=row["title"],
        source=row["source"],
        stack=row["stack"],
        expect=tuple(row["expect"]),
        planted_by=row["planted_by"],
        patches=tuple(Patch(**patch) for patch in row["patch"]),
        config=row.get("config", {}),
    )


def all_faults() -> tuple[Fault, ...]:
    """Return every fault of this folder in order of its id."""
    return tuple(load_fault(path) for path in sorted(Path(__file__).parent.glob("planted/*.toml")))


def apply_patches(package: Path, patches: Sequence[Patch], name: str) -> None:
    """Change the modules in place; raises ValueError unless each fragment occurs exactly once."""
    for patch in patches:
        path = package / patch.file
        text = path.read_text("utf-8")
        if (num := text.count(patch.find)) != 1:
            raise ValueError(
                f"fault {name}: the fragment for {patch.file} occurs {num} times and must occur "
                "once; the code has changed, so plant the fault anew."
            )
        path.write_text(text.replace(patch.find, patch.replace), "utf-8")


def planted_root(fault: Fault, folder: Path) -> Path:
    """Copy the stack to `folder`, plant the fault; returns the root to import from."""
    package = folder / "stacks" / f"{fault.stack}_stack"
    source = ROOT / "stacks" / f"{fault.stack}_stack"
    shutil.copytree(source, package, ignore=shutil.ignore_patterns("__pycache__"))
    apply_patches(package, fault.patches, fault.id)
    return folder
