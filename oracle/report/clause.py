"""Clauses of the specification by their number: the line of the heading and what it is called."""

from __future__ import annotations

import re
from functools import cache

from oracle.contract import CONTRACT_DIR

HEADING = re.compile(r"^## (S-\d+) (.+)$")


@cache
def headings() -> dict[str, tuple[int, str]]:
    """Return the line in SPEC.md, counted from 1, and the title of every clause."""
    lines = (CONTRACT_DIR / "SPEC.md").read_text("utf-8").splitlines()
    found = ((number, HEADING.match(line)) for number, line in enumerate(lines, start=1))
    return {match[1]: (number, match[2]) for number, match in found if match}


def titled(clause: str) -> str:
    """`S-06 Mask`; the number alone where no clause has it."""
    found = headings().get(clause)
    return clause if found is None else f"{clause} {found[1]}"
