"""The matching rule of golden vectors (S-27): numbers within a tolerance, all else exactly."""

import math
from collections.abc import Iterator
from typing import Any

WORDS = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}  # S-24, in JSON


def is_number(value: Any) -> bool:
    """True for integers and floats; JSON's true and false are not numbers."""
    return isinstance(value, int | float) and not isinstance(value, bool)


def numbers_match(a: float, b: float, rtol: float, atol: float) -> bool:
    """|a - b| <= rtol · max(|a|, |b|) + atol."""
    return a == b or abs(a - b) <= rtol * max(abs(a), abs(b)) + atol


def differences(
    expected: Any, output: Any, *, rtol: float, atol: float = 0.0, at: str = "output"
) -> Iterator[str]:
    """One sentence for each place where `output` does not match."""
    if expected == {"error": True}:
        refused = isinstance(output, dict) and isinstance(output.get("error"), str)
        if not refused or not output["error"]:
            yield f"{at}: must be refused with a sentence, answered {shorten(output)}"
    elif is_number(expected) and is_number(output):
        if not numbers_match(expected, output, rtol, atol):
            yield f"{at}: expected {expected!r}, answered {output!r} (rtol {rtol}, atol {atol})"
    elif isinstance(expected, dict) and isinstance(output, dict):
        if expected.keys() != output.keys():
            yield f"{at}: expected keys {sorted(expected)}, answered {sorted(output)}"
        for key in expected.keys() & output.keys():
            yield from differences(
                expected[key], output[key], rtol=rtol, atol=atol, at=f"{at}.{key}"
            )
    elif isinstance(expected, list) and isinstance(output, list):
        if len(expected) != len(output):
            yield f"{at}: expected {len(expected)} entries, answered {len(output)}"
        for i, (a, b) in enumerate(zip(expected, output, strict=False)):
            yield from differences(a, b, rtol=rtol, atol=atol, at=f"{at}[{i}]")
    elif type(expected) is not type(output) or expected != output:
        yield f"{at}: expected {shorten(expected)}, answered {shorten(output)}"


def shorten(value: Any) -> str:
    """A value on one short line."""
    text = repr(value)
    return text if len(text) <= 200 else text[:200] + " …"


def to_json(value: Any) -> Any:
    """Plain JSON values; what is not finite becomes its word."""
    if isinstance(value, dict):
        return {key: to_json(entry) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [to_json(entry) for entry in value]
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else ("Infinity" if value > 0 else "-Infinity")
    return value


def from_json(value: Any) -> Any:
    """Numbers written as words back to floats, for nested lists of numbers."""
    if isinstance(value, list):
        return [from_json(entry) for entry in value]
    return WORDS[value] if isinstance(value, str) else value
