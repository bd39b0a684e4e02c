"""Names of token ids for a reveal: the tokenizer file of the run, if it still has the run's bytes.

A byte-level vocabulary spells each byte as one printable character (the table of GPT-2): printable
Latin-1 as itself, the other 68 bytes from U+0100 on.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path

from oracle.bundle import read_bundle
from oracle.errors import DataError
from oracle.tokenizer import read_tokenizer
from oracle.trace import Trace

PRINTABLE = (*range(33, 127), *range(161, 173), *range(174, 256))


def byte_of() -> dict[str, int]:
    """Return the byte that each character of a byte-level vocabulary stands for."""
    others = [byte for byte in range(256) if byte not in PRINTABLE]
    return {chr(byte): byte for byte in PRINTABLE} | {
        chr(256 + place): byte for place, byte in enumerate(others)
    }


def names(trace: Trace) -> Mapping[int, str]:
    """Return the text of each id, empty when the run's tokenizer file is not at hand.

    The file is the one that the run's bundle lists under the hash in the trace's facts; an
    incomplete character is shown as U+FFFD.
    """
    wanted = trace.header["facts"]["files"]["tokenizer"]
    try:
        listed = read_bundle(trace.path.parent / "bundle" / "bundle.json").files
        path = next(Path(path) for path, digest in listed.items() if digest == wanted)
        if hashlib.sha256(path.read_bytes()).hexdigest() != wanted:
            return {}
        tokens = read_tokenizer(path).tokens
    except (DataError, OSError, StopIteration):
        return {}
    table = byte_of()
    return {
        id: bytes(table[c] for c in token).decode("utf-8", "replace")
        if all(c in table for c in token)
        else token
        for token, id in tokens.items()
    }
