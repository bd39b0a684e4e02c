"""The oracle's own checks against the golden vectors: nothing valid is refused before a leg starts.

Of what the contract refuses, all but what needs a render, a number or a token is refused here.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from oracle.checkpoint import read_checkpoint
from oracle.config import load_config
from oracle.contract import ROOT
from oracle.conversations import ExampleIds, check_file
from oracle.errors import OracleError
from oracle.inputs import check_inputs
from oracle.template import check_template
from oracle.tokenizer import read_tokenizer

VECTORS = ROOT / "data" / "vectors"


def conversations(given: dict[str, Any], folder: Path) -> None:
    path = folder / "data.jsonl"
    content = bytes.fromhex(given["bytes_hex"]) if "bytes_hex" in given else given["text"].encode()
    path.write_bytes(content)
    check_file(path, "train", ExampleIds())


def template(given: dict[str, Any], folder: Path) -> None:
    path = folder / "chat.jinja"
    path.write_bytes(given["template"].encode())
    check_template(path, mask=given["mask"])


CHECKS: dict[str, Callable[[dict[str, Any], Path], object]] = {
    "conversations": conversations,
    "render": template,
    "encode": lambda given, _: read_tokenizer(VECTORS / given["tokenizer"]),
    "logits": lambda given, _: read_checkpoint(VECTORS / given["checkpoint"]),
    "gradients": lambda given, _: read_checkpoint(VECTORS / given["checkpoint"]),
    "training": lambda given, _: check_inputs(load_config(VECTORS / given["config"])),
}


def cases(clause: str) -> list[Any]:
    document = json.loads((VECTORS / f"{clause}.json").read_text("utf-8"))
    return [case for case in document["cases"] if case["kind"] in CHECKS]


def refused(case: dict[str, Any], folder: Path) -> bool:
    try:
        CHECKS[case["kind"]](case["input"], folder)
    except OracleError:
        return True
    return False


@pytest.mark.parametrize("clause", ["S-01", "S-02", "S-03", "S-04", "S-05", "S-12", "S-13"])
def test_no_valid_case_is_refused(clause: str, tmp_path: Path) -> None:
    valid = [case for case in cases(clause) if case["expected"] != {"error": True}]
    assert [case["name"] for case in valid if refused(case, tmp_path)] == []


@pytest.mark.parametrize("clause", ["S-01", "S-02", "S-04", "S-12", "S-13"])
def test_every_invalid_case_is_refused(clause: str, tmp_path: Path) -> None:
    invalid = [case for case in cases(clause) if case["expected"] == {"error": True}]
    assert invalid
    assert [case["name"] for case in invalid if not refused(case, tmp_path)] == []
