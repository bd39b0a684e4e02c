"""Golden vectors (S-27): a stack's `vectors` verb answers, each answer is held against the file."""

from __future__ import annotations

import math
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from oracle.contract import ROOT
from oracle.document import NON_FINITE, kind, loads
from oracle.errors import DataError, LegError
from oracle.files import read_bytes
from oracle.leg import environment
from oracle.stacks import Stack

VECTORS = ROOT / "data" / "vectors"
TIMEOUT_SECONDS = 600.0


@dataclass(frozen=True, kw_only=True)
class CaseResult:
    """One case of a clause. `reason` says where the answer parts, None when it passes."""

    clause: str
    name: str
    reason: str | None


def vector_files(folder: Path) -> list[Path]:
    """Return the vector files of a folder in the order of their clauses."""
    found = sorted(folder.glob("S-*.json"))
    if not found:
        raise DataError(f"{folder} holds no vector file S-xx.json.")
    return found


def run_vectors(
    stack: Stack, path: Path, *, timeout_seconds: float = TIMEOUT_SECONDS
) -> list[CaseResult]:
    """Put one vector file to a stack; raises LegError when it gives no answers."""
    document = _read(path, "vector file")
    answers = _answers(stack, path, timeout_seconds)
    cases = document["cases"]
    if len(answers) != len(cases):
        raise LegError(
            f"stack {stack.name} gave {len(answers)} answers to the {len(cases)} cases of {path}."
        )
    return [
        CaseResult(clause=document["clause"], name=case["name"], reason=_judge(case, answer))
        for case, answer in zip(cases, answers, strict=True)
    ]


def _read(path: Path, what: str) -> Any:
    try:
        return loads(read_bytes(path, what))
    except ValueError as error:
        raise DataError(f"{what} {path} is not JSON ({error}).") from None


def _answers(stack: Stack, path: Path, timeout_seconds: float) -> list[Any]:
    with tempfile.TemporaryDirectory(prefix="oracle-vectors-") as folder:
        out = Path(folder) / "answers.json"
        argv = [*stack.argv, "vectors", "--in", str(path.resolve()), "--out", str(out)]
        try:
            ended = subprocess.run(
                argv,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                cwd=stack.root,
                env=environment(stack),
                timeout=timeout_seconds,
            )
        except OSError as error:
            raise LegError(f"{argv[0]} cannot be started ({error.strerror}).") from None
        except subprocess.TimeoutExpired:
            raise LegError(
                f"stack {stack.name} gave no answers to {path.name} in {timeout_seconds:g} seconds."
            ) from None
        if ended.returncode != 0:
            # Vectors hold no person's data, so the last line that the stack printed may be shown.
            lines = ended.stderr.decode("utf-8", "replace").strip().splitlines() or [
                "it said nothing"
            ]
            raise LegError(
                f"stack {stack.name} exited with code {ended.returncode} on {path.name}: "
                f"{lines[-1]}"
            )
        document = _read(out, "answers")
    if not isinstance(document, dict) or not isinstance(document.get("answers"), list):
        raise LegError(f"stack {stack.name}: the answers to {path.name} have no list `answers`.")
    answers: list[Any] = document["answers"]
    return answers


def _judge(case: Mapping[str, Any], answer: Any) -> str | None:
    if not isinstance(answer, dict) or answer.get("name", case["name"]) != case["name"]:
        return "the answer has another name; answers come in the order of the cases"
    expected, output = case["expected"], answer.get("output")
    refused = answer.get("error", output.get("error") if isinstance(output, dict) else None)
    if expected == {"error": True}:
        return None if refused else "was answered and must be refused"
    if refused is not None:
        return f"was refused: {refused}"
    rtol, atol = case.get("rtol", 0), case.get("atol", 0)
    return next(_differences(expected, output, "output", rtol, atol), None)


def _differences(a: Any, b: Any, place: str, rtol: float, atol: float) -> Iterator[str]:
    """Yield where an answer `b` parts from what is expected, first in document order."""
    if isinstance(a, dict) and isinstance(b, dict):
        if a.keys() != b.keys():
            yield f"{place} has keys {sorted(b)} and should have {sorted(a)}"
            return
        for key in a:
            yield from _differences(a[key], b[key], f"{place}.{key}", rtol, atol)
    elif isinstance(a, list) and isinstance(b, list):
        if len(a) != len(b):
            yield f"{place} has {len(b)} entries and should have {len(a)}"
            return
        for index, (left, right) in enumerate(zip(a, b, strict=True)):
            yield from _differences(left, right, f"{place}[{index}]", rtol, atol)
    elif _is_number(a) and _is_number(b):
        if not _close(float(NON_FINITE.get(a, a)), float(NON_FINITE.get(b, b)), rtol, atol):
            yield f"{place} is {b!r} and should be {a!r} (rtol {rtol:g})"
    elif type(a) is not type(b):
        yield f"{place} is {kind(b)} and should be {kind(a)}"
    elif a != b:
        yield f"{place} is {b!r} and should be {a!r}"


def _is_number(value: Any) -> bool:
    if isinstance(value, str):
        return value in NON_FINITE
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _close(a: float, b: float, rtol: float, atol: float) -> bool:
    if not (math.isfinite(a) and math.isfinite(b)):
        return a == b or (math.isnan(a) and math.isnan(b))
    return abs(a - b) <= rtol * max(abs(a), abs(b)) + atol
