"""A published tokenizer and template: SmolLM2's, rendered by both stacks without its weights.

The outside judge of the ids is the tokenizer class that people load it with.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tomllib
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
import tomli_w

from data.smollm2 import prepare
from oracle.trace import Trace, read_trace

ROOT = Path(__file__).resolve().parents[2]
NUM_TRAIN = 300
JUDGED = 12  # edge examples that the outside judge encodes

pytestmark = pytest.mark.xdist_group("smollm2")


@dataclass(frozen=True, kw_only=True)
class Rendered:
    exit_code: int
    verdict: dict[str, Any]
    trace: Trace


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("smollm2")
    assert prepare.main(["--tokenizer-only", "--out", str(path / "model")]) == 0
    return path


@pytest.fixture(scope="module")
def rendered(folder: Path) -> Rendered:
    config = tomllib.loads((ROOT / "configs" / "runs" / "clinical-demo.toml").read_text("utf-8"))
    with (ROOT / "data" / "clinical" / "sample" / "train.jsonl").open("rb") as lines:
        (folder / "train.jsonl").write_bytes(b"".join(islice(lines, NUM_TRAIN)))
    config["name"] = "smollm2-render"
    config["data"] |= {
        "train": ["train.jsonl"],
        "eval": [str(ROOT / "data" / "clinical" / "sample" / "heldout.jsonl")],
        "edge": [str(ROOT / "data" / "clinical" / "edge.jsonl")],
        "tokenizer": "model/tokenizer.json",
        "template": "model/chat_template.generation.jinja",
        "bos_token": "<|im_start|>",
        "eos_token": "<|im_end|>",
        "pad_token": "<|im_end|>",
        "max_length": 2048,
    }
    config["model"]["checkpoint"] = "model"
    (folder / "run.toml").write_text(tomli_w.dumps(config), "utf-8")
    argv = ["render", str(folder / "run.toml"), "--out", str(folder / "runs")]
    command = [sys.executable, "-c", "from oracle.cli import main; main()", *argv]
    ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300)
    run = folder / "runs" / "latest"
    assert ended.returncode in (0, 1, 3), ended.stderr
    return Rendered(
        exit_code=ended.returncode,
        verdict=json.loads((run / "verdict.json").read_text("utf-8")),
        trace=read_trace(run / "torch"),
    )


def test_the_model_s_folder_holds_no_weights(folder: Path) -> None:
    assert {path.name for path in (folder / "model").iterdir()} == {
        *("chat_template.jinja", "chat_template.generation.jinja", "config.json"),
        "tokenizer.json",
    }


def test_both_stacks_render_it_alike(rendered: Rendered) -> None:
    verdict = rendered.verdict
    assert (rendered.exit_code, verdict["verdict"]) == (0, "AGREE"), verdict["headline"]
    assert verdict["mode"] == "render"
    num_examples = NUM_TRAIN + 200 + 41  # the last edge line has no line end
    assert verdict["summary"]["num_examples"] == num_examples
    phases = {phase["phase"]: phase for phase in verdict["phases"]}
    for name in ("text", "ids", "mask"):
        assert phases[name]["num_compared"] == num_examples
        assert phases[name]["agreement"] == 1.0


def test_the_ids_are_those_of_the_tokenizer_that_people_load(
    folder: Path, rendered: Rendered
) -> None:
    from transformers import PreTrainedTokenizerFast

    judge = PreTrainedTokenizerFast(tokenizer_file=str(folder / "model" / "tokenizer.json"))
    rows = rendered.trace.tokens.collect().filter(split="edge").head(JUDGED)
    assert rows.height == JUDGED
    for row in rows.iter_rows(named=True):
        whole = judge.encode(row["text"], add_special_tokens=False)
        assert row["num_tokens_before_truncation"] == len(whole), row["id"]
        assert row["ids"] == whole[:2048], row["id"]
