"""The one exception of the reference: an input that the contract refuses (S-26, exit code 2)."""


class RefusedError(ValueError):
    """The input breaks a clause; the sentence says which rule and where, never the content."""


def require(condition: bool, sentence: str) -> None:
    """Raise RefusedError with `sentence` unless `condition` holds."""
    if not condition:
        raise RefusedError(sentence)
