"""What is asked of the store, and what it answers: plain values."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Filters:
    """Which runs: all that are given must hold.

    `commit` may be shortened, `since` is ISO 8601 in UTC, `limit` counts from the newest.
    """

    id: str | None = None
    verdict: str | None = None
    config: str | None = None
    commit: str | None = None
    branch: str | None = None
    author: str | None = None
    stack: str | None = None
    purpose: str | None = None
    mode: str | None = None
    since: str | None = None
    limit: int | None = None


@dataclass(frozen=True, kw_only=True)
class StoredRun:
    """A run as the index lists it; differences are relative, times ISO 8601 in UTC.

    `headline` makes sense alone; `stacks` are those of the legs in their order. `first_phase` and
    `first_step` are of the first divergence. `record_sha256` names all that is stored of the run.
    """

    id: str
    created: str
    recorded: str
    mode: str
    purpose: str
    config_name: str
    config_sha256: str
    precision: str | None
    num_steps: int
    num_examples: int
    commit: str | None
    branch: str | None
    author: str | None
    contract: str
    verdict: str
    headline: str
    first_phase: str | None
    first_step: int | None
    max_relative_loss_difference: float | None
    mean_relative_loss_difference: float | None
    tolerances_sha256: str
    floor_sha256: str | None
    num_bytes: int
    record_sha256: str
    stacks: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class Alteration:
    """A file that is not as it was recorded: `found` is its SHA-256 now, None when it is gone."""

    run: str
    file: str
    expected: str
    found: str | None

    @property
    def sentence(self) -> str:
        """File, expected and found hash."""
        found = "it is gone" if self.found is None else f"it has {self.found[:16]} now"
        return f"{self.file}: recorded with {self.expected[:16]}, {found}"


@dataclass(frozen=True, kw_only=True)
class Freed:
    """What a removal took, or would take away: ids of runs, other leftovers, bytes on the disk."""

    runs: tuple[str, ...]
    num_leftovers: int
    num_bytes: int
