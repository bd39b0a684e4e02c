"""The oracle's exception tree. Each error is one sentence: what, where, both values, what to do.

OracleError            exit 2, verdict ERROR
├── ConfigError        a run config, tolerance, stack or policy file that cannot be used
├── DataError          data, template, tokenizer or checkpoint that cannot be used
├── TraceError         a trace that is unfinished, malformed, or of another run
└── LegError           a leg that crashed, hung or was killed
"""

import re

_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]")


def one_line(sentence: str) -> str:
    """Return a sentence with control characters escaped: a path may hold a line end."""
    return _CONTROL.sub(lambda found: repr(found[0])[1:-1], sentence)


class OracleError(Exception):
    """Could not be judged. The message is shown as it stands and must hold no conversation text."""

    exit_code = 2

    def __init__(self, sentence: str) -> None:
        super().__init__(one_line(sentence))


class ConfigError(OracleError):
    """A TOML file of ours is malformed, incomplete or impossible."""


class DataError(OracleError):
    """Data, template, tokenizer or checkpoint files are missing or malformed."""


class TraceError(OracleError):
    """A trace directory is unfinished, malformed, or belongs to another run."""


class LegError(OracleError):
    """A leg ended without a trace: it crashed, hung, or was killed."""
