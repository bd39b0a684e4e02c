"""Conditions of the process that must not change one bit (S-31)."""

import ctypes
import gc
import multiprocessing
import os
import signal
import sys
import threading
from collections.abc import Callable
from types import FrameType

CONDITIONS = ("fresh-thread", "gc-off", "gc-every-step", "spawn", "fork")
_PR_SET_PDEATHSIG = 1


def prepare(condition: str | None) -> None:
    """At the start of the leg's process."""
    if condition == "gc-off":
        gc.disable()


def run_step(condition: str | None, step: Callable[[], None]) -> None:
    """One step of training under the condition; an error of a worker thread is raised here."""
    if condition == "gc-every-step":
        gc.collect()
    if condition != "fresh-thread":
        step()
        return
    errors: list[BaseException] = []

    def work() -> None:
        try:
            step()
        except BaseException as error:  # noqa: BLE001 - it is raised in the main thread
            errors.append(error)

    thread = threading.Thread(target=work, name="step")
    thread.start()
    thread.join()
    if errors:
        raise errors[0]


def run_child(method: str, arguments: list[str]) -> int:
    """Do the leg's work in a child process; signals and the exit code are passed on.

    Called before any numeric library is imported, so that a fork copies no thread pool.
    """
    context = multiprocessing.get_context(method)
    child = context.Process(target=_child, args=(arguments, os.getpid()))  # type: ignore[attr-defined]
    received: list[int] = []

    def forward(number: int, _frame: FrameType | None) -> None:
        received.append(number)
        if child.pid is not None:
            os.kill(child.pid, number)

    for expected in (signal.SIGINT, signal.SIGTERM):
        signal.signal(expected, forward)
    child.start()
    for number in received:  # those that came before there was a child
        os.kill(child.pid, number)
    child.join()
    code = int(child.exitcode)
    if code < 0:  # a signal ended it: it ends this process in the same way
        if -code in (signal.SIGINT, signal.SIGTERM):
            signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    return code


def _child(arguments: list[str], parent: int) -> None:
    from stacks.torch_stack.__main__ import main

    if sys.platform == "linux":  # a killed leg leaves no child behind
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:
            os._exit(1)
    sys.exit(main(arguments, is_child=True))
