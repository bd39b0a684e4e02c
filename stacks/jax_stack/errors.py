"""What can go wrong in a leg, and the exit code of each (S-26).

    StackError
    ├── BadInput      2    the config, the data, a file or the device does not satisfy a clause
    ├── Failed        1    what the leg waited for never came
    └── Interrupted   130  SIGINT or SIGTERM arrived

Anything else that is raised is a bug of this stack or of a library: kind `failed`, exit code 1.
A message is one sentence: the invariant, both values, where they came from, what to do. It never
holds text or ids of an example.
"""

from typing import Literal

Kind = Literal["bad_input", "failed", "interrupted"]


class StackError(Exception):
    """A leg ended without `done.json`; `str(error)` is the sentence that is shown."""

    kind: Kind = "failed"
    exit_code = 1


class BadInput(StackError):
    """What was handed to the leg breaks a clause of the contract."""

    kind: Kind = "bad_input"
    exit_code = 2


class Failed(StackError):
    """The leg could not go on, through no fault of its inputs."""


class Interrupted(StackError):
    """The leg was told to stop, and did so after the running step."""

    kind: Kind = "interrupted"
    exit_code = 130
