"""Legs as processes (S-26): started together, watched, and ended so that nothing is left running.

Each leg has its own process group, a clean environment, and files for what it prints. A leg that
fails or stalls ends the other one too, after its running step, with a snapshot to resume from.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO

from oracle.ending import ending
from oracle.errors import LegError
from oracle.leg import Leg, LegEnd, Limits, environment
from oracle.progress import LegState, LegTail, OnProgress

POLL_SECONDS = 0.1
STREAMS = ("stdout", "stderr")
LARGEST_LOG_BYTES = 32_000_000  # of stdout and of stderr, each


def run_legs(
    legs: Sequence[Leg],
    *,
    limits: Limits | None = None,
    on_progress: OnProgress | None = None,
    on_start: Callable[[Mapping[str, int]], None] | None = None,
) -> tuple[LegEnd, ...]:
    """Run legs at the same time until all have ended; returns their ends in the order given.

    `on_start` is told the process ids by leg, so that a later run can see who is still there.
    Raises LegError when one cannot be started, and KeyboardInterrupt (SIGINT, SIGTERM) after all
    legs were stopped.
    """
    limits = limits or Limits()
    running: list[_Process] = []
    with _termination_interrupts():
        try:
            for leg in legs:
                running.append(_Process(leg))
                if on_start is not None:
                    on_start({process.leg.name: process.popen.pid for process in running})
            _watch(running, limits, on_progress)
        finally:
            # Also the way out of an interrupt; a second one cuts the wait short.
            try:
                _stop([process for process in running if process.alive], limits.grace_seconds)
            finally:
                for process in running:
                    process.close()
    return tuple(process.end() for process in running)


class _Process:
    """A started leg with its tail."""

    def __init__(self, leg: Leg) -> None:
        self.leg = leg
        self.tail = LegTail(leg.name, leg.out)
        self.blame: str | None = None  # why we stopped it
        self.stopped_for: str | None = None
        leg.logs.mkdir(parents=True, exist_ok=True, mode=0o700)
        (leg.out / "error.json").unlink(missing_ok=True)  # of the attempt that is resumed
        with _log(leg, "stdout") as stdout, _log(leg, "stderr") as stderr:
            try:
                self.popen = subprocess.Popen(
                    leg.argv,
                    stdin=subprocess.DEVNULL,
                    stdout=stdout,
                    stderr=stderr,
                    cwd=leg.stack.root,
                    env=environment(leg.stack),
                    start_new_session=True,
                    umask=0o077,
                )
            except OSError as error:
                raise LegError(
                    f"stack {leg.stack.name} cannot be started: {leg.stack.argv[0]} "
                    f"({error.strerror}); see its entry in the stacks file."
                ) from None
        self.started = self.sign = time.monotonic()
        self.seconds = 0.0

    @property
    def alive(self) -> bool:
        return self.popen.poll() is None

    @property
    def failed(self) -> bool:
        return self.popen.poll() not in (None, 0) or self.blame is not None

    def poll(self, now: float) -> None:
        if self.tail.poll():
            self.sign = now
        if self.alive:
            self.seconds = now - self.started

    def bound_logs(self) -> None:
        """Cut a log that grew too long to half: its beginning stays, and what comes last."""
        for stream in STREAMS:
            path = _log_path(self.leg, stream)
            if path.stat().st_size > LARGEST_LOG_BYTES:
                os.truncate(path, LARGEST_LOG_BYTES // 2)

    def signal(self, number: int) -> None:
        # A group outlives its leader when the leader left children behind.
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.popen.pid, number)

    def close(self) -> None:
        """Wait for the process and take away whatever it left running in its group."""
        self.signal(signal.SIGKILL)
        self.popen.wait()
        self.tail.poll()
        self.bound_logs()

    def end(self) -> LegEnd:
        code = self.popen.returncode
        return LegEnd(
            name=self.leg.name,
            return_code=code,
            error=self.blame or ending(self.leg, code, self.tail.step),
            stopped_for=self.stopped_for,
            last_step=self.tail.step,
            seconds=self.seconds,
        )


def _watch(running: list[_Process], limits: Limits, on_progress: OnProgress | None) -> None:
    while True:
        now = time.monotonic()
        alive = [process for process in running if process.alive]
        for process in running:
            process.poll(now)
            process.bound_logs()
        if on_progress is not None:
            on_progress(tuple(_state(process) for process in running))
        for process in alive:
            if now - process.sign > limits.stall_seconds:
                process.blame = _stalled(process, limits)
        failed = next((process for process in running if process.failed), None)
        if failed is not None:
            for process in alive:
                if process.blame is None and process is not failed:
                    process.stopped_for = failed.leg.name
                    process.blame = f"was stopped because {failed.leg.name} failed."
            _stop(alive, limits.grace_seconds)
            return
        if not alive:
            return
        time.sleep(POLL_SECONDS)


def _state(process: _Process) -> LegState:
    if process.alive:
        return process.tail.state()
    return process.tail.state("failed" if process.failed else "done")


def _stalled(process: _Process, limits: Limits) -> str:
    step = process.tail.step
    where = "before its first step" if step is None else f"after step {step}"
    return (
        f"wrote nothing for {limits.stall_seconds:g} seconds {where} and was stopped; see "
        f"logs/{process.leg.name}.stderr, or raise --stall-seconds."
    )


def _stop(alive: Sequence[_Process], grace_seconds: float) -> None:
    """Ask process groups to end after the running step; kill what is left after the grace."""
    for process in alive:
        process.signal(signal.SIGTERM)
    deadline = time.monotonic() + grace_seconds
    while any(process.alive for process in alive) and time.monotonic() < deadline:
        time.sleep(POLL_SECONDS / 2)
        for process in alive:
            process.bound_logs()
    for process in alive:
        process.signal(signal.SIGKILL)


def _log(leg: Leg, stream: str) -> IO[bytes]:
    handle = os.open(_log_path(leg, stream), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    return os.fdopen(handle, "ab")


def _log_path(leg: Leg, stream: str) -> Path:
    return leg.logs / f"{leg.name}.{stream}"


@contextlib.contextmanager
def _termination_interrupts() -> Iterator[None]:
    """Treat SIGTERM and SIGHUP like Ctrl-C while legs run, so that a cancelled job leaves none."""

    def interrupt(number: int, frame: object) -> None:
        raise KeyboardInterrupt

    previous: dict[signal.Signals, Callable[..., object] | int | None] = {}
    try:
        for number in (signal.SIGTERM, signal.SIGHUP):
            previous[number] = signal.signal(number, interrupt)
    except ValueError:
        pass  # not the main thread: whoever runs it there handles signals
    try:
        yield
    finally:
        for name, handler in previous.items():
            signal.signal(name, handler)
