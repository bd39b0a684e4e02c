"""Why a leg ended, in one sentence without its name: its error.json, a signal, a code (S-26)."""

from __future__ import annotations

import re
import shutil
import signal
from pathlib import Path

from oracle.errors import TraceError
from oracle.leg import Leg

LONGEST_MESSAGE = 2000  # characters
FULL_BYTES = 1_000_000  # a disk with less left is full: not even an error.json was written


def ending(leg: Leg, return_code: int, last_step: int | None) -> str | None:
    """Return why a leg failed; None when it exited with 0.

    What the leg printed is never quoted: it may hold conversation text.
    """
    if return_code == 0:
        return None
    if (message := _own_sentence(leg)) is not None:
        full = "" if "No space left" in message else _full_disk(leg.out)
        return f"{message.rstrip('.')}{full}." if full else message
    where = "before its first step" if last_step is None else f"after step {last_step}"
    log = f"see logs/{leg.name}.stderr"
    if return_code < 0:
        memory = "; out of memory?" if -return_code == signal.SIGKILL else ""
        return f"was killed by {_signal_name(-return_code)} {where}{memory} ({log})."
    full = _full_disk(leg.out)
    return f"exited with code {return_code} {where} and left no error.json{full} ({log})."


def _full_disk(out: Path) -> str:
    place = out if out.is_dir() else out.parent
    free = shutil.disk_usage(place).free
    return f"; the disk of {place} is full, {free:,} bytes are left" if free < FULL_BYTES else ""


def _own_sentence(leg: Leg) -> str | None:
    from oracle.trace import read_document  # polars: only when a leg has failed

    if not (leg.out / "error.json").exists():
        return None
    try:
        error = read_document(leg.out / "error.json", "error")
    except TraceError:
        return None  # cut while it was written, for instance on a full disk
    if error["nonce"] != leg.nonce:
        return None  # left over from another run
    message = re.sub(r"[\x00-\x1f\x7f-\x9f]+", " ", error["message"]).strip()
    return message[:LONGEST_MESSAGE]


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
