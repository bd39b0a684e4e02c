"""Bad input is one sentence, a code and a document, without a traceback or text (S-26)."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from stacks.torch_stack import __main__ as command
from stacks.torch_stack import leg
from stacks.torch_stack.errors import Interrupted

from .conftest import Run, leg_arguments, run_leg

pytestmark = pytest.mark.usefixtures("in_process")
SECRET = "what is 37 then?"


def fails(capsys: pytest.CaptureFixture[str], arguments: list[str], code: int, out: Path) -> str:
    """Run in this process; returns the sentence after its form was checked."""
    assert command.main(arguments) == code
    captured = capsys.readouterr()
    assert "Traceback" not in captured.err
    assert SECRET not in captured.err + captured.out
    sentence = captured.err.splitlines()[-1]
    error = json.loads((out / "error.json").read_text())
    kind = {1: "failed", 2: "bad_input"}[code]
    assert error == {"nonce": "n", "kind": kind, "message": sentence}
    assert not (out / "done.json").exists()
    return sentence


def append(name: str, text: bytes) -> Callable[[Path], object]:
    def change(folder: Path) -> None:
        path = folder / name
        path.write_bytes(path.read_bytes() + text)

    return change


BAD: list[tuple[str, dict[str, Any], Callable[[Path], object], str]] = [
    ("config", {"train__num_steps": 0}, id, "num_steps = 0"),
    ("conversation", {}, append("eval.jsonl", b'{"id": "t-1"}\n'), "eval.jsonl line 7"),
    ("template", {}, append("chat.jinja", b"{% if %}"), "chat.jinja"),
    (
        "render",
        {},
        append("chat.jinja", b"{{ raise_exception(messages[0].content) }}"),
        "train.jsonl line 1",
    ),
    ("tokenizer", {}, append("tokenizer.json", b"}"), "tokenizer.json"),
    ("pad token", {"data__pad_token": "<|none|>"}, id, "pad_token"),
    ("weights", {}, append("checkpoint/model.safetensors", b"x"), "model.safetensors"),
    ("device", {"runtime__device": "cuda"}, id, "cuda"),
    ("missing", {"data__edge": ["gone.jsonl"]}, id, "gone.jsonl"),
]


@pytest.mark.parametrize(
    ("changes", "change", "names"), [one[1:] for one in BAD], ids=[one[0] for one in BAD]
)
def test_bad_input_is_code_2(
    small_run: Run,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    changes: dict[str, Any],
    change: Callable[[Path], object],
    names: str,
) -> None:
    config = small_run(**changes)
    change(tmp_path)
    out = tmp_path / "out"
    assert names in fails(capsys, leg_arguments(config, out), 2, out)


def test_an_unexpected_error_is_code_1_and_its_text_is_not_shown(
    small_run: Run,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fail(*_: object) -> None:
        raise KeyError(SECRET)

    monkeypatch.setattr(leg, "load_inputs", fail)
    out = tmp_path / "out"
    sentence = fails(capsys, leg_arguments(small_run(), out, "render"), 1, out)
    assert sentence.startswith("S-26: KeyError at leg.py:")


def test_debug_shows_the_traceback(small_run: Run, tmp_path: Path) -> None:
    config = small_run(train__num_steps=0)
    result = run_leg(*leg_arguments(config, tmp_path / "out"), env={"ORACLE_DEBUG": "1"})
    assert result.returncode == 2
    assert "Traceback" in result.stderr
    assert "num_steps = 0" in result.stderr.splitlines()[-1]


def test_a_directory_that_is_not_empty_is_refused(
    small_run: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = small_run()
    out = tmp_path / "out"
    out.mkdir()
    (out / "mine.txt").write_text("keep")
    assert "is not empty" in fails(capsys, leg_arguments(config, out), 2, out)
    (out / "error.json").unlink()
    (out / "done.json").write_text("{}")  # a trace: it is left as it is
    assert command.main(leg_arguments(config, out)) == 2
    assert sorted(one.name for one in out.iterdir()) == ["done.json", "mine.txt"]


@pytest.mark.parametrize(
    "arguments", [[], ["train"], ["train", "--config"], ["fly"], ["vectors", "--in", "x"]]
)
def test_wrong_arguments_are_one_sentence(
    capsys: pytest.CaptureFixture[str], arguments: list[str]
) -> None:
    assert command.main(arguments) == 2
    assert len(capsys.readouterr().err.splitlines()) == 1


def test_an_interrupted_start_is_code_130(
    small_run: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    stop = command._Stop()
    stop.name = "SIGTERM"
    options = command._parse(leg_arguments(small_run(), tmp_path / "out"))
    with pytest.raises(Interrupted, match="SIGTERM came before the first step"):
        command._run(options, stop)
