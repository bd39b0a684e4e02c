"""Options that several commands share: one name, one default, one help text."""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

STACKS_FILE = Path(__file__).resolve().parents[2] / "configs" / "stacks.toml"


def file_argument(name: str, **options: Any) -> Callable[..., Any]:
    """Return an argument that is a path."""
    return click.argument(name, type=click.Path(path_type=Path), **options)


def together(*options: Callable[..., Any]) -> Callable[..., Any]:
    """Return one decorator that adds all of `options`, in this order."""
    return lambda command: functools.reduce(lambda c, option: option(c), reversed(options), command)


stacks = click.option("--stacks", default="torch,jax", show_default=True, help="The two legs.")
stacks_file = click.option(
    "--stacks-file",
    type=click.Path(path_type=Path),
    default=STACKS_FILE,
    help="Where stacks are defined  [default: configs/stacks.toml]",
)
out = click.option(
    "--out",
    type=click.Path(path_type=Path),
    default="runs",
    show_default=True,
    help="Folder of run directories.",
)
reveal = click.option(
    "--reveal-text", is_flag=True, help="Show text and token ids in the report: clinical data."
)
tolerances = click.option(
    "--tolerances",
    type=click.Path(path_type=Path),
    help="Rules of comparison  [default: that of the run's precision]",
)
floor = click.option(
    "--floor",
    default="auto",
    show_default=True,
    metavar="FILE|auto|none",
    help="Noise floor; auto takes the one that `oracle calibrate` stored, if it still holds.",
)
as_json = click.option("--json", "as_json", is_flag=True, help="Print the verdict as JSON.")
stall_seconds = click.option(
    "--stall-seconds",
    type=click.FloatRange(min=0, min_open=True),
    default=300.0,
    show_default=True,
    help="A leg that writes nothing for so long is stopped.",
)
running = together(
    stacks,
    stacks_file,
    out,
    click.option("--resume", metavar="RUN", help="Take up an interrupted run again."),
    tolerances,
    stall_seconds,
    reveal,
    click.option("--no-report", is_flag=True, help="Write no report.html."),
    as_json,
)
