"""Calibration end to end with a fake stack, and weights moved by one unit in the last place."""

from __future__ import annotations

import json
import sys
import tomllib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tomli_w
from safetensors.numpy import load_file, save_file

from oracle.calibrate import calibrate
from oracle.config import load_config
from oracle.contract import ROOT
from oracle.errors import LegError
from oracle.floor import read_floor
from oracle.perturb import move_weights, write_variants
from oracle.stacks import Stack

FAKE = Path(__file__).with_name("fake_stack.py")
DEMO = ROOT / "configs" / "runs" / "clinical-demo.toml"


def fake(name: str, **env: str) -> Stack:
    return Stack(
        name=name,
        argv=(sys.executable, str(FAKE)),
        env={"PYTHONPATH": str(ROOT), "FAKE_STACK": name, **env},
        root=ROOT,
    )


@pytest.fixture
def config(tmp_path: Path) -> Path:
    """A config of eight steps beside a checkpoint of two tensors."""
    values = tomllib.loads(DEMO.read_text())
    folder = tmp_path / "checkpoint"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps({"tie_word_embeddings": True}))
    weights = {
        "model.embed_tokens.weight": np.array([[1.0, -0.5], [0.0, 3e-5]], dtype=np.float32),
        "lm_head.weight": np.zeros((2, 2), dtype=np.float32),
        "model.norm.weight": np.array([1.0, 2.0], dtype=np.float32),
    }
    save_file(weights, folder / "model.safetensors")
    values["model"]["checkpoint"] = "checkpoint"
    values["train"]["num_steps"], values["schedule"]["warmup_steps"] = 8, 2
    path = tmp_path / "run.toml"
    path.write_text(tomli_w.dumps(values))
    return path


def test_a_floor_is_the_running_maximum_over_legs_and_variants(
    config: Path, tmp_path: Path
) -> None:
    lines: list[str] = []
    path = calibrate(
        config, stacks=[fake("torch"), fake("jax")], out=tmp_path / "runs", on_progress=lines.append
    )
    assert path.parent == tmp_path / "runs" / "floors"
    floor = read_floor(path)
    steps = np.arange(8)
    # The weights part most: 3e-15 relative at step 1, times the step after that.
    assert floor.at("steps.loss", steps) == pytest.approx(3e-15 * steps, abs=2.3e-16)
    assert floor.at("steps.grad_norm", steps).tolist() == [0.0] * 8
    assert floor.at("tensors.grad", steps).tolist() == [0.0] * 8
    assert floor.provenance["config_sha256"] == load_config(config).sha256
    assert set(floor.provenance["legs"]) == {"torch", "jax"}
    assert floor.provenance["repeats_exactly"] == {"torch": True, "jax": True}
    worst = json.loads(path.read_text())["contributions"]["jax"]
    by_variant = [worst[v]["steps.loss"] for v in ("repeat", "threads", "attention", "weights")]
    assert by_variant == pytest.approx([0.0, 7e-15, 14e-15, 21e-15], abs=2.3e-16)
    assert lines[0] == "calibrate 1/5: base"
    assert not any("warning" in line for line in lines)
    assert list((tmp_path / "runs").iterdir()) == [path.parent], "no trace is left behind"


def test_a_repeat_that_is_not_bit_identical_is_said_aloud(config: Path, tmp_path: Path) -> None:
    lines: list[str] = []
    path = calibrate(
        config,
        stacks=[fake("torch", FAKE_DRIFTS="1")],
        out=tmp_path / "runs",
        on_progress=lines.append,
    )
    assert any("torch does not repeat bit for bit" in line for line in lines)
    assert read_floor(path).provenance["repeats_exactly"] == {"torch": False}


def test_a_leg_that_fails_ends_the_calibration(config: Path, tmp_path: Path) -> None:
    with pytest.raises(LegError, match="variant attention: torch"):
        calibrate(
            config,
            stacks=[fake("torch", FAKE_FAILS="fused")],
            out=tmp_path / "runs",
            on_progress=lambda line: None,
        )
    assert not list((tmp_path / "runs").glob(".calibrate-*"))


def test_variants_differ_from_the_base_in_one_field_each(config: Path, tmp_path: Path) -> None:
    folder = tmp_path / "variants"
    folder.mkdir()
    paths = write_variants(load_config(config), folder)
    values = {name: tomllib.loads(path.read_text()) for name, path in paths.items()}
    base = values["base"]
    assert values["repeat"] == base
    assert differing(base, values["threads"]) == {("runtime", "threads"): 2}
    assert differing(base, values["attention"]) == {("model", "attention"): "fused"}
    assert set(differing(base, values["weights"])) == {("model", "checkpoint")}
    assert Path(base["data"]["template"]).is_absolute()
    assert base["snapshot"]["every_steps"] == 0


def differing(base: Any, other: Any) -> dict[tuple[str, str], Any]:
    return {
        (table, key): value
        for table, entries in other.items()
        if isinstance(entries, dict)
        for key, value in entries.items()
        if base[table][key] != value
    }


@pytest.mark.parametrize(("precision", "dtype"), [("float64", np.float64), ("float32", np.float32)])
def test_weights_move_by_exactly_one_unit_and_zeros_stay(
    config: Path, tmp_path: Path, precision: str, dtype: Any
) -> None:
    source = tmp_path / "checkpoint"
    move_weights(source, tmp_path / "moved", precision=precision)
    before = load_file(source / "model.safetensors")
    after = load_file(tmp_path / "moved" / "model.safetensors")
    assert set(after) == {"model.embed_tokens.weight", "model.norm.weight"}, "the tied head is left"
    for name, values in after.items():
        held = before[name].astype(dtype)
        assert values.dtype == dtype
        up, down = np.nextafter(held, dtype(np.inf)), np.nextafter(held, dtype(-np.inf))
        assert ((values == up) | (values == down) | (held == 0)).all()
        assert (values[held == 0] == 0).all()
        assert (values != held).sum() == (held != 0).sum()


def test_bfloat16_weights_are_widened_exactly(tmp_path: Path) -> None:
    source = tmp_path / "bf16"
    source.mkdir()
    (source / "config.json").write_text('{"tie_word_embeddings": false}')
    header = b'{"w":{"dtype":"BF16","shape":[2],"data_offsets":[0,4]}}'
    raw = np.array([0x3F80, 0xC040], dtype="<u2").tobytes()  # 1 and -3
    (source / "model.safetensors").write_bytes(len(header).to_bytes(8, "little") + header + raw)
    move_weights(source, tmp_path / "moved", precision="float64")
    moved = load_file(tmp_path / "moved" / "model.safetensors")["w"]
    assert moved == pytest.approx([1.0, -3.0], rel=3e-16)
    assert (moved != [1.0, -3.0]).all()
