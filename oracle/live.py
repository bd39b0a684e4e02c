"""The progress of a double run for a person: redrawn on a terminal, plain lines anywhere else."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator

from rich.console import Console
from rich.live import Live
from rich.table import Table

from oracle.progress import LegState, OnProgress, largest_gap

REDRAW_SECONDS = 0.25
LINE_SECONDS = 10.0
LINES_A_RUN = 10  # of progress in a log, besides the changes of phase
States = tuple[LegState, ...]


@contextlib.contextmanager
def progress_view(console: Console, *, num_steps: int | None) -> Iterator[OnProgress]:
    """Give the function that `run_legs` tells its states to. `num_steps` is None in a render."""
    if not console.is_terminal:
        yield _PlainView(console, num_steps)
        return
    with Live(console=console, auto_refresh=False, transient=True) as live:
        yield _LiveView(live, num_steps)


class _LiveView:
    def __init__(self, live: Live, num_steps: int | None) -> None:
        self.live = live
        self.num_steps = num_steps
        self.started = time.monotonic()
        self.drawn = 0.0

    def __call__(self, states: States) -> None:
        now = time.monotonic()
        if now - self.drawn < REDRAW_SECONDS:
            return
        self.drawn = now
        self.live.update(self._table(states, now - self.started), refresh=True)

    def _table(self, states: States, seconds: float) -> Table:
        gap = gap_words(states)
        caption = f"{duration(seconds)} elapsed" + (f" · {gap}" if gap else "")
        table = Table(box=None, pad_edge=False, caption=caption, caption_justify="left")
        for title in ("leg", "phase", "step", "loss", "left"):
            table.add_column(title, min_width=len(title) + 6, header_style="dim")
        for state in states:
            table.add_row(
                state.name,
                state.phase,
                step_words(state, self.num_steps),
                "" if state.loss is None else f"{state.loss:.6f}",
                left_words(state, self.num_steps),
            )
        return table


class _PlainView:
    """A line when a leg enters a phase, and about ten of progress."""

    def __init__(self, console: Console, num_steps: int | None) -> None:
        self.console = console
        self.num_steps = num_steps
        self.phases: dict[str, str] = {}
        self.next_step = 0
        self.printed = time.monotonic()

    def __call__(self, states: States) -> None:
        for state in states:
            if self.phases.get(state.name) != state.phase:
                self.phases[state.name] = state.phase
                self._print(f"{state.name}: {state.phase}")
        steps = [state.step for state in states]
        slowest = min((step for step in steps if step is not None), default=None)
        if self.num_steps is None or slowest is None or None in steps:
            return
        now = time.monotonic()
        if slowest >= self.next_step or now - self.printed > LINE_SECONDS:
            self.printed = now
            part = max(1, self.num_steps // LINES_A_RUN)
            self.next_step = (slowest // part + 1) * part
            legs = [f"{s.name} {step_words(s, self.num_steps)} loss {s.loss:.6f}" for s in states]
            slower = max(states, key=lambda state: _seconds_left(state, self.num_steps) or 0.0)
            left = left_words(slower, self.num_steps)
            self._print(" · ".join([*legs, gap_words(states), *([f"{left} left"] if left else [])]))

    def _print(self, line: str) -> None:
        self.console.print(line, markup=False, highlight=False, soft_wrap=True)


def step_words(state: LegState, num_steps: int | None) -> str:
    """Return "12/120": steps made of steps to make."""
    if state.step is None or num_steps is None:
        return ""
    return f"{state.step + 1}/{num_steps}"


def left_words(state: LegState, num_steps: int | None) -> str:
    """Return the time that a leg still needs at its rate so far."""
    seconds = _seconds_left(state, num_steps)
    return "" if seconds is None else duration(seconds)


def _seconds_left(state: LegState, num_steps: int | None) -> float | None:
    if num_steps is None or state.step is None or not state.steps_per_second:
        return None
    return (num_steps - state.step - 1) / state.steps_per_second


def gap_words(states: States) -> str:
    """Return the largest relative difference of the losses of the two legs so far."""
    if len(states) != 2 or (gap := largest_gap(states[0].losses, states[1].losses)) is None:
        return ""
    return f"loss differs by {gap:.1e} at most"


def duration(seconds: float) -> str:
    """Return "42 s", "3 min 20 s" or "2 h 5 min"."""
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    return f"{whole // 3600} h {whole % 3600 // 60} min"
