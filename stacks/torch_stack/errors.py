"""What can end a leg before it is done (S-26).

    Exception
    ├── BadInput      exit code 2: the config, data or files break a clause; one sentence says which
    ├── Failed        exit code 1: what the leg waits for did not come
    └── Interrupted   exit code 130: SIGINT or SIGTERM was received

Anything else is a fault of this program: exit code 1.
"""


class BadInput(Exception):
    """One sentence: what is wrong, where, both values, what to do; never the text of an example."""


class Failed(Exception):
    """One sentence: what did not come, where it was looked for, how long, what to do."""


class Interrupted(Exception):
    """One sentence: which signal stopped the leg, what was saved, how to go on."""
