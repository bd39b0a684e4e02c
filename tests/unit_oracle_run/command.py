"""The command as a person or a CI job calls it: in this process, or (ORACLE) in one of its own."""

from __future__ import annotations

import sys
from dataclasses import dataclass

from click.testing import CliRunner

from oracle.cli import main

ORACLE = [sys.executable, "-c", "from oracle.cli import main; main(prog_name='oracle')"]


@dataclass(frozen=True, kw_only=True)
class Ended:
    returncode: int
    stdout: str
    stderr: str


def oracle(*argv: str) -> Ended:
    result = CliRunner().invoke(main, list(argv), prog_name="oracle")
    return Ended(returncode=result.exit_code, stdout=result.stdout, stderr=result.stderr)
