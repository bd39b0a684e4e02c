from pathlib import Path

import pytest

from stacks.jax_stack.config import LoadedConfig, load_config
from stacks.jax_stack.errors import BadInput

from .conftest import config_text


def load(tmp_path: Path, text: str) -> LoadedConfig:
    path = tmp_path / "run.toml"
    path.write_text(text)
    return load_config(path, tmp_path)


def test_every_field_arrives(tmp_path: Path) -> None:
    run = load(tmp_path, config_text()).run
    assert (run.name, run.seed, run.data.max_length) == ("tiny", 3, 40)
    assert run.data.train == ("train.jsonl",)
    assert run.optimizer.frozen == ()
    assert run.runtime.compile is False


def test_an_integer_is_a_number_and_becomes_a_float(tmp_path: Path) -> None:
    rate = load(tmp_path, config_text(optimizer_learning_rate="1")).run.optimizer.learning_rate
    assert rate == 1.0
    assert isinstance(rate, float)


def test_clip_norm_is_a_number_or_off(tmp_path: Path) -> None:
    assert load(tmp_path, config_text(optimizer_clip_norm='"off"')).run.optimizer.clip_norm == "off"
    assert load(tmp_path, config_text(optimizer_clip_norm="2")).run.optimizer.clip_norm == 2.0


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"optimizer_learning_rate": '"1e-4"'}, "`optimizer.learning_rate` must be a number"),
        ({"optimizer_clip_norm": '"none"'}, "`optimizer.clip_norm` must be"),
        ({"optimizer_clip_norm": "0"}, "above 0"),
        ({"optimizer_beta2": "1.0"}, "below 1"),
        ({"optimizer_epsilon": "nan"}, "a finite number"),
        ({"seed": "-1"}, "`seed` must be at least 0"),
        ({"seed": "3.0"}, "`seed` must be an integer"),
        ({"seed": str(2**63)}, "64 bits"),
        ({"seed": "1" * 5000}, "TOML"),
        ({"optimizer_weight_decay": "1e999"}, "a finite number"),
        ({"seed": "true"}, "`seed` must be an integer"),
        ({"runtime_compile": "1"}, "`runtime.compile` must be true or false"),
        ({"name": '"Tiny"'}, "`name` must be a string that matches"),
        ({"data_train": "[]"}, "at least one path"),
        ({"data_train": '[""]'}, "`data.train[0]` must be not empty"),
        ({"data_mask": '"user"'}, '`data.mask` must be "assistant" or "all"'),
        ({"data_max_length": "1"}, "at least 2"),
        ({"data_pad_multiple": "0"}, "at least 1"),
        ({"schedule_warmup_steps": "6"}, "6 is not below 6"),
        ({"train_extra": "1"}, "`train.extra` is not a key"),
        ({"contract": '"2"'}, '`contract` must be "1"'),
    ],
)
def test_a_broken_field_is_named(tmp_path: Path, changes: dict[str, str], words: str) -> None:
    with pytest.raises(BadInput) as refusal:
        load(tmp_path, config_text(**changes))
    assert words in str(refusal.value)


def test_a_missing_key_is_named(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"`snapshot.every_steps` is required"):
        load(tmp_path, config_text().replace("[snapshot]\nevery_steps = 2\n", "[snapshot]\n"))


def test_what_is_not_toml_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="TOML"):
        load(tmp_path, "a = \n")
    with pytest.raises(BadInput, match="cannot be read"):
        load_config(tmp_path / "absent.toml", tmp_path)


TRAJECTORY = "\n[trajectory]\nmode = {}\nanchor_every = {}\n"


def test_a_run_without_a_trajectory_is_free(tmp_path: Path) -> None:
    trajectory = load(tmp_path, config_text()).run.trajectory
    assert (trajectory.mode, trajectory.anchor_every) == ("free", 0)
    anchored = load(tmp_path, config_text() + TRAJECTORY.format('"anchored"', 3)).run.trajectory
    assert (anchored.mode, anchored.anchor_every) == ("anchored", 3)


@pytest.mark.parametrize(
    ("table", "words"),
    [
        (TRAJECTORY.format('"anchored"', 0), "0 exactly when trajectory.mode is free"),
        (TRAJECTORY.format('"free"', 2), "0 exactly when trajectory.mode is free"),
        (TRAJECTORY.format('"led"', 2), "`trajectory.mode` must be"),
        (TRAJECTORY.format('"anchored"', -1), "`trajectory.anchor_every` must be at least 0"),
        ('\n[trajectory]\nmode = "free"\n', "`trajectory.anchor_every` is required"),
        (TRAJECTORY.format('"free"', 0) + "leader = 1\n", "`trajectory.leader` is not a key"),
    ],
)
def test_a_trajectory_that_breaks_the_schema_is_refused(
    tmp_path: Path, table: str, words: str
) -> None:
    with pytest.raises(BadInput, match=words):
        load(tmp_path, config_text() + table)


@pytest.mark.parametrize("name", ["bfloat16", "bfloat16_pure"])
def test_the_narrow_precisions_are_read(tmp_path: Path, name: str) -> None:
    assert load(tmp_path, config_text(train_precision=f'"{name}"')).run.train.precision == name
