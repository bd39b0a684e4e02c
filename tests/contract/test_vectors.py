"""Every golden vector against every stack (S-27), one test a case.

A stack answers all cases of all clauses in one process; paths in the cases are relative to the
vectors, so the joined file is put beside them.
"""

import copy
import json
import os
import subprocess
import sys
import tempfile
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from tests.reference.matching import differences

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "data" / "vectors"
# A stack answers once: all its tests go to one worker.
STACKS = [
    pytest.param(stack, marks=pytest.mark.xdist_group(f"vectors-{stack}"))
    for stack in ("torch", "jax")
]
TIMEOUT_SECONDS = 1800

Case = dict[str, Any]


def read_cases() -> dict[str, Case]:
    """`S-xx name` -> case, over all files."""
    cases: dict[str, Case] = {}
    for path in sorted(FOLDER.glob("S-*.json")):
        for case in json.loads(path.read_text(encoding="utf-8"))["cases"]:
            cases[f"{path.stem} {case['name']}"] = case
    return cases


CASES = read_cases()


def run_stack(stack: str, given: Path, out: Path) -> subprocess.CompletedProcess[str]:
    """The verb `vectors` of a stack, as a launcher would start it."""
    command = [sys.executable, "-m", f"stacks.{stack}_stack", "vectors"]
    return subprocess.run(
        [*command, "--in", str(given), "--out", str(out)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_SECONDS,
        check=False,
        env=os.environ | {"PYTHONHASHSEED": "random"},
    )


def output_of(entry: dict[str, Any]) -> Any:
    """The output of an answer, or `{"error": sentence}`; other keys match nothing."""
    if entry.keys() == {"name", "error"}:
        return {"error": entry["error"]}
    output = entry.get("output")
    is_output = isinstance(output, dict) and "error" not in output
    return output if is_output and entry.keys() == {"name", "output"} else {"malformed": entry}


@cache
def answers(stack: str) -> dict[str, Any]:
    """`S-xx name` -> output; a stack that gives no file gives its last lines instead."""
    joined = {
        "clause": "S-27",
        "provenance": "all clauses joined",
        "cases": [{**case, "name": name} for name, case in CASES.items()],
    }
    handle, name = tempfile.mkstemp(prefix=".joined-", suffix=".json", dir=FOLDER)
    given = Path(name)
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            json.dump(joined, file)
        with tempfile.TemporaryDirectory() as folder:
            out = Path(folder) / "answers.json"
            try:
                done = run_stack(stack, given, out)
            except subprocess.TimeoutExpired:
                return {"failure": f"no answer within {TIMEOUT_SECONDS} s"}
            if done.returncode != 0 or not out.exists():
                return {"failure": f"exit code {done.returncode}: {done.stderr[-2000:]}"}
            record = json.loads(out.read_text(encoding="utf-8"))
    finally:
        given.unlink()
    order = [entry["name"] for entry in record["answers"]]
    return {
        "order": order,
        "outputs": {entry["name"]: output_of(entry) for entry in record["answers"]},
    }


def mismatches(case: Case, output: Any) -> list[str]:
    """What is wrong with an answer, by the rule of S-27."""
    tolerance = {"rtol": case["rtol"], "atol": case.get("atol", 0.0)}
    return list(differences(case["expected"], output, **tolerance))


def test_an_answer_holds_an_output_or_an_error() -> None:
    refused = {"name": "x", "kind": "rows", "input": {}, "expected": {"error": True}, "rtol": 0.0}
    assert mismatches(refused, output_of({"name": "x", "error": "a sentence"})) == []
    assert mismatches(refused, output_of({"name": "x", "output": {"error": "a sentence"}}))
    assert mismatches(refused, output_of({"name": "x", "output": {}, "error": "a sentence"}))
    assert output_of({"name": "x", "output": {"rows": []}}) == {"rows": []}


@pytest.mark.parametrize("stack", STACKS)
def test_answers_come_in_the_order_of_the_cases(stack: str) -> None:
    record = answers(stack)
    assert "failure" not in record, record["failure"]
    assert record["order"] == list(CASES)


@pytest.mark.parametrize("stack", STACKS)
@pytest.mark.parametrize("name", CASES)
def test_stack_agrees_with_the_vector(stack: str, name: str) -> None:
    record = answers(stack)
    if "failure" in record:
        pytest.fail(record["failure"], pytrace=False)
    if name not in record["outputs"]:
        pytest.fail("no answer for this case", pytrace=False)
    wrong = mismatches(CASES[name], record["outputs"][name])
    if wrong:
        pytest.fail("\n".join(wrong[:10]), pytrace=False)


def spoil(value: Any) -> Any:
    """The value with its first leaf changed, by more than any tolerance."""
    if isinstance(value, dict) and value:
        key = next(iter(value))
        return {**value, key: spoil(value[key])}
    if isinstance(value, list) and value:
        return [spoil(value[0]), *value[1:]]
    if isinstance(value, bool | str) or value is None or value in ([], {}):
        return "spoilt"
    return value * 1.001 + 0.001


@pytest.mark.parametrize("name", CASES)
def test_a_wrong_answer_is_reported(name: str) -> None:
    case = CASES[name]
    refused = case["expected"] == {"error": True}
    right = {"error": "a sentence"} if refused else copy.deepcopy(case["expected"])
    assert mismatches(case, right) == []
    wrong = {"output": 0} if refused else spoil(case["expected"])
    assert mismatches(case, wrong)
    assert mismatches(case, {"error": ""})
    assert refused or mismatches(case, {"error": "a sentence"})


def test_every_clause_of_the_table_has_cases() -> None:
    kinds = {case["kind"] for case in CASES.values()}
    assert kinds >= {
        *("conversations", "render", "encode", "example", "order", "rows", "batches"),
        *("logits", "loss", "clip", "schedule", "adamw", "statistics", "tensors_sha256"),
        *("gradients", "training"),
    }


def test_vector_files_have_the_shape_of_the_clause() -> None:
    for path in sorted(FOLDER.glob("S-*.json")):
        record = json.loads(path.read_text(encoding="utf-8"))
        assert record.keys() == {"clause", "provenance", "cases"}
        assert record["clause"] == path.stem
        for case in record["cases"]:
            assert case.keys() - {"atol"} == {"name", "kind", "input", "expected", "rtol"}
            assert 0 <= case["rtol"] <= 1e-9 or case["input"].get("precision") == "float32"
