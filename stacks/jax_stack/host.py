"""Host conditions: what surrounds the work of a leg and must not change one bit of it (S-31).

Imported before jax. A child process does the leg's work under `spawn` and `fork`; this one passes
signals on to it, and its exit code to the launcher.
"""

import ctypes
import gc
import multiprocessing
import os
import signal
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from multiprocessing import resource_tracker
from typing import Any, TypeVar

CONDITIONS = ("fresh-thread", "gc-off", "gc-every-step", "spawn", "fork")
CHILD = ("spawn", "fork")  # conditions of the process, not of a step
SIGNALS = (signal.SIGINT, signal.SIGTERM)
PR_SET_PDEATHSIG = 1  # of prctl(2)

Result = TypeVar("Result")


@dataclass(frozen=True, kw_only=True)
class Host:
    """The condition of a leg; None: none."""

    condition: str | None

    def begin(self) -> None:
        """Sets what holds for the whole leg."""
        if self.condition == "gc-off":
            gc.disable()

    def step(self, work: Callable[[], Result]) -> Result:
        """Does the work of one step under the condition."""
        if self.condition == "gc-every-step":
            gc.collect()
        if self.condition == "fresh-thread":
            with ThreadPoolExecutor(max_workers=1) as thread:
                return thread.submit(work).result()
        return work()


def run_in_child(method: str, arguments: list[str]) -> int:
    """The exit code of a leg with these arguments in a child process, started by `method`.

    Signals wait from before its start until both processes can handle them.
    """
    context = multiprocessing.get_context(method)
    if method == "spawn":
        resource_tracker.ensure_running()  # its start would let waiting signals through
    signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
    child = context.Process(target=_child, args=(arguments, os.getpid()))  # type: ignore[attr-defined]
    child.start()

    def pass_on(number: int, frame: Any) -> None:
        if child.exitcode is None:
            os.kill(child.pid, number)

    for number in SIGNALS:
        signal.signal(number, pass_on)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)
    child.join()
    code = int(child.exitcode)
    return code if code >= 0 else 128 - code  # ended by a signal: as a shell reports it


def let_signals_in() -> None:
    """Takes the signals that have waited since before the start of a child."""
    signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)


def _child(arguments: list[str], parent: int) -> None:
    if sys.platform == "linux":  # nobody else would end it if the parent is killed
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:
            sys.exit(1)
    from .__main__ import main

    sys.exit(main(arguments, is_child=True))
