"""Run configs: each bad one is refused with file, line, both values and what to do."""

from __future__ import annotations

import hashlib
import math
import re
from pathlib import Path

import pytest

from oracle.config import load_config
from oracle.errors import ConfigError
from tests.unit_oracle_run.tiny import TinyRun


def refusal(path: Path) -> str:
    with pytest.raises(ConfigError) as caught:
        load_config(path)
    sentence = str(caught.value)
    assert "\n" not in sentence
    return sentence


def test_a_config_keeps_its_bytes_hash_and_root(tiny: TinyRun) -> None:
    config = load_config(tiny.config)
    content = tiny.config.read_bytes()
    assert config.content == content
    assert config.sha256 == hashlib.sha256(content).hexdigest()
    assert config.root == tiny.folder
    assert config.num_steps == 4
    assert config.precision == "float64"
    assert config.file("chat.jinja") == tiny.folder / "chat.jinja"


def test_another_root_moves_every_path(tiny: TinyRun, tmp_path: Path) -> None:
    assert load_config(tiny.config, root=tmp_path).file("x") == tmp_path / "x"


@pytest.mark.parametrize(
    ("dotted", "value", "expected"),
    [
        (
            "optimizer.learning_rate",
            "1e-4",
            'learning_rate is text ("1e-4") and should be a number; write it without quotes: 1e-4',
        ),
        ("train.num_steps", "ten", 'train.num_steps is text ("ten") and should be an integer.'),
        ("train.micro_batch_size", 0, "train.micro_batch_size is 0 and should be at least 1"),
        ("train.num_steps", 4.0, "train.num_steps is a number (4.0) and should be an integer"),
        ("train.num_steps", True, "train.num_steps is a boolean (true) and should be an integer"),
        ("seed", -1, "seed is -1 and should be at least 0"),
        ("seed", 2**63, f"seed is {2**63} and does not fit in 64 bits"),
        ("optimizer.beta1", 1.0, "optimizer.beta1 is 1.0 and should be less than 1"),
        ("optimizer.epsilon", 0.0, "optimizer.epsilon is 0.0 and should be more than 0"),
        ("optimizer.epsilon", math.nan, "optimizer.epsilon is nan and should be a finite number"),
        ("optimizer.learning_rate", math.inf, "is inf and should be a finite number"),
        ("optimizer.clip_norm", 0, 'clip_norm is 0 and should be a number above 0 or "off"'),
        ("optimizer.clip_norm", "on", 'is text ("on") and should be a number above 0 or "off"'),
        ("schedule.min_ratio", 1.5, "schedule.min_ratio is 1.5 and should be at most 1"),
        ("train.precision", "float16", 'is "float16" and should be one of "float64", "float32", '),
        ("data.train", "train.jsonl", 'data.train is text ("train.jsonl") and should be a list'),
        ("data.train", [], "data.train has 0 entries or characters and should have at least 1"),
        ("contract", "2", 'contract is "2" and should be "1"; this oracle knows contract 1'),
        ("name", "My Run", 'name is "My Run" and should match'),
        (
            "schedule.warmup_steps",
            4,
            "schedule.warmup_steps is 4 and train.num_steps is 4; the warm-up must be shorter",
        ),
    ],
)
def test_an_impossible_value_is_shown_with_what_should_be_there(
    tiny: TinyRun, dotted: str, value: object, expected: str
) -> None:
    tiny.set(dotted, value)
    sentence = refusal(tiny.config)
    assert expected in sentence
    key = dotted.rpartition(".")[2]
    line = int(re.match(rf"{re.escape(str(tiny.config))}:(\d+)", sentence)[1])  # type: ignore[index]
    assert tiny.config.read_text().splitlines()[line - 1].startswith(key)


@pytest.mark.parametrize(
    ("table", "key", "expected"),
    [
        ("optimizer", "learning_rat", "did you mean optimizer.learning_rate?"),
        ("optimizer", "lr", "did you mean optimizer.learning_rate?"),
        ("data", "num_steps", "it belongs in [train]"),
        ("eval", "zzz", "known are every_steps, num_examples"),
        ("", "sead", "did you mean seed?"),
    ],
)
def test_an_unknown_key_comes_with_the_nearest(
    tiny: TinyRun, table: str, key: str, expected: str
) -> None:
    tiny.set(f"{table}.{key}" if table else key, 1)
    sentence = refusal(tiny.config)
    assert f"unknown key {table + '.' if table else ''}{key}" in sentence
    assert expected in sentence


def test_a_missing_key_is_named(tiny: TinyRun) -> None:
    del tiny.values["train"]["precision"]
    tiny.write()
    assert "lacks train.precision; every key is required" in refusal(tiny.config)


def test_a_missing_table_is_named(tiny: TinyRun) -> None:
    del tiny.values["runtime"]
    tiny.write()
    assert "lacks runtime" in refusal(tiny.config)


def test_several_faults_are_counted(tiny: TinyRun) -> None:
    tiny.set("seed", -1)
    tiny.set("name", "")
    assert "(fault 1 of 2 in this file)" in refusal(tiny.config)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("seed = \n", ":1 is not TOML: Invalid value, or text without quotes"),
        ("seed = 1\nseed = 2\n", ":2 is not TOML: Cannot overwrite a value"),
        ("[data\n", ":1 is not TOML"),
        ("[data]\ntrain = [", "is not TOML"),
        ("", "is empty (0 bytes)"),
    ],
)
def test_malformed_toml_is_refused_with_its_line(tiny: TinyRun, text: str, expected: str) -> None:
    tiny.config.write_text(text)
    assert expected in refusal(tiny.config)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("1" + "0" * 5000, " holds a number or date that cannot be read."),
        ("1" + "0" * 400, "seed is an integer of about 400 digits and does not fit in 64 bits"),
        ("0x" + "f" * 9000, "seed is an integer of about 10837 digits and does not fit in 64 bits"),
        ("[0x" + "f" * 9000 + "]", " holds an integer that does not fit in 64 bits"),
        ("[" * 900, " holds lists or tables that are nested too deep."),
        ("2020-01-01", 'seed is a date ("2020-01-01") and should be an integer'),
        ("2020-01-01T00:00:00Z", "seed is a date and time ("),
        ("07:32:00", 'seed is a time ("07:32:00") and should be an integer'),
        ('"' + "x" * 5000 + '"', "xxx… (4882 characters more)) and should be an integer"),
    ],
)
def test_a_value_that_toml_takes_and_no_run_can_use_is_one_short_sentence(
    tiny: TinyRun, value: str, expected: str
) -> None:
    text = tiny.config.read_text().replace("seed = 3", f"seed = {value}")
    tiny.config.write_text(text)
    sentence = refusal(tiny.config)
    assert sentence.startswith(str(tiny.config))
    assert expected in sentence
    assert len(sentence) < len(str(tiny.config)) + 300


def test_a_rate_of_400_digits_is_refused_and_not_printed(tiny: TinyRun) -> None:
    tiny.set("optimizer.learning_rate", 10**400)
    assert "learning_rate is an integer of about 400 digits" in refusal(tiny.config)


def test_a_name_that_ends_with_a_line_end_is_refused(tiny: TinyRun) -> None:
    tiny.set("name", "tiny\n")
    assert 'name is "tiny\\n" and should match' in refusal(tiny.config)


def test_toml_that_is_not_utf8_is_refused(tiny: TinyRun) -> None:
    tiny.config.write_bytes(b'name = "\xff"\n')
    assert "is not UTF-8 (byte 8)" in refusal(tiny.config)


def test_a_missing_config_names_the_last_folder_that_exists(tmp_path: Path) -> None:
    assert f"does not exist (nothing below {tmp_path})" in refusal(tmp_path / "a" / "b.toml")


def test_a_folder_is_no_config(tmp_path: Path) -> None:
    assert "is a directory; a file is needed" in refusal(tmp_path)
