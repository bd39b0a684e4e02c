"""A leg as a value: what to start, within which limits, and how it ended (S-26)."""

from __future__ import annotations

import contextlib
import os
import secrets
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from oracle.stacks import Stack

BAD_INPUT = 2  # exit code of a leg (S-26)

# Everything else of the caller's environment stays behind: a variable that only one of two
# machines sets is a difference that no trace shows.
PASSED_ON = (
    "CUDA_VISIBLE_DEVICES",
    "HOME",
    "LANG",
    "LC_ALL",
    "LC_CTYPE",
    "LD_LIBRARY_PATH",
    "LOGNAME",
    "PATH",
    "TMPDIR",
    "TZ",
    "USER",
)


@dataclass(frozen=True, kw_only=True)
class Leg:
    """One process to start. `out` is its trace directory, `logs` where its output goes."""

    name: str
    stack: Stack
    mode: Literal["train", "render"]
    config: Path
    root: Path
    out: Path
    logs: Path
    nonce: str
    resume: bool = False
    trace: bool = True

    @property
    def argv(self) -> list[str]:
        """The command line of S-26."""
        argv = [*self.stack.argv, self.mode, "--config", str(self.config), "--root", str(self.root)]
        argv += ["--out", str(self.out), "--nonce", self.nonce]
        argv += ["--resume"] if self.resume else []
        return argv + ([] if self.trace else ["--no-trace"])

    def resumed(self) -> Leg:
        """Return the leg that goes on where this one was cut short (S-23)."""
        return replace(self, resume=True)


@dataclass(frozen=True, kw_only=True)
class Limits:
    """`stall_seconds`: longest time without a sign of life. `grace_seconds`: SIGTERM to SIGKILL."""

    stall_seconds: float = 300.0
    grace_seconds: float = 30.0


@dataclass(frozen=True, kw_only=True)
class LegEnd:
    """How a leg ended. `error` is one sentence, None when it exited with 0.

    `stopped_for` names the leg whose failure ended this one.
    """

    name: str
    return_code: int
    error: str | None
    stopped_for: str | None
    last_step: int | None
    seconds: float


def new_nonce() -> str:
    """Return a text that no earlier trace can repeat."""
    return secrets.token_hex(16)


def running_process(nonce: str) -> int | None:
    """Return the id of a process that has this nonce on its command line, None without one."""
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            if nonce.encode() in path.read_bytes():
                return int(path.parent.name)
    return None


def environment(stack: Stack) -> dict[str, str]:
    """Return the variables that a leg sees: those passed on, then the stack's own."""
    return {name: os.environ[name] for name in PASSED_ON if name in os.environ} | dict(stack.env)
