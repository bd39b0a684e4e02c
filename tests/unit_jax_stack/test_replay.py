"""Judges: the trace of the training leg itself, swaps whose result is known, NumPy."""

import json
import os
import shutil
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from stacks.jax_stack import replay_data
from stacks.jax_stack.safetensors import open_tensors, read_tensors, write_tensors

from .conftest import Finished, Workshop
from .test_train import run_here, tables, validate

Make = Callable[[], Workshop]
ARRAYS = ("input_ids", "segments", "positions", "labels")


@pytest.fixture(autouse=True)
def _signals() -> Iterator[None]:
    handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    mask = os.umask(0o022)
    yield
    os.umask(mask)
    for number, handler in handlers.items():
        signal.signal(number, handler)


@pytest.fixture(scope="module")
def trained(make_workshop: Make) -> tuple[Workshop, Finished]:
    """A leg of 6 steps that recorded every one and left the snapshots 4 and 6."""
    shop = make_workshop()
    shop.write_config(trace_tensors_every="1")
    leg = run_here(shop, "train", "whole")
    assert leg.code == 0
    return shop, leg


@pytest.fixture(scope="module")
def replayed(trained: tuple[Workshop, Finished]) -> Finished:
    """Step 5 from snapshot 4 (0) and from the start (1), with exports."""
    shop, _ = trained
    flags = ("--step", "5", "--from", snapshot_of(shop), "--from", "start", "--export")
    leg = run_here(shop, "replay", "replayed", *flags)
    assert leg.code == 0
    return leg


def snapshot_of(shop: Workshop, n: int = 4) -> str:
    return str(shop.root / f"whole/snapshots/{n:08d}.safetensors")


def lines_of(folder: Path) -> list[dict[str, Any]]:
    lines = [json.loads(line) for line in (folder / "steps.jsonl").read_bytes().splitlines()]
    for line in lines:
        validate(line, "step")
    return lines


def values_of(line: dict[str, Any]) -> dict[str, Any]:
    """A step's line without what a replay does not repeat."""
    return {k: v for k, v in line.items() if k not in ("wall_seconds", "eval_loss", "eval_targets")}


def test_a_replay_repeats_the_recorded_steps_bit_for_bit(
    trained: tuple[Workshop, Finished], replayed: Finished
) -> None:
    _, leg = trained
    recorded = [values_of(line) for line in leg.steps()]
    for folder, first in (("0", 4), ("1", 0)):
        found = lines_of(replayed.out / folder)
        assert [values_of(line) for line in found] == recorded[first:]
        assert {line["eval_loss"] for line in found} == {None}
        of_step = [row for row in tables(leg.out, "tensors") if row["step"] == 5]
        assert tables(replayed.out / folder, "tensors") == of_step
    deep = [tables(replayed.out / folder, "deep") for folder in "01"]
    assert deep[0] == deep[1]
    for row in deep[0]:
        validate(row, "deep_row")
    assert [row["tap"] for row in deep[0]][-3:] == ["norm", "logits", "token_loss"]
    assert {row["step"] for row in deep[0]} == {5}


def test_the_documents_of_a_replay(replayed: Finished) -> None:
    header, done = replayed.json("header.json"), replayed.json("done.json")
    validate(header, "header")
    validate(done, "done")
    assert (header["mode"], done["mode"], done["num_steps"], done["final"]) == (
        "replay",
        "replay",
        6,
        None,
    )
    assert done["num_examples"] == {"train": 10, "eval": 0, "edge": 0}  # six steps: two epochs
    paths = {p.relative_to(replayed.out).as_posix() for p in replayed.out.rglob("*") if p.is_file()}
    assert set(done["files"]) == paths - {"done.json"}
    for path in replayed.out.rglob("*"):
        assert path.stat().st_mode & 0o777 == (0o700 if path.is_dir() else 0o600), path


def test_the_facts_are_those_of_the_training_leg(
    trained: tuple[Workshop, Finished], replayed: Finished
) -> None:
    facts, theirs = (leg.json("header.json")["facts"] for leg in (replayed, trained[1]))
    assert facts | {"num_examples": None} == theirs | {"num_examples": None}


def test_what_is_exported(trained: tuple[Workshop, Finished], replayed: Finished) -> None:
    shop, leg = trained
    state, saved = (
        read_tensors(Path(path))
        for path in (replayed.out / "0/state.safetensors", snapshot_of(shop))
    )
    assert state.metadata == saved.metadata
    assert state.tensors.keys() == saved.tensors.keys()
    for name, values in saved.tensors.items():
        np.testing.assert_array_equal(state.tensors[name], values)
    rates = json.loads((replayed.out / "0/rates.json").read_text())
    assert rates == {"lr": {str(line["step"]): line["lr"] for line in leg.steps()[4:]}}
    batches = open_tensors(replayed.out / "1/batches.safetensors", ("I32",))
    assert batches.entries.keys() == {f"{s}/{name}" for s in range(6) for name in ARRAYS}
    labels = batches.read("5/labels")
    assert labels.dtype == np.int32
    assert int((labels != -100).sum()) == leg.steps()[5]["num_targets"]
    loss = read_tensors(replayed.out / "0/token_loss.safetensors").tensors["token_loss"]
    assert loss.shape == labels.shape
    assert loss.sum() / (labels != -100).sum() == pytest.approx(leg.steps()[5]["loss"], rel=1e-12)
    assert not loss[labels == -100].any()
    grads = read_tensors(replayed.out / "0/gradients.safetensors").tensors
    norm = np.sqrt(sum(np.sum(values**2) for values in grads.values()))
    assert norm == pytest.approx(leg.steps()[5]["grad_norm"], rel=1e-12)


def refuse(*arguments: object) -> None:
    raise AssertionError("an example was rendered")


def test_with_all_batches_taken_nothing_is_rendered_and_the_result_is_the_same(
    trained: tuple[Workshop, Finished], replayed: Finished, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop, leg = trained
    monkeypatch.setattr(replay_data.LazyExamples, "tokens_of", refuse)
    taken = replayed.out / "1"
    flags = ["--step", "5", "--from", snapshot_of(shop)]
    flags += ["--batches", str(taken / "batches.safetensors"), "--rates", str(taken / "rates.json")]
    again = run_here(shop, "replay", "again", *flags)
    assert again.code == 0
    assert again.json("done.json")["num_examples"]["train"] == 0
    for line, recorded in zip(lines_of(again.out / "0"), leg.steps()[4:], strict=True):
        assert line["examples"] == []
        assert values_of(line) | {"examples": None} == values_of(recorded) | {"examples": None}
    assert tables(again.out / "0", "deep") == tables(replayed.out / "0", "deep")


def test_only_the_steps_that_a_file_of_batches_holds_are_taken_from_it(
    trained: tuple[Workshop, Finished], replayed: Finished, tmp_path: Path
) -> None:
    shop, leg = trained
    arrays = {}
    file = open_tensors(replayed.out / "1/batches.safetensors", ("I32",))
    for name in ARRAYS:  # step 5 becomes step 1 once more
        arrays[f"5/{name}"] = file.read(f"1/{name}")
    write_tensors(tmp_path / "batches", arrays, {})
    flags = ("--step", "5", "--from", snapshot_of(shop), "--batches", str(tmp_path / "batches"))
    taken = run_here(shop, "replay", "partly", *flags)
    assert taken.code == 0
    lines = lines_of(taken.out / "0")
    assert values_of(lines[0]) == values_of(leg.steps()[4])
    assert lines[1]["batch_sha256"] == leg.steps()[1]["batch_sha256"]
    assert (lines[1]["epoch"], lines[1]["loss"] != leg.steps()[5]["loss"]) == (1, True)
    assert taken.json("done.json")["num_examples"]["train"] == len(lines[0]["examples"])


def test_gradients_and_rates_that_are_taken_make_the_update(
    trained: tuple[Workshop, Finished], replayed: Finished, tmp_path: Path
) -> None:
    """Twice the gradients: the norm doubles and the loss stays; a rate of 0 moves nothing."""
    shop, leg = trained
    grads = read_tensors(replayed.out / "0/gradients.safetensors").tensors
    write_tensors(tmp_path / "double", {name: 2 * x for name, x in grads.items()}, {})
    (tmp_path / "rates").write_text('{"lr": {"5": 0.0}}')
    flags = ["--step", "5", "--from", snapshot_of(shop), "--export"]
    flags += ["--gradients", str(tmp_path / "double"), "--rates", str(tmp_path / "rates")]
    taken = run_here(shop, "replay", "double", *flags)
    assert taken.code == 0
    line, recorded = lines_of(taken.out / "0")[1], leg.steps()[5]
    assert line["loss"] == recorded["loss"]
    assert line["grad_norm"] == pytest.approx(2 * recorded["grad_norm"], rel=1e-14)
    assert line["clip_factor"] == pytest.approx(min(1, 1 / (line["grad_norm"] + 1e-6)), rel=1e-14)
    rows = {(row["kind"], row["name"]): row for row in tables(taken.out / "0", "tensors")}
    of_leg = {
        (row["kind"], row["name"]): row for row in tables(leg.out, "tensors") if row["step"] == 5
    }
    for (kind, name), row in rows.items():
        if kind == "grad":
            assert row["norm"] == pytest.approx(2 * of_leg[kind, name]["norm"], rel=1e-14)
        if kind == "update":
            assert row["norm"] == 0.0
    exported = read_tensors(taken.out / "0/gradients.safetensors").tensors
    for name, values in grads.items():
        np.testing.assert_array_equal(exported[name], 2 * values)


def changed(path: str, out: Path, **changes: Any) -> str:
    """A snapshot with other metadata or tensors: `rename`, `dtype`, `shape`, or metadata."""
    file = read_tensors(Path(path))
    tensors, name = dict(file.tensors), "m/model.norm.weight"
    if "rename" in changes:
        tensors[changes.pop("rename")] = tensors.pop(name)
    if "dtype" in changes:
        tensors = {key: x.astype(changes["dtype"]) for key, x in tensors.items()}
        del changes["dtype"]
    if "shape" in changes:
        tensors[name] = tensors[name].reshape(changes.pop("shape"))
    write_tensors(out, tensors, file.metadata | changes)
    return str(out)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"config_sha256": "f" * 64}, "of the config ffffffffffff"),
        ({"dtype": np.float32}, "is float32, the run holds float64"),
        ({"rename": "m/other"}, "m/model.norm.weight is not in the snapshot"),
        ({"shape": (2, 4)}, r"has the shape [2, 4], the run needs [8]"),
        ({"step": "6"}, "after 6 updates, which is beyond step 5"),
        ({"row": "x"}, "metadata hold step, epoch, row"),
    ],
)
def test_a_snapshot_of_something_else_is_refused(
    trained: tuple[Workshop, Finished], tmp_path: Path, changes: dict[str, Any], words: str
) -> None:
    shop, _ = trained
    path = changed(snapshot_of(shop), tmp_path / "changed", **dict(changes))
    assert words in refusal(shop, tmp_path, "--from", path)


def refusal(shop: Workshop, tmp_path: Path, *flags: str) -> str:
    """The sentence of a replay of step 5 that is refused."""
    leg = run_here(shop, "replay", str(tmp_path / "refused"), "--step", "5", *flags)
    error = leg.json("error.json")
    assert (leg.code, error["kind"]) == (2, "bad_input")
    return str(error["message"])


def test_a_snapshot_that_is_cut_is_refused(
    trained: tuple[Workshop, Finished], tmp_path: Path
) -> None:
    shop, _ = trained
    shutil.copy(snapshot_of(shop), tmp_path / "cut")
    os.truncate(tmp_path / "cut", os.path.getsize(tmp_path / "cut") - 5)
    assert "truncated" in refusal(shop, tmp_path, "--from", str(tmp_path / "cut"))


def test_a_step_beyond_the_run_is_refused(trained: tuple[Workshop, Finished]) -> None:
    leg = run_here(trained[0], "replay", "beyond", "--step", "6", "--from", "start")
    assert "--step is 6" in leg.json("error.json")["message"]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('{"lr": {"5": "fast"}}', "rates are"),
        ('{"lr": {"5": NaN}}', "finite"),
        ('{"lr": {"-5": 1.0}}', "counted from 0"),
        ("[]", "rates are"),
    ],
)
def test_rates_that_are_none_are_refused(
    trained: tuple[Workshop, Finished], tmp_path: Path, text: str, words: str
) -> None:
    (tmp_path / "rates").write_text(text)
    assert words in refusal(
        trained[0], tmp_path, "--from", "start", "--rates", str(tmp_path / "rates")
    )


def int_arrays(shape: tuple[int, ...] = (2, 2, 40)) -> dict[str, np.ndarray]:
    return {f"5/{name}": np.ones(shape, np.int32) for name in ARRAYS}


@pytest.mark.parametrize(
    ("arrays", "words"),
    [
        (int_arrays() | {"5/labels": np.full((2, 2, 40), 270, np.int32)}, "5/labels is not within"),
        (int_arrays() | {"5/input_ids": np.full((2, 2, 40), -1, np.int32)}, "5/input_ids is not"),
        ({k: v for k, v in int_arrays().items() if "positions" not in k}, "5/positions is missing"),
        (int_arrays() | {"5/segments": np.ones((2, 2, 8), np.int32)}, "have one shape"),
        (int_arrays((1, 2, 40)), "has [1, 2] micro-batches and rows, the config [2, 2]"),
        (int_arrays() | {"5/mask": np.ones((2, 2, 40), np.int32)}, "5/mask is not an array"),
        ({k: v.astype(np.float32) for k, v in int_arrays().items()}, "has the dtype F32"),
    ],
)
def test_batches_of_something_else_are_refused(
    trained: tuple[Workshop, Finished], tmp_path: Path, arrays: dict[str, np.ndarray], words: str
) -> None:
    write_tensors(tmp_path / "batches", arrays, {})
    assert words in refusal(
        trained[0], tmp_path, "--from", "start", "--batches", str(tmp_path / "batches")
    )


@pytest.mark.parametrize(
    ("dtype", "drop", "words"),
    [
        ("float64", "model.norm.weight", "grad/model.norm.weight is not in the file and trained"),
        ("float32", "", "is float32 of shape"),
    ],
)
def test_gradients_of_something_else_are_refused(
    trained: tuple[Workshop, Finished],
    replayed: Finished,
    tmp_path: Path,
    dtype: str,
    drop: str,
    words: str,
) -> None:
    grads = read_tensors(replayed.out / "0/gradients.safetensors").tensors
    grads = {name: x.astype(dtype) for name, x in grads.items() if name != f"grad/{drop}"}
    write_tensors(tmp_path / "grads", grads, {})
    assert words in refusal(
        trained[0], tmp_path, "--from", "start", "--gradients", str(tmp_path / "grads")
    )
