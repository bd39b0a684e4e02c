"""A verdict holds no text and no ordinary ids (design, section 8), whatever went wrong."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from oracle.report.json import dumps
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
