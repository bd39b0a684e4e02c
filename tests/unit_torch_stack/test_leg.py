"""Whole legs as processes: traces, modes, interruption and resume, bit for bit (S-23 to S-26)."""

import hashlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import jsonschema
import pyarrow.parquet as pq
import pytest
import torch
from safetensors.torch import load_file

from stacks.torch_stack.leg import keeps_snapshot, watched

from .conftest import MODEL as MODEL_CONFIG
from .conftest import ROOT, Main, Run, leg_arguments, parameter_shapes, run_leg, write_model

SCHEMA = json.loads((ROOT / "configs/contract/trace.schema.json").read_text())


def conforms(kind: str, value: object) -> None:
    schema = {"$defs": SCHEMA["$defs"], "$ref": f"#/$defs/{kind}"}
    jsonschema.Draft202012Validator(schema).validate(value)


def steps(out: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (out / "steps.jsonl").read_text().splitlines()]


def table(out: Path, name: str) -> list[dict[str, Any]]:
    return [
        row for path in sorted((out / name).iterdir()) for row in pq.read_table(path).to_pylist()
    ]


def document(out: Path, name: str) -> dict[str, Any]:
    loaded: dict[str, Any] = json.loads((out / f"{name}.json").read_text())
    return loaded


def same_run(one: Path, other: Path) -> None:
    """Same steps, tensors, final hashes and checkpoint, bit for bit."""
    timeless = [[{**x, "wall_seconds": 0} for x in steps(out)] for out in (one, other)]
    assert timeless[0] == timeless[1]
    assert table(one, "tensors") == table(other, "tensors")
    assert document(one, "done")["final"] == document(other, "done")["final"]
    for path in (one / "checkpoint").iterdir():
        assert path.read_bytes() == (other / "checkpoint" / path.name).read_bytes()


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """The config and the trace of one unbroken leg."""
    folder = tmp_path_factory.mktemp("leg")
    config = make_run(folder)
    result = run_leg(*leg_arguments(config, folder / "out"))
    assert (result.returncode, result.stdout, result.stderr) == (0, "", "")
    return config, folder / "out"


def make_run(folder: Path) -> Path:
    from . import conftest

    writer = conftest.small_run.__wrapped__(folder)  # type: ignore[attr-defined]
    path: Path = writer()
    return path


def test_every_document_and_row_conforms_to_the_schema(finished: tuple[Path, Path]) -> None:
    _, out = finished
    conforms("header", document(out, "header"))
    conforms("done", document(out, "done"))
    for one in steps(out):
        conforms("step", one)
    for one in table(out, "tokens"):
        conforms("token_row", one)
    for one in table(out, "tensors"):
        conforms("tensor_row", one)


def test_only_the_owner_may_read_a_trace(finished: tuple[Path, Path]) -> None:
    _, out = finished
    paths = [out, *out.rglob("*")]
    assert len(paths) > 10
    for path in paths:
        assert path.stat().st_mode & 0o777 == (0o700 if path.is_dir() else 0o600), path


def test_facts_are_those_of_the_files_and_the_model(finished: tuple[Path, Path]) -> None:
    config, out = finished
    facts = document(out, "header")["facts"]
    root = config.parent

    def digest(name: str) -> str:
        return hashlib.sha256((root / name).read_bytes()).hexdigest()

    assert facts["files"] == {
        "train": [digest("train.jsonl")],
        "eval": [digest("eval.jsonl")],
        "edge": [digest("edge.jsonl")],
        "template": digest("chat.jinja"),
        "tokenizer": digest("tokenizer.json"),
        "model_config": digest("checkpoint/config.json"),
        "weights": {"model.safetensors": digest("checkpoint/model.safetensors")},
    }
    shapes = parameter_shapes(MODEL_CONFIG)
    assert {name: tuple(one["shape"]) for name, one in facts["parameters"].items()} == shapes
    decaying = {name for name, one in facts["parameters"].items() if one["decay"]}
    assert decaying == {name for name in shapes if "_proj" in name}
    assert facts["steps_per_epoch"] == 3
    assert facts["num_parameters"] == sum(torch.Size(one).numel() for one in shapes.values())
    assert facts["optimizer"]["weight_decay"] == 0.1
    assert facts["model"]["rope_base"] == 1000.0
    assert facts["special_ids"] == {"<|start|>": 270, "<|end|>": 271, "<|pad|>": 272}
    assert set(facts["dtypes"].values()) == {"float64"}


def test_done_lists_the_files_that_are_there(finished: tuple[Path, Path]) -> None:
    _, out = finished
    files = document(out, "done")["files"]
    assert {"header.json", "steps.jsonl", "tokens/00000.parquet"} < files.keys()
    assert sum(name.startswith("tensors/") for name in files) == 3  # one after each snapshot
    for name, one in files.items():
        data = (out / name).read_bytes()
        assert one == {"sha256": hashlib.sha256(data).hexdigest(), "num_bytes": len(data)}


def test_tensor_rows_are_those_of_the_clause(finished: tuple[Path, Path]) -> None:
    config, out = finished
    rows = table(out, "tensors")
    names = set(parameter_shapes(MODEL_CONFIG))
    init = [one for one in rows if one["kind"] == "init"]
    assert {one["name"] for one in init} == names
    tensors = load_file(config.parent / "checkpoint/model.safetensors")
    for one in init:
        values = tensors[one["name"]].double().contiguous().numpy().tobytes()
        assert one["sha256"] == hashlib.sha256(values).hexdigest()
    recorded = {(one["step"], one["kind"]) for one in rows}
    kinds = ("grad", "m", "v", "update", "param")
    assert recorded == {(0, "init")} | {(t, kind) for t in (0, 2, 4, 6) for kind in kinds}
    by = {(one["step"], one["kind"], one["name"]): one for one in rows}
    for t in (0, 2, 4, 6):
        norms = [by[t, "grad", name]["norm"] for name in names]
        assert sum(x * x for x in norms) ** 0.5 == pytest.approx(steps(out)[t]["grad_norm"])
        norms = [by[t, "param", name]["norm"] for name in names]
        assert sum(x * x for x in norms) ** 0.5 == pytest.approx(steps(out)[t]["param_norm"])
    name, factor = "model.norm.weight", steps(out)[0]["clip_factor"]
    assert factor < 1  # the recorded gradient is the one before clipping
    grad, m = by[0, "grad", name], by[0, "m", name]
    assert m["norm"] == pytest.approx(0.1 * factor * grad["norm"], rel=1e-12)
    moved = by[0, "param", name]["mean"] - by[0, "init", name]["mean"]
    assert by[0, "update", name]["mean"] == pytest.approx(moved, rel=1e-9)


def test_final_hashes_are_of_the_last_snapshot_and_checkpoint(finished: tuple[Path, Path]) -> None:
    _, out = finished
    snapshots = sorted(one.name for one in (out / "snapshots").iterdir())
    assert snapshots == ["00000006.safetensors", "00000007.safetensors"]
    last = load_file(out / "snapshots" / snapshots[-1])
    final = document(out, "done")["final"]
    for kind, key in (("param", "params_sha256"), ("m", "m_sha256"), ("v", "v_sha256")):
        digest = hashlib.sha256()
        for name in sorted(x for x in last if x.startswith(kind + "/")):
            digest.update(name.removeprefix(kind + "/").encode() + b"\0")
            digest.update(last[name].numpy().tobytes())
        assert final[key] == digest.hexdigest()
    written = load_file(out / "checkpoint/model.safetensors")
    assert all(torch.equal(one, last[f"param/{name}"]) for name, one in written.items())


def test_a_leg_without_a_trace_is_the_same_run(
    finished: tuple[Path, Path], tmp_path: Path, in_process: Main
) -> None:
    config, out = finished
    bare = tmp_path / "bare"
    assert in_process([*leg_arguments(config, bare), "--no-trace"]) == 0
    assert sorted(one.name for one in bare.iterdir()) == [
        "checkpoint", "done.json", "header.json", "snapshots"
    ]  # fmt: skip
    assert document(bare, "done")["final"] == document(out, "done")["final"]
    for name in ("00000006.safetensors", "00000007.safetensors"):
        one, other = (load_file(x / "snapshots" / name) for x in (bare, out))
        assert all(torch.equal(one[key], other[key]) for key in one)
    conforms("done", document(bare, "done"))


def test_render_writes_the_tokens_of_a_training_leg(
    finished: tuple[Path, Path], tmp_path: Path, in_process: Main
) -> None:
    config, out = finished
    rendered = tmp_path / "rendered"
    assert in_process(leg_arguments(config, rendered, "render")) == 0
    assert sorted(one.name for one in rendered.iterdir()) == ["done.json", "header.json", "tokens"]
    assert table(rendered, "tokens") == table(out, "tokens")
    conforms("header", document(rendered, "header"))
    conforms("done", document(rendered, "done"))
    rows = table(rendered, "tokens")
    order = [(one["split"], one["index"]) for one in rows]
    expected = [("train", 11), ("eval", 6), ("edge", 2)]
    assert order == [(name, index) for name, count in expected for index in range(count)]
    text = "<|start|>user:what is 37 then?<|end|><|start|>assistant:é answer 1<|end|>"
    assert rows[1]["text"] == text


def start(config: Path, out: Path, *more: str) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [sys.executable, "-m", "stacks.torch_stack", *leg_arguments(config, out), *more],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )


def wait_for_step(out: Path, t: int) -> None:
    limit = time.monotonic() + 60
    while time.monotonic() < limit:
        path = out / "steps.jsonl"
        if path.exists() and path.read_bytes().count(b"\n") > t:
            return
        time.sleep(0.002)
    raise AssertionError(f"step {t} was not reached")


@pytest.fixture(scope="module")
def long_run(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A leg of many steps, unbroken."""
    folder = tmp_path_factory.mktemp("long")
    config = make_run(folder)
    text = config.read_text().replace("num_steps = 7", "num_steps = 90")
    text = text.replace("every_steps = 3\n[trace]", "every_steps = 10\n[trace]")
    config.write_text(text.replace("tensors_every = 2", "tensors_every = 7"))
    assert "every_steps = 10" in config.read_text()
    assert run_leg(*leg_arguments(config, folder / "out")).returncode == 0
    return config, folder / "out"


def test_a_killed_leg_resumes_to_the_same_bits(
    long_run: tuple[Path, Path], tmp_path: Path, in_process: Main
) -> None:
    config, unbroken = long_run
    out = tmp_path / "out"
    for t in (3, 44):  # before the first snapshot, and after some
        leg = start(config, out, *(["--resume"] if out.exists() else []))
        wait_for_step(out, t)
        leg.send_signal(signal.SIGKILL)
        leg.communicate()
        assert leg.returncode == -signal.SIGKILL
        assert not (out / "done.json").exists()
    assert in_process([*leg_arguments(config, out), "--resume"]) == 0
    same_run(unbroken, out)
    assert table(unbroken, "tokens") == table(out, "tokens")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_stopped_leg_says_where_and_resumes_to_the_same_bits(
    long_run: tuple[Path, Path], tmp_path: Path, number: signal.Signals, in_process: Main
) -> None:
    config, unbroken = long_run
    out = tmp_path / "out"
    leg = start(config, out)
    wait_for_step(out, 13)
    leg.send_signal(number)
    _, errors = leg.communicate()
    assert leg.returncode == 130
    error = document(out, "error")
    conforms("error", error)
    assert error["kind"] == "interrupted"
    assert error["message"] == errors.splitlines()[-1]
    assert number.name in error["message"]
    done = len(steps(out))
    assert (out / f"snapshots/{done:08d}.safetensors").exists()
    assert in_process([*leg_arguments(config, out), "--resume"]) == 0
    assert not (out / "error.json").exists()
    same_run(unbroken, out)


def test_resume_passes_over_a_damaged_snapshot_and_ends_the_same(
    finished: tuple[Path, Path], tmp_path: Path, in_process: Main
) -> None:
    config, unbroken = finished
    out = tmp_path / "out"
    shutil.copytree(unbroken, out)
    newest = out / "snapshots/00000007.safetensors"
    newest.write_bytes(newest.read_bytes()[:-8])
    (out / "done.json").unlink()
    assert in_process([*leg_arguments(config, out), "--resume"]) == 0
    same_run(unbroken, out)


def test_resume_does_not_take_a_snapshot_that_its_trace_does_not_reach(
    finished: tuple[Path, Path], tmp_path: Path, in_process: Main
) -> None:
    config, unbroken = finished
    out = tmp_path / "out"
    shutil.copytree(unbroken, out)
    lines = (out / "steps.jsonl").read_text().splitlines(keepends=True)
    (out / "steps.jsonl").write_text("".join(lines[:2]))
    assert in_process([*leg_arguments(config, out), "--resume"]) == 0
    same_run(unbroken, out)


def test_another_seed_of_python_zone_or_place_changes_nothing(
    finished: tuple[Path, Path], tmp_path: Path
) -> None:
    config, unbroken = finished
    env = {"PYTHONHASHSEED": "77", "TZ": "Asia/Kathmandu", "LC_ALL": "C", "LANG": "tr_TR.UTF-8"}
    out = tmp_path / "out"
    assert run_leg(*leg_arguments(config, out), env=env).returncode == 0
    same_run(unbroken, out)
    assert table(unbroken, "tokens") == table(out, "tokens")


def test_when_to_watch_and_when_to_keep() -> None:
    assert [t for t in range(8) if watched(t, 8, 3)] == [0, 3, 6, 7]
    assert not any(watched(t, 8, 0) for t in range(8))
    assert [n for n in range(1, 9) if keeps_snapshot(n, 8, 3)] == [3, 6, 8]
    assert not any(keeps_snapshot(n, 8, 0) for n in range(1, 9))


def test_no_file_outside_tokens_and_steps_holds_text_or_ids(finished: tuple[Path, Path]) -> None:
    _, out = finished
    for path in out.rglob("*"):
        if path.is_file() and path.parent.name != "tokens" and path.name != "steps.jsonl":
            data = path.read_bytes()
            assert b"then?" not in data, path
            assert b"t-10" not in data, path


def test_a_written_checkpoint_starts_another_leg(
    finished: tuple[Path, Path], small_run: Run, tmp_path: Path, in_process: Main
) -> None:
    _, out = finished
    config = small_run(model__checkpoint=str(out / "checkpoint"), train__num_steps=3)
    assert in_process(leg_arguments(config, tmp_path / "next")) == 0
    init = [one for one in table(tmp_path / "next", "tensors") if one["kind"] == "init"]
    final = {one["name"]: one for one in table(out, "tensors") if one["kind"] == "param"}
    for one in init:  # the last rows by name are those of the last step
        assert one["sketch"] == final[one["name"]]["sketch"]


def test_write_model_is_not_trivial(tmp_path: Path) -> None:
    tensors = write_model(tmp_path, MODEL_CONFIG)
    assert all(one.std() > 0.01 for one in tensors.values())
