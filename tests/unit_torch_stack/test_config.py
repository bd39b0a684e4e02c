"""The run config is strict: every key, exact types, stated bounds (S-01)."""

import hashlib
import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from stacks.torch_stack.config import load_config
from stacks.torch_stack.errors import BadInput

from .conftest import CONFIG, ROOT, Run

SCHEMA = json.loads((ROOT / "configs/contract/run.schema.json").read_text())


def test_values_are_those_of_the_document(small_run: Run) -> None:
    path = small_run(optimizer__learning_rate=1, optimizer__clip_norm="off")
    config = load_config(path, path.parent)
    assert config.optimizer.learning_rate == 1.0
    assert config.optimizer.clip_norm == "off"
    assert config.data.train == ("train.jsonl",)
    assert config.resolve("x/y") == path.parent / "x/y"
    assert config.sha256 == hashlib.sha256(path.read_bytes()).hexdigest()


def test_every_committed_run_is_accepted() -> None:
    paths = sorted((ROOT / "configs/runs").glob("*.toml"))
    assert paths
    for path in paths:
        assert load_config(path, path.parent).name == path.stem


@pytest.mark.parametrize(("table", "key"), [(t, k) for t, keys in CONFIG.items() for k in keys])
def test_a_missing_key_is_named(small_run: Run, table: str, key: str) -> None:
    path = small_run()
    value = json.dumps(CONFIG[table][key])
    line = f"{key} = {value}\n"
    source = path.read_text()
    start = source.index(line, source.index(f"[{table}]"))
    path.write_text(source[:start] + source[start + len(line) :])
    with pytest.raises(BadInput, match=rf"\[{table}\] lacks the key '{key}'"):
        load_config(path, path.parent)


@pytest.mark.parametrize("table", CONFIG)
def test_an_unknown_key_is_named(small_run: Run, table: str) -> None:
    path = small_run(**{f"{table}__more": 1})
    with pytest.raises(BadInput, match=rf"\[{table}\] has the unknown key 'more'"):
        load_config(path, path.parent)


WRONG: list[tuple[str, Any]] = [
    ("optimizer__learning_rate", "1e-4"),
    ("optimizer__learning_rate", True),
    ("optimizer__learning_rate", -1e-9),
    ("optimizer__beta1", 1),
    ("optimizer__beta2", -0.1),
    ("optimizer__epsilon", 0),
    ("optimizer__weight_decay", -1),
    ("optimizer__clip_norm", 0),
    ("optimizer__clip_norm", "on"),
    ("optimizer__frozen", [""]),
    ("optimizer__decay", "some"),
    ("schedule__min_ratio", 1.01),
    ("schedule__warmup_steps", -1),
    ("data__train", []),
    ("data__max_length", 1),
    ("data__pad_multiple", 0),
    ("data__pad_token", ""),
    ("data__packing", 0),
    ("data__mask", "All"),
    ("train__num_steps", 0),
    ("train__precision", "float16"),
    ("runtime__threads", 0),
    ("runtime__device", "tpu"),
    ("model__attention", "flash"),
]


@pytest.mark.parametrize(("key", "value"), WRONG)
def test_a_wrong_value_is_refused_as_the_schema_refuses_it(
    small_run: Run, key: str, value: Any
) -> None:
    table, _, name = key.partition("__")
    path = small_run(**{key: value})
    with pytest.raises(BadInput, match=name):
        load_config(path, path.parent)
    tables = {t: dict(keys) for t, keys in CONFIG.items()}
    tables[table][name] = value
    document = {"contract": "1", "name": "small", "seed": 5, **tables}
    assert not jsonschema.Draft202012Validator(SCHEMA).is_valid(document)


def test_a_config_without_a_trajectory_is_free(small_run: Run) -> None:
    path = small_run()
    assert vars(load_config(path, path.parent).trajectory) == {"mode": "free", "anchor_every": 0}
    path = small_run(trajectory__mode="free", trajectory__anchor_every=0)
    assert load_config(path, path.parent).trajectory.mode == "free"
    path = small_run(trajectory__mode="anchored", trajectory__anchor_every=3)
    assert load_config(path, path.parent).trajectory.anchor_every == 3


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ({"mode": "anchored", "anchor_every": 0}, "'anchored' and trajectory.anchor_every = 0"),
        ({"mode": "free", "anchor_every": 2}, "'free' and trajectory.anchor_every = 2"),
        ({"mode": "tied", "anchor_every": 2}, "mode = 'tied'"),
        ({"mode": "anchored"}, "lacks the key 'anchor_every'"),
        ({"mode": "anchored", "anchor_every": 2.0}, "anchor_every = 2.0"),
        ({"mode": "free", "anchor_every": 0, "more": 1}, "unknown key 'more'"),
    ],
)
def test_a_wrong_trajectory_is_refused_as_the_schema_refuses_it(
    small_run: Run, table: dict[str, Any], message: str
) -> None:
    path = small_run(**{f"trajectory__{key}": value for key, value in table.items()})
    with pytest.raises(BadInput, match=message):
        load_config(path, path.parent)
    document = {"contract": "1", "name": "small", "seed": 5, **CONFIG, "trajectory": table}
    is_valid = jsonschema.Draft202012Validator(SCHEMA).is_valid(document)
    assert is_valid == isinstance(table.get("anchor_every"), float)  # 2.0 is an integer there


@pytest.mark.parametrize("value", [2**63, 10**400, 3.0])
def test_an_integer_is_one_of_64_bits(small_run: Run, value: float) -> None:
    path = small_run(eval__num_examples=value)
    with pytest.raises(BadInput, match="num_examples"):
        load_config(path, path.parent)


@pytest.mark.parametrize("text", ["nan", "inf", "1" + "0" * 400])
def test_a_number_is_finite(small_run: Run, text: str) -> None:
    path = small_run()
    path.write_text(path.read_text().replace("learning_rate = 0.01", f"learning_rate = {text}"))
    with pytest.raises(BadInput, match="learning_rate"):
        load_config(path, path.parent)


@pytest.mark.parametrize("name", ["Small", "-x", "a" * 65, "a\\n"])
def test_a_name_is_short_and_plain(small_run: Run, name: str) -> None:
    path = small_run()
    path.write_text(path.read_text().replace('name = "small"', f'name = "{name}"'))
    with pytest.raises(BadInput, match="name"):
        load_config(path, path.parent)


def test_warm_up_is_shorter_than_the_run(small_run: Run) -> None:
    path = small_run(schedule__warmup_steps=7)
    with pytest.raises(BadInput, match=r"warmup_steps = 7 is not below train.num_steps = 7"):
        load_config(path, path.parent)


def test_another_contract_is_refused(small_run: Run) -> None:
    path = small_run()
    path.write_text(path.read_text().replace('contract = "1"', 'contract = "2"'))
    with pytest.raises(BadInput, match="'2'"):
        load_config(path, path.parent)


def test_no_toml_and_no_file_are_bad_input(tmp_path: Path) -> None:
    path = tmp_path / "x.toml"
    with pytest.raises(BadInput, match="cannot be read"):
        load_config(path, tmp_path)
    path.write_bytes(b"name = \xff")
    with pytest.raises(BadInput, match="not a TOML document"):
        load_config(path, tmp_path)
    path.write_text("seed = " + "1" * 5_000)
    with pytest.raises(BadInput, match="not a TOML document"):
        load_config(path, tmp_path)
    path.write_text("seed = 1\nseed = 2\n")
    with pytest.raises(BadInput, match="not a TOML document"):
        load_config(path, tmp_path)
