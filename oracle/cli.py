"""The command line. Heavy imports happen inside the command that needs them: `--help` is instant.

Errors are one sentence and an exit code; `--debug` shows where they came from.
"""

from __future__ import annotations

import functools
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from oracle.errors import OracleError, one_line

INTERRUPTED = 130
STACKS_FILE = Path(__file__).resolve().parent.parent / "configs" / "stacks.toml"


class _Group(click.Group):
    """Turns every way to end into a sentence and a documented exit code."""

    def invoke(self, ctx: click.Context) -> Any:
        debug = bool(ctx.params.get("debug"))
        try:
            return super().invoke(ctx)
        except OracleError as error:
            _end(str(error), error.exit_code, debug)
        except KeyboardInterrupt:
            _end("stopped.", INTERRUPTED, debug)
        except OSError as error:
            where = f" {error.filename}" if error.filename else ""
            _end(f"{error.strerror or type(error).__name__}{where}.", 2, debug)
        except (click.ClickException, click.exceptions.Exit, click.Abort):
            raise
        except Exception as error:  # noqa: BLE001
            # Python would exit with 1, which means DIVERGED. The message may hold anything that was
            # in the data, so only kind and place are told.
            frame = traceback.extract_tb(error.__traceback__)[-1]
            place = f"{Path(frame.filename).name}:{frame.lineno}"
            _end(f"a fault of the oracle ({type(error).__name__} at {place}).", 2, debug)


def _end(sentence: str, code: int, debug: bool) -> None:
    if debug:
        traceback.print_exc()
    click.echo(f"oracle: {one_line(sentence)}", err=True)
    sys.exit(code)


@click.group(
    cls=_Group,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog="Exit codes: 0 AGREE, 1 DIVERGED, 2 ERROR or bad input, 3 INCONCLUSIVE, 130 stopped.",
)
@click.option("--debug", is_flag=True, help="Show the traceback of an error.")
@click.version_option(package_name="cross-stack-oracle")
def main(debug: bool) -> None:
    """Judge whether two training stacks compute the same fine-tune.

    \b
    oracle check configs/runs/clinical-demo.toml   what would run
    oracle run configs/runs/clinical-demo.toml     train in both stacks, compare, judge
    oracle show 83fe --step 12 --phase mask        look at one place of a run
    """


def _file_argument(name: str, **options: Any) -> Callable[..., Any]:
    return click.argument(name, type=click.Path(path_type=Path), **options)


def _options(*options: Callable[..., Any]) -> Callable[..., Any]:
    return lambda command: functools.reduce(lambda c, option: option(c), reversed(options), command)


_stacks = click.option("--stacks", default="torch,jax", show_default=True, help="The two legs.")
_stacks_file = click.option(
    "--stacks-file",
    type=click.Path(path_type=Path),
    default=STACKS_FILE,
    help="Where stacks are defined  [default: configs/stacks.toml]",
)
_out = click.option(
    "--out",
    type=click.Path(path_type=Path),
    default="runs",
    show_default=True,
    help="Folder of run directories.",
)
_reveal = click.option(
    "--reveal-text", is_flag=True, help="Show text and token ids in the report: clinical data."
)
_tolerances = click.option(
    "--tolerances",
    type=click.Path(path_type=Path),
    help="Rules of comparison  [default: that of the run's precision]",
)
_floor = click.option(
    "--floor",
    default="auto",
    show_default=True,
    metavar="FILE|auto|none",
    help="Noise floor; auto takes the one that `oracle calibrate` stored, if it still holds.",
)
_json = click.option("--json", "as_json", is_flag=True, help="Print the verdict as JSON.")
_running = _options(
    _stacks,
    _stacks_file,
    _out,
    click.option("--resume", metavar="RUN", help="Take up an interrupted run again."),
    _tolerances,
    click.option(
        "--stall-seconds",
        type=click.FloatRange(min=0, min_open=True),
        default=300.0,
        show_default=True,
        help="A leg that writes nothing for so long is stopped.",
    ),
    _reveal,
    click.option("--no-report", is_flag=True, help="Write no report.html."),
    _json,
)


@main.command()
@_file_argument("config", required=False)
@_running
@_floor
def run(config: Path | None, **options: Any) -> None:
    """Train CONFIG in both stacks at once, compare what they did, and judge.

    \b
    oracle run configs/runs/clinical-demo.toml
    oracle run configs/runs/clinical-demo.toml --json > verdict.json
    oracle run --resume runs/clinical-demo-20260102T030405Z-83fe
    """
    _double_run(config, "train", **options)


@main.command()
@_file_argument("config", required=False)
@_running
def render(config: Path | None, **options: Any) -> None:
    """Render and mask every example of CONFIG in both stacks, without training, and compare.

    The cheapest catch of the dearest fault.

    \b
    oracle render configs/runs/clinical-demo.toml
    """
    _double_run(config, "render", floor="none", **options)


def _double_run(config: Path | None, mode: Any, **options: Any) -> None:
    from oracle.commands import double_run

    sys.exit(double_run(config, mode, **options))


@main.command()
@_file_argument("config")
@_stacks
@_stacks_file
def check(config: Path, stacks: str, stacks_file: Path) -> None:
    """Check CONFIG and every file that it names, and say what would run. Starts no leg.

    \b
    oracle check configs/runs/clinical-demo.toml
    """
    from oracle.commands import check as command

    command(config, stacks, stacks_file)


@main.command()
@_file_argument("config")
@_stacks
@_stacks_file
@_out
def calibrate(config: Path, stacks: str, stacks_file: Path, out: Path) -> None:
    """Measure the noise floor of CONFIG: what each stack does to itself when rounding changes.

    \b
    oracle calibrate configs/runs/clinical-demo.toml
    """
    from oracle.commands import calibrate as command

    command(config, stacks, stacks_file, out)


@main.command()
@_file_argument("a")
@_file_argument("b")
@click.option("--purpose", type=click.Choice(["cross", "self"]), default="cross", show_default=True)
@_tolerances
@_floor
@_out
@click.option("--html", type=click.Path(path_type=Path), help="Write the page of the verdict here.")
@_reveal
@_json
def compare(a: Path, b: Path, **options: Any) -> None:
    """Compare two trace directories A and B after the fact.

    \b
    oracle compare runs/demo-…-83fe/torch runs/demo-…-83fe/jax
    oracle compare yesterday/torch today/torch --purpose self
    """
    from oracle.commands import compare as command

    sys.exit(command(a, b, **options))


@main.command()
@click.argument("run")
@_out
@click.option("--step", type=click.IntRange(min=0), help="A step; default: that of the first.")
@click.option("--phase", help="A phase, for instance mask.")
@click.option("--example", help="The id of an example.")
@_reveal
def show(run: str, out: Path, **options: Any) -> None:
    """Show a place of RUN: a run directory, its id, the end of its id, or `latest`.

    \b
    oracle show 83fe
    oracle show 83fe --step 12 --phase mask
    """
    from oracle.commands import show as command

    command(run, out, **options)


@main.command("validate-trace")
@_file_argument("trace")
@click.option("--nonce", help="The nonce that the trace must carry.")
def validate_trace(trace: Path, nonce: str | None) -> None:
    """Check that the directory TRACE is a whole, valid trace (docs/trace-format.md).

    \b
    oracle validate-trace runs/demo-…-83fe/torch
    """
    from oracle.commands import validate_trace as command

    command(trace, nonce)


@main.command()
@click.argument("stack")
@_stacks_file
@click.option(
    "--vectors",
    "folder",
    type=click.Path(path_type=Path),
    default=STACKS_FILE.parent.parent / "data" / "vectors",
    help="Folder of vector files  [default: data/vectors]",
)
@click.option("--clause", multiple=True, help="A clause, for instance S-14; may be repeated.")
def vectors(stack: str, stacks_file: Path, folder: Path, clause: tuple[str, ...]) -> None:
    """Put the golden vectors of the contract to STACK and print what it gets right.

    \b
    oracle vectors torch
    oracle vectors mystack --stacks-file mystacks/stacks.toml --clause S-17
    """
    from oracle.commands import vectors as command

    sys.exit(command(stack, stacks_file, folder, clause))


@main.command()
@_stacks_file
def stacks(stacks_file: Path) -> None:
    """List the stacks that can be a leg.

    \b
    oracle stacks
    """
    from oracle.stacks import load_stacks

    for stack in load_stacks(stacks_file).values():
        click.echo(f"{stack.name:<10} {' '.join(stack.argv)}")
