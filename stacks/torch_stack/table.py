"""A table of a TOML document that is read key by key, each with what is allowed (S-01)."""

import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Literal, TypeVar

from stacks.torch_stack.errors import BadInput

_Word = TypeVar("_Word", bound=str)


class Table:
    """A TOML table that is read key by key; `close` refuses what was not read."""

    def __init__(self, values: Mapping[str, object], file: Path, name: str) -> None:
        self._values = dict(values)
        self._where = f"{file}: [{name}]" if name else f"{file}"

    def _fail(self, key: str, value: object, allowed: str) -> BadInput:
        return BadInput(
            f"S-01: {self._where} {key} = {value!r}, but it must be {allowed}; correct the config"
        )

    def _take(self, key: str) -> object:
        if key not in self._values:
            raise BadInput(
                f"S-01: {self._where} lacks the key {key!r}; every key is required, add it"
            )
        return self._values.pop(key)

    def __contains__(self, key: str) -> bool:
        return key in self._values

    def close(self) -> None:
        """Refuse what was not read."""
        if self._values:
            raise BadInput(
                f"S-01: {self._where} has the unknown key {min(self._values)!r}; remove it"
            )

    def table(self, name: str, file: Path) -> "Table":
        """A table inside this one."""
        value = self._take(name)
        if not isinstance(value, dict):
            raise self._fail(name, value, "a table")
        return Table(value, file, name)

    def text(self, key: str, *, empty: bool = False) -> str:
        """A string, not empty unless that is allowed."""
        value = self._take(key)
        if not isinstance(value, str) or not (value or empty):
            raise self._fail(key, value, "a string" if empty else "a non-empty string")
        return value

    def texts(self, key: str, *, at_least: int) -> tuple[str, ...]:
        """An array of non-empty strings."""
        value = self._take(key)
        if (
            not isinstance(value, list)
            or len(value) < at_least
            or not all(isinstance(x, str) and x for x in value)
        ):
            raise self._fail(key, value, f"an array of at least {at_least} non-empty strings")
        return tuple(value)

    def flag(self, key: str) -> bool:
        """A boolean."""
        value = self._take(key)
        if not isinstance(value, bool):
            raise self._fail(key, value, "true or false")
        return value

    def integer(self, key: str, minimum: int) -> int:
        """An integer of at least `minimum`; 3.0 and true are none."""
        value = self._take(key)
        if isinstance(value, bool) or not isinstance(value, int) or not minimum <= value < 2**63:
            raise self._fail(key, value, f"an integer of at least {minimum} that fits in 64 bits")
        return value

    def number(self, key: str, allowed: str, holds: Callable[[float], bool]) -> float:
        """A finite float or integer for which `holds`; `allowed` says it in words."""
        value = self._take(key)
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise self._fail(key, value, allowed)
        try:
            number = float(value)
        except OverflowError:  # an integer beyond the range of float64
            number = math.inf
        if not (math.isfinite(number) and holds(number)):
            raise self._fail(key, value, allowed)
        return number

    def number_or_off(self, key: str) -> float | Literal["off"]:
        """A number above 0, or the word "off"."""
        if self._values.get(key) == "off":
            self._take(key)
            return "off"
        return self.number(key, 'a number above 0 or "off"', lambda x: x > 0)

    def choice(self, key: str, *allowed: _Word) -> _Word:
        """One of the `allowed` words."""
        value = self._take(key)
        for one in allowed:
            if value == one:
                return one
        raise self._fail(key, value, f"one of {', '.join(map(repr, allowed))}")
