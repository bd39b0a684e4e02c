"""The oracle's exception tree. Each error is one sentence: what, where, both values, what to do.

OracleError            exit 2, verdict ERROR
├── ConfigError        a run config, tolerance, stack or policy file that cannot be used
├── DataError          data, template, tokenizer or checkpoint that cannot be used
├── TraceError         a trace that is unfinished, malformed, or of another run
└── LegError           a leg that crashed, hung or was killed
"""


class OracleError(Exception):
    """Could not be judged. The message is shown as it stands and must hold no conversation text."""

    exit_code = 2


class ConfigError(OracleError):
    """A TOML file of ours is malformed, incomplete or impossible."""


class DataError(OracleError):
    """Data, template, tokenizer or checkpoint files are missing or malformed."""


class TraceError(OracleError):
    """A trace directory is unfinished, malformed, or belongs to another run."""


class LegError(OracleError):
    """A leg ended without a trace: it crashed, hung, or was killed."""
