"""JSON documents and their schemas: strict parsing, and a schema violation as one sentence.

A sentence names the field and the kinds of values, never a string that was found, unless the
caller says that the document holds no conversation (`reveal`).
"""

from __future__ import annotations

import functools
import json
import math
import re
from collections.abc import Iterator, Mapping
from typing import Any

from jsonschema import Draft202012Validator
from jsonschema.exceptions import ValidationError, best_match
from jsonschema.validators import extend

from oracle.contract import SchemaName, schema

KINDS = {
    "NoneType": "null",
    "bool": "a boolean",
    "int": "an integer",
    "float": "a number",
    "str": "text",
    "list": "a list",
    "dict": "a table",
    "date": "a date",
    "time": "a time",
    "datetime": "a date and time",
}
LONGEST_SHOWN = 120  # characters of a value in a sentence
NON_FINITE = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}
TYPES = {
    "null": "null",
    "boolean": "true or false",
    "integer": "an integer",
    "number": "a number",
    "string": "text",
    "array": "a list",
    "object": "a table",
}


def kind(value: object) -> str:
    """Return what a value is, in words ("text", "an integer"), without showing it."""
    return KINDS.get(type(value).__name__, f"a {type(value).__name__}")


def _refuse_constant(name: str) -> float:
    raise ValueError(f"{name} is not JSON; write it as the string {name!r}")


_ESCAPED_SURROGATE = re.compile(rb"\\u[dD][89a-fA-F]")
_DECODER = json.JSONDecoder(parse_constant=_refuse_constant)


def loads(text: str | bytes) -> Any:
    """Parse JSON; what is none raises ValueError, also `NaN` outside a string (S-24)."""
    try:
        return _DECODER.decode(text if isinstance(text, str) else text.decode("utf-8"))
    except RecursionError:
        raise ValueError("nested too deep") from None


def loads_text(content: bytes) -> Any:
    """Parse JSON whose strings are Unicode text; half of a surrogate pair raises ValueError too."""
    value = loads(content)
    # Only an escape can make one, so most documents need no search of their strings.
    if _ESCAPED_SURROGATE.search(content) is not None:
        try:
            json.dumps(value, ensure_ascii=False).encode()
        except UnicodeEncodeError:
            raise json.JSONDecodeError("half of a surrogate pair", "", 0) from None
    return value


def as_float(value: Any) -> float:
    """Return a number of a trace; what is not finite is written as a string there (S-24)."""
    if isinstance(value, str):
        return NON_FINITE[value]
    return float(value)


def matches(pattern: str, text: str) -> bool:
    """Whether a text has a schema's pattern. `$` is the end: Python's own also passes before LF."""
    return _compiled(pattern).search(text) is not None


@functools.cache
def _compiled(pattern: str) -> re.Pattern[str]:
    return re.compile(re.sub(r"\$$", r"\\Z", pattern))


def _pattern(
    validator: Any, pattern: str, instance: object, schema: object
) -> Iterator[ValidationError]:
    if isinstance(instance, str) and not matches(pattern, instance):
        yield ValidationError(f"does not match {pattern}")


_Validator = extend(Draft202012Validator, {"pattern": _pattern})


@functools.cache
def validator(name: SchemaName, definition: str | None = None) -> Any:
    """Return the validator of a schema of the contract, or of one of its `$defs`."""
    whole = schema(name)
    if definition is None:
        return _Validator(whole)
    return _Validator({"$defs": whole["$defs"], "$ref": f"#/$defs/{definition}"})


def violation(
    document: object,
    name: SchemaName,
    definition: str | None = None,
    *,
    reveal: bool = False,
) -> str | None:
    """Return the first violation of the schema as "field …", or None when there is none."""
    # Errors are walked in order so that the same document always gives the same sentence.
    errors = sorted(
        validator(name, definition).iter_errors(document), key=lambda e: [str(p) for p in e.path]
    )
    if not errors:
        return None
    error = errors[0]
    while error.context and error.validator != "oneOf":
        error = best_match(error.context)
    return f"{field_name(error)} {demand(error, reveal=reveal)}"


def field_name(error: ValidationError) -> str:
    """Return the dotted name of the field of a schema violation."""
    name = ".".join(str(part) for part in error.absolute_path)
    return name or "the document"


def demand(error: ValidationError, *, reveal: bool) -> str:
    """Return what a field holds against what the schema demands, as the end of a sentence."""
    value = error.instance
    shown = shown_value(value) if reveal else kind(value)
    match error.validator:
        case "required":
            missing = [key for key in error.validator_value if key not in value]
            return f"lacks {_quoted(missing)}"
        case "additionalProperties":
            known: Mapping[str, object] = error.schema.get("properties", {})
            return f"has unknown {_quoted(sorted(set(value) - set(known)))}"
        case "type":
            return f"is {shown_kind(value, reveal)} and should be {_types(error.validator_value)}"
        case "oneOf":
            numeric = isinstance(value, (int, float)) and not isinstance(value, bool)
            found = shown if numeric else shown_kind(value, reveal)
            return f"is {found} and should be {_alternatives(error)}"
        case "enum":
            allowed = ", ".join(json.dumps(v) for v in error.validator_value)
            return f"is {shown} and should be one of {allowed}"
        case "const":
            return f"is {shown} and should be {json.dumps(error.validator_value)}"
        case "minimum":
            return f"is {shown} and should be at least {error.validator_value}"
        case "maximum":
            return f"is {shown} and should be at most {error.validator_value}"
        case "exclusiveMinimum":
            return f"is {shown} and should be more than {error.validator_value}"
        case "exclusiveMaximum":
            return f"is {shown} and should be less than {error.validator_value}"
        case "minItems" | "minLength" | "minProperties":
            least = error.validator_value
            return f"has {len(value)} entries or characters and should have at least {least}"
        case "maxLength":
            return f"has {len(value)} characters and should have at most {error.validator_value}"
        case "maxItems":
            return f"has {len(value)} entries and should have at most {error.validator_value}"
        case "pattern":
            return f"is {shown} and should match {error.validator_value}"
    return f"does not satisfy the schema's {error.validator}"


def shown_kind(value: object, reveal: bool) -> str:
    """Return the kind of a value, with the value itself when it may be shown."""
    if not reveal or value is None or isinstance(value, (dict, list)):
        return kind(value)
    return f"{kind(value)} ({shown_value(value)})"


def shown_value(value: object) -> str:
    """Return a value as JSON, shortened: a config can hold an integer of a thousand digits."""
    if isinstance(value, int) and value.bit_length() > 256:
        # Not by `str`, which refuses integers of more than 4,300 digits.
        return f"an integer of about {round(value.bit_length() * math.log10(2))} digits"
    text = json.dumps(value, ensure_ascii=False, default=str)
    more = len(text) - LONGEST_SHOWN
    return text if more <= 0 else f"{text[:LONGEST_SHOWN]}… ({more} characters more)"


def _types(types: str | list[str]) -> str:
    return " or ".join(TYPES[t] for t in ([types] if isinstance(types, str) else types))


def _alternatives(error: ValidationError) -> str:
    words = []
    for option in error.validator_value:
        if "type" in option:
            words.append(_types(option["type"]))
        if "exclusiveMinimum" in option:
            words[-1] += f" above {option['exclusiveMinimum']}"
        words += [json.dumps(v) for v in option.get("enum", [])]
        if "const" in option:
            words.append(json.dumps(option["const"]))
    return " or ".join(words)


def _quoted(names: list[str]) -> str:
    return ("keys " if len(names) > 1 else "key ") + ", ".join(repr(name) for name in names)
