"""One variant of a calibration in every stack: started, taken up again, or only read.

A leg that finished in an earlier call is kept, one that was cut short resumes from its newest
snapshot (S-23). Two legs run at a time at most.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Protocol

from oracle.errors import DataError, LegError, TraceError
from oracle.files import write_atomic
from oracle.launch import run_legs
from oracle.leg import BAD_INPUT, Leg, LegEnd, Limits, new_nonce, running_process
from oracle.progress import OnProgress
from oracle.stacks import Stack
from oracle.trace import Trace, read_trace

# Large, and nothing of it is compared with a base.
NOT_NEEDED = ("snapshots", "checkpoint")


class View(Protocol):
    """What shows a person how far the legs are: opened once for each two legs that run."""

    def __call__(self) -> AbstractContextManager[OnProgress | None]:
        """Return the view to enter."""


def no_view() -> AbstractContextManager[OnProgress | None]:
    """Show nothing."""
    return nullcontext()


def variant_legs(variant: str, stacks: Sequence[Stack], scratch: Path) -> list[Leg]:
    """Return the legs of a variant whose config is `scratch/{variant}.toml`.

    Nonces are drawn once and kept, so that a later call knows the traces as its own. Raises
    LegError when a leg of a killed calibration is still at work.
    """
    folder = scratch / variant
    folder.mkdir(exist_ok=True, mode=0o700)
    unique = list({stack.name: stack for stack in stacks}.values())
    nonces = _nonces(folder / "nonces.json", [stack.name for stack in unique])
    for name, nonce in nonces.items():
        if (process_id := running_process(nonce)) is not None:
            raise LegError(
                f"calibration, variant {variant}: leg {name} of an earlier call still runs as "
                f"process {process_id}; stop it first (kill {process_id}), then calibrate again."
            )
    return [
        Leg(
            name=stack.name,
            stack=stack,
            mode="train",
            config=scratch / f"{variant}.toml",
            root=scratch,
            out=folder / stack.name,
            logs=folder / "logs",
            nonce=nonces[stack.name],
        )
        for stack in unique
    ]


def run_variant(
    variant: str, legs: Sequence[Leg], *, limits: Limits | None, view: View
) -> Mapping[str, Trace]:
    """Run what is not finished of the legs and return all traces, by the stack that each names.

    Raises DataError when a leg refuses its input, and LegError when one fails otherwise.
    """
    waiting = [_to_start(leg) for leg in legs if finished(leg) is None]
    for start in range(0, len(waiting), 2):
        with view() as on_progress:
            ends = run_legs(waiting[start : start + 2], limits=limits, on_progress=on_progress)
        _refuse_failed(variant, ends)
    traces = [read_trace(leg.out, nonce=leg.nonce) for leg in legs]
    for leg in legs:
        for name in NOT_NEEDED:
            shutil.rmtree(leg.out / name, ignore_errors=True)
    return {trace.header["provenance"]["stack"]: trace for trace in traces}


def finished(leg: Leg) -> Trace | None:
    """Return the trace that an earlier call left, None when the leg is still to be run."""
    if not (leg.out / "done.json").exists():
        return None
    try:
        return read_trace(leg.out, nonce=leg.nonce)
    except TraceError:
        shutil.rmtree(leg.out)  # a footer over damaged files: nothing to resume from
        return None


def _to_start(leg: Leg) -> Leg:
    resume = leg.out.is_dir() and any(leg.out.iterdir())
    return leg.resumed() if resume else leg


def _nonces(path: Path, names: Sequence[str]) -> dict[str, str]:
    known: dict[str, str] = json.loads(path.read_text("utf-8")) if path.exists() else {}
    if not known.keys() >= set(names):
        known = {name: known.get(name) or new_nonce() for name in names}
        write_atomic(path, json.dumps(known).encode())
    return known


def _refuse_failed(variant: str, ends: Sequence[LegEnd]) -> None:
    failed = [end for end in ends if end.error is not None]
    # The leg that failed by itself, not the one that was stopped for it.
    end = next((end for end in failed if end.stopped_for is None), None)
    if end is None:
        return
    sentence = f"calibration, variant {variant}: {end.name}: {end.error}"
    if end.return_code == BAD_INPUT:
        raise DataError(sentence)
    raise LegError(
        f"{sentence.rstrip('.')}. What is finished is kept; the same command goes on from there."
    )
