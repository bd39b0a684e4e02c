"""The command that says what a divergence costs."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from oracle.cli import option


@click.command()
@click.option(
    "--fault", "faults", multiple=True, required=True, help="A planted fault, or several."
)
@click.option(
    "--config",
    type=click.Path(path_type=Path),
    default=option.STACKS_FILE.parent / "runs" / "clinical-demo.toml",
    help="The run that the fault is planted in  [default: the demo]",
)
@click.option("--seeds", default="17,18,19", show_default=True, help="Seeds of the order of data.")
@click.option("--steps", type=click.IntRange(min=1), default=100, show_default=True)
@option.out
@option.as_json
def impact(
    faults: tuple[str, ...], config: Path, seeds: str, steps: int, out: Path, as_json: bool
) -> None:
    """Measure what planted faults cost: held-out and final loss with and without, over seeds.

    Legs that are there already are taken, so an interrupted measurement goes on.

    \b
    oracle impact --fault A01 --fault B07
    oracle impact --fault A01 --seeds 1,2,3,4,5 --steps 200 --json
    """
    from oracle.costs import impact as command

    sys.exit(command(faults, config, seeds, steps, out, as_json=as_json))
