"""Progress read from outside: steps as they come, signs of life, and what a person sees."""

from __future__ import annotations

import io
import math
import os
from pathlib import Path

import pytest
from rich.console import Console

from oracle.live import duration, gap_words, left_words, progress_view, step_words
from oracle.progress import LegState, LegTail, largest_gap, relative


def state(name: str, losses: dict[int, float], rate: float | None = None) -> LegState:
    step = max(losses, default=None)
    return LegState(
        name=name,
        phase="starting" if step is None else "training",
        step=step,
        loss=None if step is None else losses[step],
        losses=losses,
        steps_per_second=rate,
    )


def append(out: Path, text: str) -> None:
    out.mkdir(exist_ok=True)
    with (out / "steps.jsonl").open("a") as stream:
        stream.write(text)


def test_a_line_counts_when_it_is_whole(tmp_path: Path) -> None:
    tail = LegTail("a", tmp_path / "t")
    tail.poll()
    assert tail.state().phase == "starting"
    append(tmp_path / "t", '{"step": 0, "loss": 2.5}\n{"step": 1, "lo')
    tail.poll()
    assert (tail.step, tail.losses) == (0, {0: 2.5})
    append(tmp_path / "t", 'ss": "NaN"}\n')
    tail.poll()
    assert tail.step == 1
    assert math.isnan(tail.losses[1])


def test_lines_that_cannot_be_read_are_left_to_the_reader_of_the_trace(tmp_path: Path) -> None:
    tail = LegTail("a", tmp_path / "t")
    append(tmp_path / "t", '\xff{"step"\n[]\n{"step": 3}\n{"step": 4, "loss": "low"}\n')
    tail.poll()
    assert tail.step is None


def test_a_cut_file_is_read_again_from_its_start(tmp_path: Path) -> None:
    tail = LegTail("a", tmp_path / "t")
    append(tmp_path / "t", "".join(f'{{"step": {t}, "loss": 1.0}}\n' for t in range(5)))
    tail.poll()
    (tmp_path / "t" / "steps.jsonl").write_text('{"step": 0, "loss": 7.0}\n')
    tail.poll()
    assert (tail.step, tail.losses[0]) == (0, 7.0)


def test_only_files_of_the_trace_are_a_sign_of_life(tmp_path: Path) -> None:
    out = tmp_path / "t"
    tail = LegTail("a", out)
    tail.poll()
    assert not tail.poll()
    (out / "tokens").mkdir(parents=True)
    assert tail.poll()
    assert tail.state().phase == "rendering"
    assert not tail.poll()
    (out / "tokens" / "00000.parquet").write_bytes(b"x")
    assert tail.poll()
    os.utime(out / "tokens" / "00000.parquet", ns=(1, 1))
    assert tail.poll()
    assert not tail.poll()


def test_what_was_there_before_gives_no_rate(tmp_path: Path) -> None:
    tail = LegTail("a", tmp_path / "t")
    append(tmp_path / "t", "".join(f'{{"step": {t}, "loss": 1.0}}\n' for t in range(50)))
    tail.poll()
    assert tail.state().steps_per_second is None
    append(tmp_path / "t", '{"step": 50, "loss": 1.0}\n')
    tail.poll()
    rate = tail.state().steps_per_second
    assert rate is not None
    assert rate > 0


@pytest.mark.parametrize(
    ("a", "b", "expected"),
    [
        (1.0, 1.0, 0.0),
        (0.0, 0.0, 0.0),
        (2.0, 1.0, 0.5),
        (-1.0, 1.0, 2.0),
        (math.nan, math.nan, 0.0),
        (math.nan, 1.0, math.inf),
        (math.inf, -math.inf, math.inf),
    ],
)
def test_relative_difference(a: float, b: float, expected: float) -> None:
    assert relative(a, b) == relative(b, a) == expected


def test_the_largest_gap_is_over_steps_that_both_have_made() -> None:
    assert largest_gap({0: 1.0, 1: 2.0, 2: 9.0}, {0: 1.0, 1: 1.0}) == 0.5
    assert largest_gap({0: 1.0}, {}) is None


@pytest.mark.parametrize(
    ("seconds", "expected"),
    [(0.4, "0 s"), (59.6, "1 min 0 s"), (200, "3 min 20 s"), (7500, "2 h 5 min")],
)
def test_durations(seconds: float, expected: str) -> None:
    assert duration(seconds) == expected


def test_words_of_a_leg() -> None:
    leg = state("a", {11: 1.5}, rate=2.0)
    assert step_words(leg, 120) == "12/120"
    assert left_words(leg, 120) == "54 s"
    assert step_words(leg, None) == left_words(leg, None) == ""
    assert gap_words((leg, state("b", {11: 3.0}))) == "loss differs by 5.0e-01 at most"
    assert gap_words((leg, state("b", {}))) == ""


def test_a_log_gets_about_ten_lines_of_a_long_run() -> None:
    out = io.StringIO()
    with progress_view(Console(file=out), num_steps=1000) as view:
        view((state("a", {}), state("b", {})))
        for t in range(1000):
            view((state("a", {t: 2.0}, 10.0), state("b", {t: 1.0}, 10.0)))
    lines = out.getvalue().splitlines()
    assert lines[:4] == ["a: starting", "b: starting", "a: training", "b: training"]
    assert len(lines) == 4 + 10
    assert lines[5] == (
        "a 101/1000 loss 2.000000 · b 101/1000 loss 1.000000 · loss differs by 5.0e-01 at most · "
        "1 min 30 s left"
    )


def test_the_time_left_is_that_of_the_slower_leg() -> None:
    out = io.StringIO()
    with progress_view(Console(file=out, width=200), num_steps=10) as view:
        view((state("a", {9: 2.0}, 1.0), state("b", {1: 1.0}, 1.0)))
    assert out.getvalue().splitlines()[-1].endswith("· 8 s left")


def test_a_terminal_gets_a_table_that_leaves_nothing_behind() -> None:
    out = io.StringIO()
    console = Console(file=out, force_terminal=True, width=100)
    with progress_view(console, num_steps=10) as view:
        view((state("torch", {3: 2.0}, 2.0), state("jax", {3: 1.0}, 2.0)))
    drawn = out.getvalue()
    for word in ("torch", "training", "4/10", "2.000000", "loss differs by 5.0e-01 at most", "3 s"):
        assert word in drawn
    assert drawn.endswith("\x1b[2K") or "\x1b[2K" in drawn.rpartition("torch")[2]
