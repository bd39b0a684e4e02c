"""Commands that check, run, render, calibrate, compare and look: the pipeline of the README."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import click

from oracle.cli import option


@click.command()
@option.file_argument("config", required=False)
@option.running
@option.floor
def run(config: Path | None, **options: Any) -> None:
    """Train CONFIG in both stacks at once, compare what they did, and judge.

    \b
    oracle run configs/runs/clinical-demo.toml
    oracle run configs/runs/clinical-demo.toml --json > verdict.json
    oracle run --resume runs/clinical-demo-20260102T030405Z-83fe
    """
    _double_run(config, "train", **options)


@click.command()
@option.file_argument("config", required=False)
@option.running
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


@click.command()
@option.file_argument("config")
@option.stacks
@option.stacks_file
def check(config: Path, stacks: str, stacks_file: Path) -> None:
    """Check CONFIG and every file that it names, and say what would run. Starts no leg.

    \b
    oracle check configs/runs/clinical-demo.toml
    """
    from oracle.commands import check as command

    command(config, stacks, stacks_file)


@click.command()
@option.file_argument("config")
@option.stacks
@option.stacks_file
@option.out
@click.option(
    "--variants",
    default="base,repeat,threads,attention,ulp",
    show_default=True,
    help="What to run; fewer than all give a smaller floor, which is stricter.",
)
@click.option(
    "--base",
    metavar="RUN",
    help="Take the legs of this finished run of CONFIG as the base; they are not run again.",
)
@option.stall_seconds
def calibrate(config: Path, **options: Any) -> None:
    """Measure the noise floor of CONFIG: what each stack does to itself when rounding changes.

    A calibration that was stopped goes on where it stood when the command is given again.

    \b
    oracle calibrate configs/runs/clinical-demo.toml
    oracle calibrate configs/runs/clinical-epoch.toml --variants base,ulp
    oracle calibrate configs/runs/clinical-epoch.toml --variants base,ulp --base latest
    """
    from oracle.commands import calibrate as command

    sys.exit(command(config, **options))


@click.command()
@option.file_argument("a")
@option.file_argument("b")
@click.option("--purpose", type=click.Choice(["cross", "self"]), default="cross", show_default=True)
@option.tolerances
@option.floor
@option.out
@click.option("--html", type=click.Path(path_type=Path), help="Write the page of the verdict here.")
@option.reveal
@option.as_json
def compare(a: Path, b: Path, **options: Any) -> None:
    """Compare two trace directories A and B after the fact.

    \b
    oracle compare runs/demo-…-83fe/torch runs/demo-…-83fe/jax
    oracle compare yesterday/torch today/torch --purpose self
    """
    from oracle.commands import compare as command

    sys.exit(command(a, b, **options))


@click.command()
@click.argument("run")
@option.out
@click.option("--step", type=click.IntRange(min=0), help="A step; default: that of the first.")
@click.option("--phase", help="A phase, for instance mask.")
@click.option("--example", help="The id of an example.")
@option.reveal
def show(run: str, out: Path, **options: Any) -> None:
    """Show a place of RUN: a run directory, its id, the end of its id, or `latest`.

    \b
    oracle show 83fe
    oracle show 83fe --step 12 --phase mask
    """
    from oracle.commands import show as command

    command(run, out, **options)


@click.command("validate-trace")
@option.file_argument("trace")
@click.option("--nonce", help="The nonce that the trace must carry.")
def validate_trace(trace: Path, nonce: str | None) -> None:
    """Check that the directory TRACE is a whole, valid trace (docs/trace-format.md).

    \b
    oracle validate-trace runs/demo-…-83fe/torch
    """
    from oracle.commands import validate_trace as command

    command(trace, nonce)


@click.command()
@click.argument("stack")
@option.stacks_file
@click.option(
    "--vectors",
    "folder",
    type=click.Path(path_type=Path),
    default=option.STACKS_FILE.parents[1] / "data" / "vectors",
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


@click.command()
@option.stacks_file
def stacks(stacks_file: Path) -> None:
    """List the stacks that can be a leg.

    \b
    oracle stacks
    """
    from oracle.stacks import load_stacks

    for stack in load_stacks(stacks_file).values():
        click.echo(f"{stack.name:<10} {' '.join(stack.argv)}")
