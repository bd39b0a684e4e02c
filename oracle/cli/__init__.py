"""The command line. Heavy imports happen inside the command that needs them: `--help` is instant.

Errors are one sentence and an exit code; `--debug` shows where they came from.
"""

from __future__ import annotations

import sys
import traceback
from pathlib import Path
from typing import Any

import click

from oracle.cli import costing, gating, reporting, running, storing
from oracle.errors import OracleError, one_line

INTERRUPTED = 130


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


for _command in (
    *(running.check, running.render, running.calibrate, running.run),
    *(running.show, running.compare, running.validate_trace, running.vectors, running.stacks),
    *(gating.gate, gating.acknowledge, gating.floor_key),
    *(costing.impact, reporting.report),
    *(storing.runs, storing.rm, storing.prune, storing.verify, storing.reindex),
):
    main.add_command(_command)
