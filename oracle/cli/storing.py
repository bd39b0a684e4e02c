"""Commands of the store: list runs, remove them, tidy up, verify what is kept, mend the index."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from oracle.cli import option

VERDICTS = ("AGREE", "DIVERGED", "INCONCLUSIVE", "ERROR")
as_json = click.option("--json", "as_json", is_flag=True, help="Print JSON.")


@click.command()
@click.option("--verdict", type=click.Choice(VERDICTS, case_sensitive=False))
@click.option("--config", metavar="NAME", help="The name in the config.")
@click.option("--commit", help="A commit, or how it begins.")
@click.option("--branch", help="The branch that was checked out.")
@click.option("--author", help="The author of the commit.")
@click.option("--stack", help="A stack that was one of the legs.")
@click.option("--purpose", type=click.Choice(["cross", "self"]))
@click.option("--mode", type=click.Choice(["train", "render"]))
@click.option("--since", metavar="DATE", help="A date or time, UTC unless it says otherwise.")
@click.option(
    "--limit",
    type=click.IntRange(min=0),
    default=30,
    show_default=True,
    help="How many at most; 0 lists all.",
)
@option.out
@as_json
def runs(out: Path, **options: Any) -> None:
    """List the runs that are kept, newest first: config, stacks, steps, verdict, what parts first.

    \b
    oracle runs --verdict DIVERGED --since 2026-01-31
    oracle runs --config clinical-demo --stack jax --limit 0 --json
    """
    from oracle.kept import list_runs

    list_runs(out, **options)


@click.command()
@click.argument("runs", nargs=-1, required=True, metavar="RUN...")
@click.option("--yes", is_flag=True, help="Do not ask.")
@click.option("--force", is_flag=True, help="Remove a run that a gate or a reference needs.")
@option.out
def rm(runs: tuple[str, ...], out: Path, yes: bool, force: bool) -> None:
    """Remove RUNs: directory, traces, verdict. What another run needs stays.

    \b
    oracle rm 83fe
    oracle rm clinical-demo-20260102T030405Z-83fe --yes
    """
    from oracle.kept import remove

    remove(runs, out, yes=yes, force=force)


@click.command()
@click.option(
    "--keep-days", type=click.FloatRange(min=0), help="Keep the runs of the last so many days."
)
@click.option(
    "--keep-last",
    type=click.IntRange(min=0),
    help="Keep the last so many runs of each config, mode and purpose.",
)
@click.option("--dry-run", is_flag=True, help="Only say what would go.")
@option.out
def prune(out: Path, **options: Any) -> None:
    """Remove old runs and what interrupted commands left behind; say how many bytes that frees.

    A run goes when none of the limits keeps it. Without a limit only leftovers go. A run that a
    gate or a reference needs stays.

    \b
    oracle prune --keep-last 10 --keep-days 30 --dry-run
    oracle prune
    """
    from oracle.kept import prune as command

    command(out, **options)


@click.command()
@click.argument("runs", nargs=-1, metavar="[RUN]...")
@option.out
def verify(runs: tuple[str, ...], out: Path) -> None:
    """Hash again what is kept of RUNs, or of all, and name each file that was altered.

    Exits with 2 when there is one.

    \b
    oracle verify
    oracle verify 83fe
    """
    from oracle.kept import verify as command

    command(runs, out)


@click.command()
@option.out
def reindex(out: Path) -> None:
    """Build the index of runs again, from what is kept and from run directories.

    Also records runs that were judged and not recorded, as after a full disk.

    \b
    oracle reindex
    """
    from oracle.kept import reindex as command

    command(out)
