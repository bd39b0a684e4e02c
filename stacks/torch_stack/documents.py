"""JSON documents of a trace, each written whole or not at all (S-24)."""

import json
import math
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any


def write_json(path: Path, value: Mapping[str, object]) -> None:
    """A JSON document, whole or not at all."""
    temporary = path.with_name(path.name + ".tmp")
    text = json.dumps(jsonable(value), indent=1, allow_nan=False) + "\n"
    temporary.write_text(text, encoding="utf-8")
    sync(temporary)
    temporary.rename(path)
    sync(path.parent)


def jsonable(value: Any) -> Any:
    """A value with every float that is not finite written as its name (S-24)."""
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    if isinstance(value, Mapping):
        return {key: jsonable(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [jsonable(one) for one in value]
    return value


def sync(path: Path) -> None:
    """Ask the system to write a file, or the entries of a folder, to the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
