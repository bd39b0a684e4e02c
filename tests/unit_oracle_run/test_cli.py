"""The command line itself: help, errors, exit codes, and the smaller commands."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from oracle import cli
from oracle.contract import schema
from oracle.errors import OracleError
from tests.unit_oracle_run.command import oracle
from tests.unit_oracle_run.tiny import TinyRun, stacks_file, write_trace

ROOT = Path(__file__).resolve().parents[2]
HEAVY = ("polars", "rich", "numpy", "jsonschema", "jinja2", "pyarrow", "torch", "jax")


def invoke(*argv: str) -> Any:
    return CliRunner().invoke(cli.main, list(argv))


def test_help_imports_nothing_heavy() -> None:
    script = (
        "import sys\n"
        "from oracle.cli import main\n"
        "main(['--help'], standalone_mode=False)\n"
        f"print([name for name in {HEAVY!r} if name in sys.modules])\n"
    )
    ended = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert ended.stdout.splitlines()[-1] == "[]"


@pytest.mark.parametrize("name", sorted(cli.main.commands))
def test_every_command_has_an_example_of_itself_in_its_help(name: str) -> None:
    ended = invoke(name, "--help")
    assert ended.exit_code == 0
    assert f"oracle {name}" in ended.output.replace(f"Usage: oracle {name}", "", 1).replace(
        f"Usage: main {name}", "", 1
    )


def test_the_commands_are_those_of_the_readme() -> None:
    text = (ROOT / "README.md").read_text("utf-8")
    commands = set(cli.main.commands)
    assert commands <= set(re.findall(r"oracle ([a-z][a-z-]*)", text))
    assert set(re.findall(r"^\$ oracle ([a-z][a-z-]*)", text, re.MULTILINE)) <= commands


@pytest.mark.parametrize(
    ("error", "code", "shown"),
    [
        (OracleError("seed is -1."), 2, "oracle: seed is -1."),
        (OSError(28, "No space left on device", "runs/x"), 2, "No space left on device runs/x"),
        (KeyboardInterrupt(), 130, "oracle: stopped."),
        (ZeroDivisionError("Mrs Doe has measles"), 2, "a fault of the oracle (ZeroDivisionError"),
    ],
)
def test_every_way_to_end_is_one_sentence_and_a_code(
    monkeypatch: pytest.MonkeyPatch, error: BaseException, code: int, shown: str
) -> None:
    def fail(_: object) -> None:
        raise error

    monkeypatch.setattr("oracle.stacks.load_stacks", fail)
    ended = invoke("stacks")
    assert ended.exit_code == code
    assert shown in ended.output
    assert "Traceback" not in ended.output
    assert "measles" not in ended.output
    assert "Traceback" in invoke("--debug", "stacks").output


def test_an_unknown_option_is_a_usage_error(tiny: TinyRun) -> None:
    assert invoke("check", str(tiny.config), "--zzz").exit_code == 2


def test_check_shows_sizes_steps_and_parameters(tiny: TinyRun, tmp_path: Path) -> None:
    legs = stacks_file(tmp_path, torch="good", jax="good")
    ended = oracle("check", str(tiny.config), "--stacks-file", str(legs))
    assert ended.returncode == 0
    words = " ".join(ended.stdout.split())
    assert "5 examples" in words
    assert "2,584 parameters" in words
    assert "4 · 3 an epoch · 1.33 epochs" in words
    assert "202 tokens, 2 added, ids up to 257" in words


@pytest.mark.parametrize(
    ("stacks", "expected"),
    [
        ("torch,jex", "unknown stack 'jex'"),
        ("torch,jex", "did you mean jax?"),
        ("torch", "--stacks names 1 stacks (torch); a double run needs two"),
        ("torch,", "unknown stack ''"),
    ],
)
def test_an_unknown_stack_comes_with_the_nearest(
    tiny: TinyRun, tmp_path: Path, stacks: str, expected: str
) -> None:
    legs = stacks_file(tmp_path, torch="good", jax="good")
    ended = invoke("check", str(tiny.config), "--stacks-file", str(legs), "--stacks", stacks)
    assert ended.exit_code == 2
    assert expected in ended.output


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("[torch\n", "is not TOML"),
        ("# nothing\n", "names no stack"),
        ('torch = "python"\n', "torch is text and should be a table [torch]"),
        ('[torch]\nargv = ["x"]\n', "[torch] lacks env"),
        ("[torch]\nargv = []\nenv = {}\n", "torch.argv should be a list of one or more texts"),
        ('[torch]\nargv = ["x"]\nenv = {A = 1}\n', "torch.env should be a table of texts"),
        ('[torch]\nargv = ["x"]\nenv = {}\ncwd = "y"\n', "[torch] has unknown key 'cwd'"),
        ('["To rch"]\nargv = ["x"]\nenv = {}\n', "must be lower-case letters and digits"),
    ],
)
def test_a_malformed_stacks_file_is_refused(tmp_path: Path, text: str, expected: str) -> None:
    path = tmp_path / "stacks.toml"
    path.write_text(text)
    ended = invoke("stacks", "--stacks-file", str(path))
    assert ended.exit_code == 2
    assert expected in ended.output


def test_the_stacks_of_the_repository_are_listed() -> None:
    ended = invoke("stacks")
    assert ended.exit_code == 0
    assert [line.split()[0] for line in ended.output.splitlines()] == ["torch", "jax"]
    assert sys.executable in ended.output  # {python} is filled in


def test_validate_trace_counts_or_refuses(tiny: TinyRun, tmp_path: Path) -> None:
    trace = write_trace(tiny, tmp_path / "trace")
    ended = oracle("validate-trace", str(trace))
    assert ended.returncode == 0
    assert "is a valid train trace of one: 4 steps, 5 train, 1 eval, 1 edge" in ended.stdout
    (trace / "done.json").unlink()
    assert invoke("validate-trace", str(trace)).exit_code == 2


def test_the_example_of_a_third_stack_writes_a_valid_trace_that_learns(
    tiny: TinyRun, tmp_path: Path
) -> None:
    out = tmp_path / "trace"
    example = ROOT / "examples" / "third_stack"
    options = ["--config", str(tiny.config), "--root", str(tiny.folder), "--out", str(out)]
    tiny.set("train.num_steps", 30)
    tiny.set("optimizer.learning_rate", 0.1)
    subprocess.run(
        [sys.executable, str(example / "bigram.py"), "train", *options, "--nonce", "n"], check=True
    )
    ended = invoke("validate-trace", str(out), "--nonce", "n")
    assert ended.exit_code == 0, ended.output
    steps = [json.loads(line) for line in (out / "steps.jsonl").read_text().splitlines()]
    assert steps[0]["loss"] == pytest.approx(5.545177444479562)  # ln 256: it knows nothing yet
    assert steps[-1]["loss"] < 0.5 * steps[0]["loss"]


def test_the_example_of_a_third_stack_agrees_with_itself_in_every_channel(
    tiny: TinyRun, tmp_path: Path
) -> None:
    tiny.set("trace.tensors_every", 3)
    legs = ROOT / "examples" / "third_stack" / "stacks.toml"
    options = ("--stacks", "bigram,bigram", "--stacks-file", str(legs), "--out", str(tmp_path))
    ended = oracle("run", str(tiny.config), *options, "--json")
    assert ended.returncode == 0, ended.stdout
    phases = {phase["phase"]: phase for phase in json.loads(ended.stdout)["phases"]}
    assert phases["moments"]["num_compared"] == 2 * 2  # m and v at steps 0 and 3


def test_the_example_trainer_is_as_short_as_the_readme_says() -> None:
    text = (ROOT / "examples" / "third_stack" / "bigram.py").read_text()
    assert len(text.splitlines()) < 50


def vectors_folder(path: Path, **fields: Any) -> Path:
    case = {"name": "one", "kind": "schedule", "input": {}, "expected": {"lr": [1.0]}, "rtol": 1e-9}
    refused = {"name": "two", "kind": "schedule", "input": {}, "expected": {"error": True}}
    document = {"clause": "S-17", "provenance": "hand", "cases": [case | fields, refused]}
    path.mkdir()
    (path / "S-17.json").write_text(json.dumps(document))
    return path


@pytest.mark.parametrize(
    ("behaviour", "code", "expected"),
    [
        ("good", 0, "S-17  pass  2 of 2 cases"),
        ("nan", 1, "output.lr[0] is 99.0 and should be 1.0 (rtol 1e-09)"),
        ("crash", 1, "S-17  FAIL  stack mine exited with code 1 on S-17.json: no such clause"),
    ],
)
def test_vectors_tells_each_clause_of_a_stack(
    tmp_path: Path, behaviour: str, code: int, expected: str
) -> None:
    legs = stacks_file(tmp_path, mine=behaviour)
    folder = vectors_folder(tmp_path / "vectors")
    ended = invoke("vectors", "mine", "--stacks-file", str(legs), "--vectors", str(folder))
    assert ended.exit_code == code
    assert expected in ended.output


def test_vectors_of_a_clause_that_is_not_there_are_refused(tmp_path: Path) -> None:
    legs = stacks_file(tmp_path, mine="good")
    folder = vectors_folder(tmp_path / "vectors")
    argv = ("vectors", "mine", "--stacks-file", str(legs), "--vectors", str(folder))
    assert "holds no vectors of S-99" in invoke(*argv, "--clause", "S-99").output
    assert invoke(*argv, "--clause", "S-99").exit_code == 2


def test_every_field_of_a_table_is_in_the_documentation_of_the_format() -> None:
    text = (ROOT / "docs" / "trace-format.md").read_text()
    definitions = schema("trace")["$defs"]
    for name in ("step", "token_row", "tensor_row"):
        assert [f for f in definitions[name]["properties"] if f"`{f}`" not in text] == []
