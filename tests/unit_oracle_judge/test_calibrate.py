"""Calibration end to end with a fake stack, and weights moved by one unit in the last place."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import stat
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tomli_w
from safetensors.numpy import load_file, save_file

from oracle import perturb
from oracle.calibrate import calibrate, chosen
from oracle.config import load_config
from oracle.contract import ROOT
from oracle.errors import ConfigError, DataError, LegError, OracleError
from oracle.floor import read_floor
from oracle.leg import running_process
from oracle.perturb import move_weights, write_variants
from oracle.progress import OnProgress
from oracle.scratch import scratch_folder
from oracle.stacks import Stack
from oracle.variant import no_view, run_variant, variant_legs

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
    by_variant = [worst[v]["steps.loss"] for v in ("repeat", "threads", "attention", "ulp")]
    assert by_variant == pytest.approx([0.0, 7e-15, 14e-15, 21e-15], abs=2.3e-16)
    assert lines[0] == "calibrate 1/5: base"
    assert not any("warning" in line for line in lines)
    assert list((tmp_path / "runs").rglob("*")) == [path.parent, path], "no trace is left behind"


def test_a_repeat_that_is_not_bit_identical_is_said_aloud(config: Path, tmp_path: Path) -> None:
    lines: list[str] = []
    path = calibrate(
        config,
        stacks=[fake("torch", FAKE_DRIFTS="1")],
        out=tmp_path / "runs",
        on_progress=lines.append,
        variants=("repeat",),
    )
    assert any("torch does not repeat bit for bit" in line for line in lines)
    assert read_floor(path).provenance["repeats_exactly"] == {"torch": False}


@pytest.fixture
def breakable(tmp_path: Path) -> Breakable:
    """Two stacks whose variant `attention` fails while `broken` is there, and a log of starts."""
    broken, log = tmp_path / "broken", tmp_path / "log"
    env = {"FAKE_BROKEN": str(broken), "FAKE_LOG": str(log)}
    return Breakable(broken, log, [fake("torch", **env), fake("jax", **env)], tmp_path / "runs")


@dataclass(frozen=True)
class Breakable:
    broken: Path
    log: Path
    stacks: list[Stack]
    out: Path

    def calibrate(
        self, config: Path, variants: tuple[str, ...] = ("attention",), **options: Any
    ) -> Path:
        return calibrate(
            config,
            stacks=self.stacks,
            out=self.out,
            on_progress=lambda line: None,
            variants=variants,
            **options,
        )

    def starts(self) -> set[str]:
        return set(self.log.read_text().splitlines())

    def scratch(self) -> list[Path]:
        return list((self.out / "floors").glob(".calibrate-*"))


def test_a_calibration_that_broke_off_goes_on_and_measures_the_same(
    config: Path, breakable: Breakable
) -> None:
    variants = ("attention", "ulp")
    whole = json.loads(breakable.calibrate(config, variants).read_text())
    breakable.log.unlink()
    breakable.broken.write_text("1")
    with pytest.raises(LegError, match="variant attention: .* the same command goes on"):
        breakable.calibrate(config, variants)
    assert {"base torch", "base jax"} < breakable.starts()  # and the leg that failed
    assert not any(start.startswith("ulp") for start in breakable.starts())
    [folder] = breakable.scratch()
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    breakable.broken.unlink()
    breakable.log.unlink()
    again = json.loads(breakable.calibrate(config, variants).read_text())
    # The leg that failed goes on; the other was stopped for it, perhaps before its first file.
    assert {start.removesuffix(" resumed") for start in breakable.starts()} == {
        "attention torch", "attention jax", "ulp torch", "ulp jax",
    }  # fmt: skip
    assert any(start.endswith(" resumed") for start in breakable.starts())
    for key in ("stacks", "contributions", "num_steps"):
        assert again[key] == whole[key]
    assert not breakable.scratch(), "nothing is left behind"


def test_the_legs_of_a_finished_run_serve_as_the_base_and_are_not_run_again(
    config: Path, breakable: Breakable, tmp_path: Path
) -> None:
    # A trace may name its stack otherwise than the stacks file does.
    log = str(breakable.log)
    stacks = [fake(n, FAKE_STACK=f"{n}_stack", FAKE_LOG=log) for n in ("torch", "jax")]
    breakable = replace(breakable, stacks=stacks)
    whole = json.loads(breakable.calibrate(config, ("ulp",)).read_text())
    (tmp_path / "run").mkdir()
    legs = [
        replace(leg, config=config)
        for leg in variant_legs("finished", breakable.stacks, tmp_path / "run")
    ]
    traces = run_variant("finished", legs, limits=None, view=no_view)
    bases = {name: traces[f"{name}_stack"] for name in ("torch", "jax")}
    breakable.log.unlink()
    again = json.loads(breakable.calibrate(config, ("ulp",), bases=bases).read_text())
    assert breakable.starts() == {"ulp torch_stack", "ulp jax_stack"}
    for key in ("stacks", "contributions", "num_steps"):
        assert again[key] == whole[key]
    with pytest.raises(ConfigError, match="has the stacks jax and not torch"):
        breakable.calibrate(config, ("ulp",), bases={"jax": bases["jax"]})
    config.write_text(config.read_text() + "\n")
    with pytest.raises(ConfigError, match="give a run of this config as the base"):
        breakable.calibrate(config, ("ulp",), bases=bases)


def test_a_full_disk_is_told_with_the_weights_that_it_had_no_room_for(
    config: Path, breakable: Breakable, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full_disk(*_: Any) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(perturb, "_write_safetensors", full_disk)
    with pytest.raises(OSError, match=r"No space left on device: .*/moved-weights"):
        breakable.calibrate(config, ("ulp",))
    assert not breakable.log.exists(), "no leg was started"
    monkeypatch.undo()
    breakable.calibrate(config, ("ulp",))


def test_input_that_a_leg_refuses_leaves_nothing_to_go_on_from(
    config: Path, breakable: Breakable
) -> None:
    breakable.broken.write_text("2")
    with pytest.raises(DataError, match="variant attention"):
        breakable.calibrate(config)
    assert not breakable.scratch()


def test_what_another_state_of_the_files_left_is_taken_away(
    config: Path, breakable: Breakable, tmp_path: Path
) -> None:
    breakable.broken.write_text("1")
    with pytest.raises(LegError):
        breakable.calibrate(config)
    [before] = breakable.scratch()
    model = tmp_path / "checkpoint" / "config.json"
    model.write_text(model.read_text() + "\n")
    with pytest.raises(LegError):
        breakable.calibrate(config)
    [after] = breakable.scratch()
    assert after != before


def test_a_change_of_code_makes_another_folder(config: Path, tmp_path: Path) -> None:
    package = tmp_path / "mine" / "trainer"
    package.mkdir(parents=True)
    (package / "train.py").write_text("pass")
    stack = Stack(name="s", argv=("python", "-m", "mine.trainer"), env={}, root=tmp_path)
    names = []
    for _ in range(2):
        with scratch_folder(load_config(config), [stack], tmp_path / "floors") as folder:
            names.append(folder.name)
        (package / "train.py").write_text("...")
    assert names[0] != names[1]
    assert names[0].rpartition("-")[0] == names[1].rpartition("-")[0]


def test_two_calibrations_of_a_config_at_once_are_refused(
    config: Path, breakable: Breakable
) -> None:
    with (
        scratch_folder(load_config(config), breakable.stacks, breakable.out / "floors"),
        pytest.raises(OracleError, match="is going on in"),
    ):
        breakable.calibrate(config)


def test_a_leg_that_outlived_its_calibration_is_named(config: Path, breakable: Breakable) -> None:
    breakable.broken.write_text("1")
    with pytest.raises(LegError):
        breakable.calibrate(config)
    nonce = json.loads((breakable.scratch()[0] / "attention" / "nonces.json").read_text())["jax"]
    waits = [sys.executable, "-c", "print(flush=True); input()", nonce]
    with subprocess.Popen(waits, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as leg:
        try:
            assert leg.stdout is not None
            leg.stdout.readline()
            assert running_process(nonce) == leg.pid
            with pytest.raises(LegError, match=f"leg jax .* still runs as process {leg.pid}"):
                breakable.calibrate(config)
        finally:
            leg.kill()
    assert running_process(nonce) is None


def test_fewer_variants_are_run_named_and_measured(config: Path, breakable: Breakable) -> None:
    seen: list[set[str]] = []

    @contextlib.contextmanager
    def view() -> Iterator[OnProgress]:
        names: set[str] = set()
        yield lambda states: names.update(state.name for state in states)
        seen.append(names)

    path = breakable.calibrate(config, variants=chosen("base,ulp"), view=view)
    assert breakable.starts() == {"base torch", "base jax", "ulp torch", "ulp jax"}
    assert seen == [{"torch", "jax"}] * 2
    floor = read_floor(path)
    assert floor.provenance["variants"] == ["ulp"]
    assert floor.provenance["repeats_exactly"] == {}
    steps = np.arange(8)
    assert floor.at("steps.loss", steps) == pytest.approx(3e-15 * steps, abs=2.3e-16)


def test_calibrating_float32_says_that_its_floor_is_for_one_step(
    config: Path, breakable: Breakable
) -> None:
    values = tomllib.loads(config.read_text())
    values["train"]["precision"] = "float32"
    config.write_text(tomli_w.dumps(values))
    lines: list[str] = []
    calibrate(
        config,
        stacks=breakable.stacks[:1],
        out=breakable.out,
        on_progress=lines.append,
        variants=("repeat",),
    )
    assert lines[0].startswith("the floor of a float32 run is for step 0 alone")


def test_variants_are_named_in_any_order_and_unknown_ones_refused() -> None:
    assert chosen("ulp, repeat") == ("repeat", "ulp")
    with pytest.raises(ConfigError, match="unknown variant 'weights'; known are base, repeat"):
        chosen("base,weights")
    with pytest.raises(ConfigError, match="--variants base holds nothing against the base run"):
        chosen("base")


def test_variants_differ_from_the_base_in_one_field_each(config: Path, tmp_path: Path) -> None:
    folder = tmp_path / "variants"
    folder.mkdir()
    paths = write_variants(load_config(config), folder)
    values = {name: tomllib.loads(path.read_text()) for name, path in paths.items()}
    base = values["base"]
    assert values["repeat"] == base
    assert differing(base, values["threads"]) == {("runtime", "threads"): 2}
    assert differing(base, values["attention"]) == {("model", "attention"): "fused"}
    assert set(differing(base, values["ulp"])) == {("model", "checkpoint")}
    assert Path(base["data"]["template"]).is_absolute()
    before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    write_variants(load_config(config), folder)
    assert {path: path.read_bytes() for path in before} == before, "a leg can be resumed on them"


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
