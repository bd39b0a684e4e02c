"""A replay repeats its run bit for bit, and takes from the other leg what it is given (S-29)."""

import dataclasses
import json
import math
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file

from stacks.torch_stack.taps import tap_names

from .conftest import Main, Run, leg_arguments, run_leg
from .test_leg import conforms, document, steps, table

Replay = Callable[..., Path]


def timeless(step: dict[str, Any]) -> dict[str, Any]:
    return {**step, "wall_seconds": 0, "eval_loss": None, "eval_targets": None}


@pytest.fixture
def trained(small_run: Run, tmp_path: Path, in_process: Main) -> Path:
    config = small_run(trace__tensors_every=1)
    assert in_process(leg_arguments(config, tmp_path / "out")) == 0
    return config


@pytest.fixture
def replay(tmp_path: Path, in_process: Main) -> Replay:
    """Replays in this process; keywords are options, the exit code is 0."""

    def run(config: Path, name: str, step: int, *sources: str | Path, **options: Any) -> Path:
        arguments = [*leg_arguments(config, tmp_path / name, "replay"), "--step", str(step)]
        for source in sources:
            arguments += ["--from", str(source)]
        for key, value in options.items():
            arguments += [f"--{key}"] if value is True else [f"--{key}", str(value)]
        assert in_process(arguments) == 0
        return tmp_path / name

    return run


def same_as_trained(out: Path, run: Path, n: int, t: int) -> None:
    assert [timeless(one) for one in steps(out)] == [timeless(one) for one in steps(run)[n : t + 1]]
    kinds = ("grad", "m", "v", "update", "param")
    rows = [one for one in table(run, "tensors") if one["step"] == t and one["kind"] in kinds]
    assert table(out, "tensors") == rows


@pytest.mark.parametrize("precision", ["float64", "bfloat16", "bfloat16_pure"])
@pytest.mark.parametrize("packing", [False, True])
def test_every_source_repeats_the_run_bit_for_bit(
    small_run: Run, tmp_path: Path, in_process: Main, replay: Replay, precision: str, packing: bool
) -> None:
    config = small_run(
        trace__tensors_every=1, train__precision=precision, data__packing=packing,
        snapshot__every_steps=3, model__attention="fused", optimizer__frozen=["model.norm"],
    )  # fmt: skip
    run = tmp_path / "out"
    assert in_process(leg_arguments(config, run)) == 0
    snapshot = run / "snapshots/00000006.safetensors"
    out = replay(config, "replayed", 6, snapshot, "start", snapshot, "start")
    for k, n in enumerate((6, 0, 6, 0)):
        same_as_trained(out / str(k), run, n, 6)
        assert table(out / str(k), "deep") == table(out / "0", "deep")
    assert [one["tap"] for one in table(out / "0", "deep")] == tap_names(2)


def test_documents_and_rows_conform_and_are_listed(trained: Path, replay: Replay) -> None:
    out = replay(trained, "replayed", 1, "start", export=True)
    header, done = document(out, "header"), document(out, "done")
    conforms("header", header)
    conforms("done", done)
    assert (header["mode"], header["nonce"]) == ("replay", "n")
    assert (done["mode"], done["num_steps"], done["final"]) == ("replay", 2, None)
    assert done["num_examples"] == {"train": 8, "eval": 0, "edge": 0}  # two steps of four
    trained_facts = document(trained.parent / "out", "header")["facts"]
    assert header["facts"] == trained_facts
    for one in steps(out / "0"):
        conforms("step", one)
    for one in table(out / "0", "deep"):
        conforms("deep_row", one)
    for one in table(out / "0", "tensors"):
        conforms("tensor_row", one)
    there = {x.relative_to(out).as_posix() for x in out.rglob("*") if x.is_file()}
    assert done["files"].keys() == there - {"done.json"}
    assert {"0/state.safetensors", "0/rates.json", "0/deep/00000001.parquet"} < there
    for path in [out, *out.rglob("*")]:
        assert path.stat().st_mode & 0o777 == (0o700 if path.is_dir() else 0o600), path


def test_exports_are_those_of_the_run(trained: Path, replay: Replay) -> None:
    run = trained.parent / "out"
    out = replay(trained, "replayed", 6, run / "snapshots/00000006.safetensors", export=True) / "0"
    given = load_file(run / "snapshots/00000006.safetensors")
    written = load_file(out / "state.safetensors")
    assert given.keys() == written.keys()
    assert all(torch.equal(one, written[name]) for name, one in given.items())
    with (
        safe_open(out / "state.safetensors", "pt") as one,
        safe_open(run / "snapshots/00000006.safetensors", "pt") as other,
    ):
        assert one.metadata() == other.metadata()
    assert json.loads((out / "rates.json").read_text()) == {"lr": {"6": steps(run)[6]["lr"]}}
    batch = load_file(out / "batches.safetensors")
    assert sorted(batch) == ["6/input_ids", "6/labels", "6/positions", "6/segments"]
    assert {one.dtype for one in batch.values()} == {torch.int32}
    loss = load_file(out / "token_loss.safetensors")["token_loss"]
    assert loss.shape == batch["6/labels"].shape
    assert torch.equal(loss != 0, batch["6/labels"] != -100)
    assert float(loss.sum()) / steps(run)[6]["num_targets"] == pytest.approx(
        steps(run)[6]["loss"], rel=1e-12
    )
    grads = load_file(out / "gradients.safetensors")
    norm = math.sqrt(sum(float((one**2).sum()) for one in grads.values()))
    assert norm == pytest.approx(steps(run)[6]["grad_norm"], rel=1e-12)


def test_what_is_taken_stands_in_place_of_the_legs_own(trained: Path, replay: Replay) -> None:
    own = replay(trained, "own", 2, "start", export=True)
    export = own / "0"
    batches = load_file(export / "batches.safetensors")
    swapped = {f"{2 - int(name[0])}{name[1:]}": one for name, one in batches.items()}
    save_file(swapped, trained.parent / "batches.safetensors")
    (trained.parent / "rates.json").write_text('{"lr": {"1": 0.25, "9": 1}}')
    doubled = {name: 2 * one for name, one in load_file(export / "gradients.safetensors").items()}
    save_file(doubled, trained.parent / "gradients.safetensors")
    root = trained.parent
    out = replay(
        trained, "taken", 2, "start",
        batches=root / "batches.safetensors",
        rates=root / "rates.json",
        gradients=root / "gradients.safetensors",
    )  # fmt: skip
    before, after = steps(own / "0"), steps(out / "0")
    assert [x["batch_sha256"] for x in after] == [x["batch_sha256"] for x in reversed(before)]
    assert [x["lr"] for x in after] == [before[0]["lr"], 0.25, before[2]["lr"]]
    assert after[2]["grad_norm"] == pytest.approx(2 * before[2]["grad_norm"], rel=1e-12)
    assert after[2]["loss"] != before[2]["loss"]
    assert [x["examples"] for x in after] == [[], [], []]  # nothing was rendered
    assert document(out, "done")["num_examples"] == {"train": 0, "eval": 0, "edge": 0}
    conforms("header", document(out, "header"))
    for one in after:
        conforms("step", one)


def test_batches_of_all_steps_make_the_same_steps_without_a_template(
    trained: Path, replay: Replay
) -> None:
    own = replay(trained, "own", 2, "start", export=True) / "0"
    (trained.parent / "chat.jinja").write_text("{{ no jinja")  # would be refused if compiled
    out = replay(trained, "taken", 2, "start", batches=own / "batches.safetensors") / "0"
    for one, other in zip(steps(own), steps(out), strict=True):
        assert timeless(one) == {**timeless(other), "examples": one["examples"]}
    assert table(own, "deep") == table(out, "deep")


def test_batches_of_some_steps_leave_the_others_to_the_leg(trained: Path, replay: Replay) -> None:
    own = replay(trained, "own", 3, "start", export=True) / "0"
    batches = load_file(own / "batches.safetensors")
    path = trained.parent / "one.safetensors"
    save_file({name: one for name, one in batches.items() if name.startswith("1/")}, path)
    out = replay(trained, "taken", 3, "start", batches=path) / "0"
    assert [timeless(one) for one in steps(own)] == [timeless(one) for one in steps(out)]


def refused(config: Path, *arguments: str | Path) -> str:
    out = config.parent / "refused"
    for old in (out / "error.json",):
        old.unlink(missing_ok=True)
    from stacks.torch_stack.__main__ import main

    assert main([*leg_arguments(config, out, "replay"), *map(str, arguments)]) == 2
    error = document(out, "error")
    conforms("error", error)
    assert error["kind"] == "bad_input"
    return str(error["message"])


def test_a_state_that_is_not_of_this_run_is_refused(
    trained: Path, small_run: Run, in_process: Main
) -> None:
    good = trained.parent / "out/snapshots/00000006.safetensors"
    bad = trained.parent / "bad.safetensors"
    with safe_open(good, "pt") as file:
        metadata = file.metadata()
    tensors = load_file(good)
    name = "m/model.norm.weight"

    def message(changed: dict[str, torch.Tensor], step: int = 6, **more: str) -> str:
        save_file(changed, bad, metadata={**metadata, **more})
        return refused(trained, "--step", str(step), "--from", bad)

    assert "after 6 updates, which is after --step 5" in message(tensors, 5)
    assert "its config_sha256 is 00, that of this run" in message(tensors, config_sha256="00")
    assert "its contract is 2" in message(tensors, contract="2")
    assert "does not say its step" in message(tensors, row="x")
    lacking = {key: one for key, one in tensors.items() if key != name}
    assert f"lacks the tensor {name}" in message(lacking)
    assert "holds the tensor m/more" in message({**tensors, "m/more": tensors[name].clone()})
    assert "dtype float32, but this run's [16] and float64" in message(
        {**tensors, name: tensors[name].float()}
    )
    assert "shape [15]" in message({**tensors, name: tensors[name][1:].clone()})
    bad.write_bytes(good.read_bytes()[:-8])
    assert "missing, cut or no safetensors" in refused(trained, "--step", "6", "--from", bad)
    assert "is no step of this run, which has 7" in refused(
        trained, "--step", "7", "--from", "start"
    )
    assert "required: --from" in refused_command(trained, "--step", "1")


def refused_command(config: Path, *arguments: str) -> str:
    result = run_leg(*leg_arguments(config, config.parent / "none", "replay"), *arguments)
    assert result.returncode == 2
    return str(result.stderr)


def test_exports_that_do_not_fit_are_refused(trained: Path, replay: Replay) -> None:
    export = replay(trained, "own", 1, "start", export=True) / "0"
    batches, bad = load_file(export / "batches.safetensors"), trained.parent / "bad.safetensors"

    def message(**changed: torch.Tensor) -> str:
        named = {name.replace("_1", "1/", 1): one for name, one in changed.items()}
        save_file({**batches, **named}, bad)
        return refused(trained, "--step", "1", "--from", "start", "--batches", bad)

    ids, labels = batches["1/input_ids"], batches["1/labels"].clone()
    assert "int64" in message(_1labels=labels.long())
    assert "2 micro-batches of 2 rows" in message(
        **{f"_1{x}": batches[f"1/{x}"][:1].clone() for x in
           ("input_ids", "segments", "positions", "labels")}
    )  # fmt: skip
    assert "input_ids reach from" in message(_1input_ids=ids + 280)
    assert "positions reach from" in message(_1positions=batches["1/positions"] - 1)
    labels[0, 0, 0] = ids[0, 0, 0]
    assert "one is at position 0" in message(_1labels=labels)
    assert "is no array of a step" in message(_1other=labels)
    rates = trained.parent / "rates.json"
    for text in ("{}", "[", '{"lr": {"x": 1}}', '{"lr": {"1": true}}', '{"lr": {"1": "much"}}'):
        rates.write_text(text)
        assert "is not a document" in refused(
            trained, "--step", "1", "--from", "start", "--rates", rates
        )
    grads = load_file(export / "gradients.safetensors")
    save_file({name: one.float() for name, one in grads.items()}, bad)
    assert "dtype float32, but this run's" in refused(
        trained, "--step", "1", "--from", "start", "--gradients", bad
    )
    save_file({name: one for name, one in grads.items() if "norm" not in name}, bad)
    assert "lacks the tensor grad/model" in refused(
        trained, "--step", "1", "--from", "start", "--gradients", bad
    )


def test_a_rate_that_is_not_finite_is_taken_as_it_is_written(trained: Path, replay: Replay) -> None:
    path = trained.parent / "rates.json"
    path.write_text('{"lr": {"0": "Infinity"}}')
    out = replay(trained, "taken", 1, "start", rates=path)
    assert steps(out / "0")[0]["lr"] == "Infinity"
    assert np.isnan(table(out / "0", "tensors")[-1]["norm"])


def test_a_signal_stops_a_replay_between_steps(trained: Path, tmp_path: Path) -> None:
    from stacks.torch_stack.config import load_config
    from stacks.torch_stack.errors import Interrupted
    from stacks.torch_stack.leg import Leg
    from stacks.torch_stack.replay import Request, replay

    out = tmp_path / "stopped"
    out.mkdir()
    config = load_config(trained, trained.parent)
    leg = Leg(config=config, out=out, nonce="n", traced=True, stop_signal=lambda: None)
    request = Request(
        step=3, sources=("start",), batches=None, rates=None, gradients=None, exports=False
    )
    asked = iter((None, None, "SIGTERM"))
    leg = dataclasses.replace(leg, stop_signal=lambda: next(asked))
    with pytest.raises(Interrupted, match="SIGTERM stopped the replay before step 2"):
        replay(leg, request)
    assert len(steps(out / "0")) == 2
    assert not (out / "done.json").exists()


@pytest.mark.slow  # minutes of C++ compilation
@pytest.mark.skipif(shutil.which("g++") is None, reason="there is no C++ compiler")
def test_a_compiled_run_is_repeated_bit_for_bit_and_seen_from_inside(
    small_run: Run, tmp_path: Path, in_process: Main, replay: Replay
) -> None:
    taps = {}
    for compiled in (True, False):
        config = small_run(
            trace__tensors_every=1, train__num_steps=3, runtime__compile=compiled,
            schedule__warmup_steps=0, train__precision="bfloat16",
        )  # fmt: skip
        run = tmp_path / f"out{compiled}"
        assert in_process(leg_arguments(config, run)) == 0
        out = replay(config, f"replayed{compiled}", 2, "start", "start")
        for k in ("0", "1"):
            same_as_trained(out / k, run, 0, 2)
        taps[compiled] = {one["tap"]: one["norm"] for one in table(out / "0", "deep")}
    for name, norm in taps[True].items():
        assert norm == pytest.approx(taps[False][name], rel=0.01)
