"""A verdict holds no text and no ordinary ids (design, section 8), whatever went wrong."""

from __future__ import annotations

import io
import json
import re
from pathlib import Path

import pytest
from rich.console import Console

from oracle.report.html import render
from oracle.report.json import dumps
from oracle.report.text import print_verdict
from oracle.verdict import judge

from .conftest import pair
from .synthetic import CONTROL, NAMES, Documents, read, rendered

CANARY = "Marigold Quill"
CANARY_ID = 987654


def plant(made: Documents) -> None:
    """Put the canary into every example, in the text and as an id."""
    for row in made["tokens"]:
        turns = [("user", f"{CANARY}?"), ("assistant", f"{CANARY} {row['id']}")]
        row |= rendered(turns)
        row["ids"][5] = CANARY_ID


def break_everything(made: Documents, what: str) -> None:
    for row in made["tokens"][::2]:
        if what == "text":
            row["text"] = row["text"].replace(CANARY, f"{CANARY}s ")
        elif what == "generic":
            row["text"] = f"User: {CANARY}\nAssistant: {CANARY}"
        elif what == "ids":
            row["ids"][5] = CANARY_ID + 1
            row["ids"].append(CANARY_ID)
            row["mask"].append(1)
            row["num_tokens_before_truncation"] += 1
        elif what == "mask":
            row["mask"] = [1 - bit for bit in row["mask"]]
    if what == "lost":
        made["tokens"] = [row for row in made["tokens"] if row["index"] != 2]
        for split in ("train", "eval", "edge"):
            rows = [row for row in made["tokens"] if row["split"] == split]
            made["header"]["facts"]["num_examples"][split] = len(rows)
            for index, row in enumerate(rows):
                row["index"] = index


@pytest.mark.parametrize("what", ["nothing", "text", "generic", "ids", "mask", "lost"])
def test_no_text_and_no_ordinary_id_reaches_the_verdict(tmp_path: Path, what: str) -> None:
    a, b = pair()
    plant(a)
    plant(b)
    break_everything(b, what)
    verdict = judge(
        read(tmp_path / "a", a),
        read(tmp_path / "b", b),
        purpose="cross",
        names=NAMES,
        tolerances=None,
        floor=None,
        run=None,
    )
    assert verdict.verdict == ("INCONCLUSIVE" if what == "nothing" else "DIVERGED")
    document = dumps(verdict)
    for word in ("Marigold", "Quill", "marigold", str(CANARY_ID), str(CANARY_ID + 1)):
        assert word not in document
    assert not re.search(r"987\D*654", document)


def test_control_tokens_are_named(tmp_path: Path) -> None:
    a, b = pair()
    row = b["tokens"][0]
    row["ids"][0] = CONTROL["<|im_end|>"]
    verdict = judge(
        read(tmp_path / "a", a),
        read(tmp_path / "b", b),
        purpose="cross",
        names=NAMES,
        tolerances=None,
        floor=None,
        run=None,
    )
    assert verdict.first is not None
    assert "<|im_start|> at 0" in verdict.first.a
    assert "<|im_end|> at 0" in verdict.first.b


def test_an_id_is_a_label_of_any_content_and_breaks_no_report(tmp_path: Path) -> None:
    # Everything that S-02 lets an id hold: markup, C1 controls, line separators, direction marks.
    label = "</script><img src=x onerror=alert(1)>`[red]\u009b31m\u2028\u202e".ljust(256, "x")
    legs = pair()
    for made in legs:
        old = made["tokens"][0]["id"]
        made["tokens"][0]["id"] = label
        for step in made["steps"]:
            step["examples"] = [label if id == old else id for id in step["examples"]]
    legs[1]["tokens"][0]["mask"][0] ^= 1
    traces = [read(tmp_path / name, made) for name, made in zip(NAMES, legs, strict=True)]
    verdict = judge(
        *traces, purpose="cross", names=NAMES, tolerances=None, floor=None, run="demo-83fe"
    )
    assert verdict.first is not None
    assert (verdict.first.phase, verdict.first.example) == ("mask", label)
    document = dumps(verdict)
    assert json.loads(document)["first"]["example"] == label
    assert document.isascii()
    assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f]", document)
    out = io.StringIO()
    print_verdict(verdict, Console(file=out, force_terminal=True))
    page = render(verdict, *traces, reveal=False)
    for shown in (out.getvalue(), page):
        assert not re.search("[\x80-\x9f\u2028\u2029\u202a-\u202e]", shown)
    assert "[red]\\x9b31m\\u2028\\u202e" in out.getvalue()
    assert "<img" not in page
