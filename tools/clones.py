"""Clone check between the stacks: the share of 15-token shingles that two packages have in common.

Comments, docstrings, line ends and indentation do not count; names do. Independent implementations
of one specification measure under 1 %, a copy with its names changed here and there tens of
percents; the limit is 5 %.

    python tools/clones.py stacks/torch_stack stacks/jax_stack
"""

from __future__ import annotations

import sys
import tokenize
from pathlib import Path

SHINGLE_TOKENS = 15
LIMIT = 0.05
_SILENT = {
    tokenize.COMMENT,
    tokenize.NL,
    tokenize.NEWLINE,
    tokenize.INDENT,
    tokenize.DEDENT,
    tokenize.ENCODING,
    tokenize.ENDMARKER,
}


def code_tokens(path: Path) -> list[str]:
    """Return the tokens of a Python file without comments, layout and statement-level strings
    (docstrings).
    """
    tokens: list[str] = []
    at_statement_start = True
    with path.open("rb") as file:
        for token in tokenize.tokenize(file.readline):
            if token.type in _SILENT:
                at_statement_start |= token.type in {
                    tokenize.NEWLINE,
                    tokenize.INDENT,
                    tokenize.DEDENT,
                    tokenize.ENCODING,
                }
                continue
            if not (token.type == tokenize.STRING and at_statement_start):
                tokens.append(token.string)
            at_statement_start = False
    return tokens


def shingles(package: Path) -> set[tuple[str, ...]]:
    """Return the distinct runs of 15 tokens of all Python files below `package`."""
    found: set[tuple[str, ...]] = set()
    for path in sorted(package.rglob("*.py")):
        tokens = code_tokens(path)
        found.update(
            tuple(tokens[start : start + SHINGLE_TOKENS])
            for start in range(len(tokens) - SHINGLE_TOKENS + 1)
        )
    return found


def shared_fraction(a: Path, b: Path) -> float:
    """Return the shared shingles as a fraction of the smaller package's; raises ValueError when one
    has none.
    """
    ours, theirs = shingles(a), shingles(b)
    if not ours or not theirs:
        raise ValueError(f"nothing to compare: {a} has {len(ours)} shingles, {b} has {len(theirs)}")
    return len(ours & theirs) / min(len(ours), len(theirs))


def main() -> int:
    """Print the measured share; exit 1 above the limit."""
    a, b = (Path(argument) for argument in sys.argv[1:3])
    fraction = shared_fraction(a, b)
    print(f"{a} and {b} share {fraction:.2%} of their 15-token shingles (limit {LIMIT:.0%})")
    return int(fraction > LIMIT)


if __name__ == "__main__":
    sys.exit(main())
