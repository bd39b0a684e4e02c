"""The command that writes a verdict in another form."""

from __future__ import annotations

from pathlib import Path

import click

from oracle.cli import option

FORMATS = ("text", "json", "html", "markdown", "junit", "sarif")


@click.command()
@click.argument("run")
@click.option(
    "--format",
    "form",
    type=click.Choice(FORMATS),
    default="text",
    show_default=True,
    help="For people, programs, pull requests (markdown, sarif) and CI systems (junit).",
)
@click.option("-o", "--output", type=click.Path(path_type=Path), help="Write to this file.")
@option.out
@option.reveal
def report(run: str, form: str, output: Path | None, out: Path, reveal_text: bool) -> None:
    """Write the verdict of RUN in another form: a run directory, its id, or `latest`.

    Exits with 0 whatever the verdict is: `oracle gate` is what fails a job.

    \b
    oracle report latest --format markdown
    oracle report 83fe --format junit -o oracle.xml
    """
    from oracle.report.write import write_report

    write_report(run, form, output, out, reveal=reveal_text)
