"""Commands that gate a merge: hold runs against a policy, acknowledge rules, find a floor's key."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from oracle.cli import option

POLICY = option.STACKS_FILE.parent / "gates" / "merge.toml"


@click.command(
    epilog="Exit codes: 0 PASS, 1 FAIL, 2 ERROR (a required run is missing or cannot count, bad "
    "input), 3 INCONCLUSIVE, 130 stopped."
)
@click.argument("runs", nargs=-1, metavar="[RUN]...")
@click.option(
    "--policy",
    type=click.Path(path_type=Path),
    default=POLICY,
    help="What must hold  [default: configs/gates/merge.toml]",
)
@click.option("--commit", help="The commit that is gated  [default: HEAD of this directory]")
@click.option("--allow-dirty", is_flag=True, help="Let runs with uncommitted changes count.")
@click.option(
    "--no-rejudge",
    is_flag=True,
    help="Trust verdict.json if the traces still are those that it names; do not judge them again.",
)
@click.option("--explain", is_flag=True, help="Say what each threshold would have let through.")
@click.option(
    "--base",
    metavar="COMMIT",
    help="The commit before the change: rules that the change touches show, acknowledged or not.",
)
@click.option("--record", type=click.Path(path_type=Path), help="Write the answer as JSON here.")
@option.out
@click.option("--json", "as_json", is_flag=True, help="Print the answer as JSON, not the line.")
def gate(
    runs: tuple[str, ...],
    policy: Path,
    commit: str | None,
    allow_dirty: bool,
    no_rejudge: bool,
    explain: bool,
    base: str | None,
    record: Path | None,
    out: Path,
    as_json: bool,
) -> None:
    """Hold RUNs against a policy; without RUN, the newest of this commit. One line, an exit code.

    RUN is a run directory, its id, the end of its id, or `latest`.

    \b
    oracle gate
    oracle gate latest --policy configs/gates/merge.toml
    oracle gate --explain
    """
    from oracle.gate.command import run_gate

    code = run_gate(
        runs,
        policy_path=policy,
        commit=commit,
        allow_dirty=allow_dirty,
        rejudge=not no_rejudge,
        explain=explain,
        base=base,
        record=record,
        out=out,
        as_json=as_json,
    )
    sys.exit(code)


@click.command()
@option.file_argument("file")
@click.option("--by", required=True, help="Who has read the rules.")
@click.option("--reason", required=True, help="Why they are as they are.")
def acknowledge(file: Path, by: str, reason: str) -> None:
    """Write that you have read FILE, a policy or a tolerance file, as it is now.

    Until somebody did, `oracle gate` shows in its line what changed.

    \b
    oracle acknowledge configs/tolerances/float64.toml --by "A. Turing" --reason "cap for 10k steps"
    """
    from oracle.gate.command import acknowledge as command

    for sentence in command(file, POLICY.parent, by=by, reason=reason):
        click.echo(sentence)


@click.command("floor-key")
@click.argument("run")
@option.out
@click.option("--holds", is_flag=True, help="Exit with 3 unless a stored floor has this key.")
def floor_key(run: str, out: Path, holds: bool) -> None:
    """Print the key under which CI may keep the noise floor of RUN: a render run is enough.

    The key covers all that a floor depends on: config, input files, and each leg's code, library
    versions and machine. Two runs with one key can share a floor.

    \b
    oracle render configs/runs/clinical-demo.toml && oracle floor-key latest
    """
    from oracle.gate.floor_key import floor_key as key_of
    from oracle.gate.floor_key import stored

    key = key_of(run, out)
    click.echo(key)
    if holds and not stored(run, out):
        sys.exit(3)
