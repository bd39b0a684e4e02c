"""Rules that a change touches: the files of a gate as they are against a commit before.

A change that loosens a rule and acknowledges it in one go leaves nothing unacknowledged; whoever
reviews it sees it all the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from oracle.errors import OracleError
from oracle.gate.rules import Change, changes, flat_values, read_rules
from oracle.revision import git


@dataclass(frozen=True, kw_only=True)
class Moved:
    """A file of rules that is another than at the base; `new` when it was not there."""

    path: Path
    new: bool
    changes: tuple[Change, ...]

    @property
    def sentence(self) -> str:
        """`tolerances/float64.toml loosened steps.loss cap 1e-06 → 0.0001`."""
        name = f"{self.path.parent.name}/{self.path.name}"
        if self.new:
            return f"{name} is new"
        more = f" and {len(self.changes) - 3} more" if len(self.changes) > 3 else ""
        return f"{name} " + ", ".join(change.sentence for change in self.changes[:3]) + more


def moved_since(files: Sequence[Path], base: str) -> tuple[Moved, ...]:
    """Return the files whose values differ from those at `base`; raises OracleError without it."""
    found = []
    for path in files:
        folder = path.parent
        if git(folder, "rev-parse", "--verify", "--quiet", f"{base}^{{commit}}") is None:
            raise OracleError(
                f"--base {base} is no commit of the repository around {folder}; fetch it, or leave "
                "--base out."
            )
        before = git(folder, "show", f"{base}:./{path.name}")
        made = () if before is None else changes(flat_values(before), read_rules(path).values)
        if before is None or made:
            found.append(Moved(path=path, new=before is None, changes=made))
    return tuple(found)
