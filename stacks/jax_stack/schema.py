"""Values of a TOML document as the types that annotations state (S-01).

`Literal` is an enumeration, `Annotated[number, Bound]` a limit, a dataclass a table in which every
key is required, unless its field has a default, and no other allowed.
"""

import math
import re
from dataclasses import MISSING, dataclass, fields, is_dataclass
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

from .errors import BadInput


@dataclass(frozen=True, kw_only=True)
class Bound:
    """A limit of a number; the ends named `above` and `below` are excluded."""

    at_least: float | None = None
    above: float | None = None
    at_most: float | None = None
    below: float | None = None

    def broken_by(self, value: float) -> str | None:
        """The limit that `value` breaks, in words; None when it keeps all of them."""
        if self.at_least is not None and value < self.at_least:
            return f"at least {self.at_least:g}"
        if self.above is not None and value <= self.above:
            return f"above {self.above:g}"
        if self.at_most is not None and value > self.at_most:
            return f"at most {self.at_most:g}"
        if self.below is not None and value >= self.below:
            return f"below {self.below:g}"
        return None


@dataclass(frozen=True, kw_only=True)
class Pattern:
    """A string matches `regex` as a whole."""

    regex: str


@dataclass(frozen=True, kw_only=True)
class Paths:
    """A list of at least one path."""

    at_least_one: bool = True


def convert(value: Any, hint: Any, path: str, key: str) -> Any:
    """`value` as the type that `hint` states, or BadInput that names the key and both sides."""
    if is_dataclass(hint):
        return _convert_table(value, hint, path, key)
    origin, arguments = get_origin(hint), get_args(hint)
    if origin is Annotated:
        converted = convert(value, arguments[0], path, key)
        for constraint in arguments[1:]:
            _check(converted, constraint, path, key)
        return converted
    if origin is Literal:
        if not isinstance(value, str) or value not in arguments:
            raise _refusal(path, key, " or ".join(f'"{name}"' for name in arguments), value)
        return value
    if origin is Union or origin is type(int | str):
        return convert(value, arguments[isinstance(value, str)], path, key)  # number | Literal
    if origin is tuple:
        if not isinstance(value, list):
            raise _refusal(path, key, "an array", value)
        return tuple(
            convert(item, arguments[0], path, f"{key}[{i}]") for i, item in enumerate(value)
        )
    return _convert_scalar(value, hint, path, key)


def _convert_table(value: Any, record: Any, path: str, key: str) -> Any:
    if not isinstance(value, dict):
        raise _refusal(path, key, "a table", value)
    prefix = f"{key}." if key else ""
    names = [field.name for field in fields(record)]
    for name in value:
        if name not in names:
            raise BadInput(
                f"{path}: `{prefix}{name}` is not a key of a run config (S-01); remove it"
            )
    for name in [field.name for field in fields(record) if field.default is MISSING]:
        if name not in value:
            raise BadInput(
                f"{path}: `{prefix}{name}` is required and missing (S-01: nothing has a "
                "default); add it"
            )
    hints = get_type_hints(record, include_extras=True)
    return record(
        **{name: convert(value[name], hints[name], path, prefix + name) for name in value}
    )


def _convert_scalar(value: Any, kind: type, path: str, key: str) -> Any:
    """A boolean is no number, a float no integer, and a string never becomes a number (S-01)."""
    if isinstance(value, int) and not isinstance(value, bool) and not -(2**63) <= value < 2**63:
        raise _refusal(path, key, "an integer of 64 bits", value)
    if kind is float and isinstance(value, int | float) and not isinstance(value, bool):
        if math.isfinite(value):
            return float(value)
        raise _refusal(path, key, "a finite number", value)
    if kind is not float and type(value) is kind:
        return value
    names = {float: "a number", int: "an integer", bool: "true or false"}
    raise _refusal(path, key, names.get(kind, "a string"), value)


def _check(value: Any, constraint: object, path: str, key: str) -> None:
    if isinstance(constraint, Bound) and (limit := constraint.broken_by(value)):
        raise _refusal(path, key, limit, value)
    if isinstance(constraint, Pattern) and not re.fullmatch(constraint.regex, value):
        wanted = (
            "not empty"
            if constraint.regex == "(?s).+"
            else f"a string that matches {constraint.regex}"
        )
        raise _refusal(path, key, wanted, value)
    if isinstance(constraint, Paths) and not value:
        raise _refusal(path, key, "a list of at least one path", list(value))


def _refusal(path: str, key: str, wanted: str, value: Any) -> BadInput:
    shown = f'"{value}"' if isinstance(value, str) else str(value)
    return BadInput(f"{path}: `{key}` must be {wanted} (S-01), not {shown[:80]}; change it")
