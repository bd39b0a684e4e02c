"""One example as one leg saw it, and how detectors of known patterns are tried on a pair.

A detector gets both views, `x` and `y`, and says what `y` has and `x` has not. It is tried both
ways, so a hint names the leg that differs, and swapping the legs mirrors it. Who of the two is
wrong, the clause says. A hint holds no text and no ordinary ids. T tokens.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from oracle.tokendiff import Ids


@dataclass(frozen=True, kw_only=True)
class Side:
    """One example in one leg. `control` maps the ids of control tokens to their contents."""

    name: str
    text: str
    ids: Ids
    mask: Ids
    num_before: int
    control: Mapping[int, str]

    def is_control(self) -> Any:
        """Return which tokens are control tokens, (T,) bool."""
        return np.isin(self.ids, list(self.control))

    def token(self, position: int) -> str:
        """Return the content of a control token, "an ordinary token", or "the end"."""
        if position >= len(self.ids):
            return "the end"
        return self.control.get(int(self.ids[position]), "an ordinary token")


Detector = Callable[[Side, Side], str | None]


def side(row: Mapping[str, Any], *, name: str, control: Mapping[int, str]) -> Side:
    """Return one leg's view of an example (a row of `example_rows`)."""
    return Side(
        name=name,
        text=row["text"],
        ids=row["ids"],
        mask=row["mask"],
        num_before=row["num_tokens_before_truncation"],
        control=control,
    )


def first_hint(detectors: tuple[Detector, ...], a: Side, b: Side) -> str | None:
    """Return what the first detector that knows the pattern says, tried both ways."""
    for detector in detectors:
        for x, y in ((a, b), (b, a)):
            if (hint := detector(x, y)) is not None:
                return hint
    return None
