"""Whole legs on tiny inputs. Killed and stopped legs are real processes."""

import json
import os
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jsonschema
import numpy as np
import pyarrow.parquet as pq
import pytest

from stacks.jax_stack.__main__ import main
from stacks.jax_stack.numerics import tensors_sha256
from stacks.jax_stack.safetensors import read_tensors

from .conftest import ROOT, Finished, Workshop, conversation

Make = Callable[[], Workshop]
SCHEMA = json.loads((ROOT / "configs/contract/trace.schema.json").read_text())


@pytest.fixture(autouse=True)
def _signals() -> Iterator[None]:
    """`main` takes over signals and the umask of its process."""
    handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    mask = os.umask(0o022)
    yield
    os.umask(mask)
    for number, handler in handlers.items():
        signal.signal(number, handler)


def run_here(shop: Workshop, verb: str, out: str, *flags: str) -> Finished:
    """A leg inside this process: no start of an interpreter, no import of jax."""
    code = main(shop.argv(verb, out, *flags)[2:])
    return Finished(code=code, stderr="", out=shop.root / out)


@pytest.fixture(scope="module")
def whole(make_workshop: Make) -> tuple[Workshop, Finished]:
    """A workshop with an unbroken traced leg in `whole`."""
    shop = make_workshop()
    leg = run_here(shop, "train", "whole")
    assert leg.code == 0
    return shop, leg


VALIDATORS = {
    name: jsonschema.Draft202012Validator({"$ref": f"#/$defs/{name}", "$defs": SCHEMA["$defs"]})
    for name in SCHEMA["$defs"]
}


def validate(document: Any, name: str) -> None:
    VALIDATORS[name].validate(document)


def tables(out: Path, folder: str) -> list[dict[str, Any]]:
    paths = sorted((out / folder).glob("*.parquet"))
    return [row for path in paths for row in pq.read_table(path).to_pylist()]


def comparable(leg: Finished) -> dict[str, Any]:
    """Everything that must be the same, bit for bit, of two legs of one config."""
    steps = [{k: v for k, v in line.items() if k != "wall_seconds"} for line in leg.steps()]
    newest = sorted((leg.out / "snapshots").iterdir())[-1]
    return {
        "steps": steps,
        "tensors": tables(leg.out, "tensors"),
        "tokens": tables(leg.out, "tokens"),
        "final": leg.json("done.json")["final"],
        "snapshot": newest.read_bytes(),
        "checkpoint": (leg.out / "checkpoint/model.safetensors").read_bytes(),
    }


def test_every_document_satisfies_the_schema(whole: tuple[Workshop, Finished]) -> None:
    _, leg = whole
    validate(leg.json("header.json"), "header")
    validate(leg.json("done.json"), "done")
    assert [line["step"] for line in leg.steps()] == list(range(6))
    for line in leg.steps():
        validate(line, "step")
    for folder, name in (("tokens", "token_row"), ("tensors", "tensor_row")):
        for row in tables(leg.out, folder):
            validate(row, name)


def test_parquet_has_the_types_of_the_schema(whole: tuple[Workshop, Finished]) -> None:
    _, leg = whole
    tokens = pq.read_schema(leg.out / "tokens/00000.parquet")
    assert str(tokens.field("ids").type).endswith("int32>")
    assert str(tokens.field("mask").type).endswith("int8>")
    assert str(tokens.field("index").type) == "int64"
    tensors = pq.read_schema(leg.out / "tensors/00000000.parquet")
    assert str(tensors.field("shape").type).endswith("int64>")
    assert str(tensors.field("norm").type) == "double"


def test_done_lists_every_file_and_all_are_private(whole: tuple[Workshop, Finished]) -> None:
    _, leg = whole
    listed = set(leg.json("done.json")["files"])
    traced = {"header.json", "steps.jsonl"}
    traced |= {
        f"{f}/{path.name}" for f in ("tokens", "tensors") for path in (leg.out / f).iterdir()
    }
    assert listed == traced
    for path in leg.out.rglob("*"):
        assert path.stat().st_mode & 0o777 == (0o700 if path.is_dir() else 0o600), path
    assert leg.out.stat().st_mode & 0o777 == 0o700


def test_facts_and_tables_by_hand(whole: tuple[Workshop, Finished]) -> None:
    _, leg = whole
    facts = leg.json("header.json")["facts"]
    assert facts["num_examples"] == {"train": 10, "eval": 4, "edge": 1}
    assert (facts["rows_per_step"], facts["steps_per_epoch"], facts["num_steps"]) == (4, 3, 6)
    assert facts["num_parameters"] == 270 * 8 + 3 * 8 + 2 * 64 + 2 * 32 + 3 * 96
    assert set(facts["dtypes"].values()) == {"float64"}
    decaying = {name for name, entry in facts["parameters"].items() if entry["decay"]}
    assert decaying == {name for name in facts["parameters"] if "_proj" in name}
    rows = tables(leg.out, "tokens")
    assert [row["split"] for row in rows] == ["train"] * 10 + ["eval"] * 4 + ["edge"]
    assert rows[-1]["typed_control_tokens"] == 1
    kinds = {(row["step"], row["kind"]) for row in tables(leg.out, "tensors")}
    recorded = {(t, k) for t in (0, 2, 4, 5) for k in ("grad", "m", "v", "update", "param")}
    assert kinds == recorded | {(0, "init")}
    evaluated = [line["step"] for line in leg.steps() if line["eval_loss"] is not None]
    assert evaluated == [2, 5]


def test_final_hashes_are_those_of_the_last_snapshot(whole: tuple[Workshop, Finished]) -> None:
    _, leg = whole
    newest = read_tensors(sorted((leg.out / "snapshots").iterdir())[-1])
    final = leg.json("done.json")["final"]
    for prefix, key in (("param/", "params"), ("m/", "m"), ("v/", "v")):
        tensors = {n[len(prefix) :]: x for n, x in newest.tensors.items() if n.startswith(prefix)}
        assert final[f"{key}_sha256"] == tensors_sha256(tensors)
    assert newest.metadata["step"] == "6"
    assert (newest.metadata["epoch"], newest.metadata["row"]) == ("2", "0")


def test_without_a_trace_the_bits_are_the_same(whole: tuple[Workshop, Finished]) -> None:
    shop, traced = whole
    leg = run_here(shop, "train", "untraced", "--no-trace")
    assert leg.code == 0
    assert {path.name for path in leg.out.iterdir()} == {
        "header.json",
        "snapshots",
        "checkpoint",
        "done.json",
    }
    assert leg.json("done.json")["final"] == traced.json("done.json")["final"]
    for name in ("00000004.safetensors", "00000006.safetensors"):
        pair = [read_tensors(out / "snapshots" / name).tensors for out in (leg.out, traced.out)]
        for key, values in pair[0].items():
            assert values.tobytes() == pair[1][key].tobytes()


def wait_for_lines(out: Path, count: int) -> None:
    for _ in range(3000):
        path = out / "steps.jsonl"
        if path.exists() and path.read_bytes().count(b"\n") >= count:
            return
        time.sleep(0.02)
    raise AssertionError(f"{out} has not reached {count} steps")


def test_a_leg_killed_at_any_time_resumes_to_the_same_bits(
    whole: tuple[Workshop, Finished],
) -> None:
    shop, unbroken = whole
    process = shop.start("train", "killed")
    wait_for_lines(shop.root / "killed", 3)
    process.kill()
    process.communicate()
    out = shop.root / "killed"
    assert not (out / "done.json").exists()
    with (out / "steps.jsonl").open("ab") as file:
        file.write(b'{"step": 99, "torn')  # a line that was being written
    (out / "tensors/.00000004.parquet.tmp").write_bytes(b"torn")
    leg = run_here(shop, "train", "killed", "--resume")
    assert leg.code == 0
    assert comparable(leg) == comparable(unbroken)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_stopped_leg_saves_the_running_step_and_resumes(
    whole: tuple[Workshop, Finished], number: signal.Signals
) -> None:
    shop, unbroken = whole
    name = f"stopped-{number.name}"
    process = shop.start("train", name)
    wait_for_lines(shop.root / name, 1)
    process.send_signal(number)
    _, stderr = process.communicate(timeout=60)
    leg = Finished(code=process.returncode, stderr=stderr, out=shop.root / name)
    assert leg.code in (0, 130)  # 0: the last update was made before the signal arrived
    if leg.code == 130:
        error = leg.json("error.json")
        validate(error, "error")
        assert error["kind"] == "interrupted"
        assert stderr.strip().splitlines()[-1] == error["message"]
        newest = sorted((leg.out / "snapshots").iterdir())[-1]
        assert int(newest.stem) == len(leg.steps())
        leg = run_here(shop, "train", name, "--resume")
        assert leg.code == 0
        assert not (leg.out / "error.json").exists()
    assert comparable(leg) == comparable(unbroken)


def test_resuming_a_finished_leg_repeats_its_end(whole: tuple[Workshop, Finished]) -> None:
    shop, unbroken = whole
    first = comparable(unbroken)
    leg = run_here(shop, "train", "whole", "--resume")
    assert leg.code == 0
    assert comparable(leg) == first


def test_another_config_does_not_resume_in_the_directory(make_workshop: Make) -> None:
    shop = make_workshop()
    (shop.root / "out").mkdir()
    (shop.root / "out/header.json").write_text(json.dumps({"config_sha256": "0" * 64}))
    leg = run_here(shop, "train", "out", "--resume")
    assert leg.code == 2
    assert "resume with the config it began with" in leg.json("error.json")["message"]
    assert leg.json("header.json")["config_sha256"] == "0" * 64


def test_float32_frozen_packed_and_fused_runs_end_well(workshop: Workshop) -> None:
    workshop.write_config(
        train_precision='"float32"',
        model_attention='"fused"',
        data_packing="true",
        data_padding_side='"left"',
        optimizer_frozen='["model.embed_tokens"]',
        optimizer_clip_norm='"off"',
    )
    leg = run_here(workshop, "train", "out")
    assert leg.code == 0
    facts = leg.json("header.json")["facts"]
    assert set(facts["dtypes"].values()) == {"float32"}
    assert facts["parameters"]["model.embed_tokens.weight"]["trainable"] is False
    kinds = {row["kind"] for row in tables(leg.out, "tensors") if "embed" in row["name"]}
    assert kinds == {"init", "param"}
    assert {line["clip_factor"] for line in leg.steps()} == {1.0}
    before = read_tensors(workshop.root / "model/model.safetensors").tensors
    after = read_tensors(leg.out / "checkpoint/model.safetensors").tensors
    np.testing.assert_array_equal(
        before["model.embed_tokens.weight"], after["model.embed_tokens.weight"]
    )
    assert after["model.norm.weight"].dtype == np.float32


def test_a_render_leg_writes_tokens_and_no_more(workshop: Workshop) -> None:
    leg = run_here(workshop, "render", "out")
    assert leg.code == 0
    assert {path.name for path in leg.out.iterdir()} == {"header.json", "tokens", "done.json"}
    validate(leg.json("header.json"), "header")
    validate(leg.json("done.json"), "done")
    row = tables(leg.out, "tokens")[-1]
    generated = [i for i, bit in zip(row["ids"], row["mask"], strict=True) if bit]
    assert generated[-1] == 2  # <|im_end|> stands inside the block
    assert row["text"].startswith("<|im_start|>user<|im_end|> typed<|im_end|><|im_start|>")


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"data_pad_token": '"<pad>"'}, "`data.pad_token` must be a token"),
        ({"data_eos_token": '"</s>"'}, "`data.eos_token` must be a token"),
        ({"data_train": '["absent.jsonl"]'}, "cannot be read"),
        ({"model_checkpoint": '"absent"'}, "config.json"),
        ({"runtime_device": '"cuda"'}, "no such device"),
        ({"data_template": '"run.toml"'}, "put {% generation %} before"),
    ],
)
def test_bad_input_is_one_sentence_code_2_and_error_json(
    workshop: Workshop, capsys: pytest.CaptureFixture[str], changes: dict[str, str], words: str
) -> None:
    workshop.write_config(**changes)
    leg = run_here(workshop, "train", "out")
    error = leg.json("error.json")
    assert (leg.code, error["kind"], error["nonce"]) == (2, "bad_input", "n-1")
    assert words in error["message"]
    assert capsys.readouterr().err.strip().splitlines()[-1] == error["message"]
    assert not (leg.out / "done.json").exists()


def test_no_message_holds_text_of_a_conversation(workshop: Workshop) -> None:
    (workshop.root / "edge.jsonl").write_text(conversation("x", "SECRET", "SECRET"))
    (workshop.root / "chat.jinja").write_text(
        "{% generation %}{{ raise_exception(messages[0].content) }}{% endgeneration %}"
    )
    leg = run_here(workshop, "render", "out")
    assert leg.code == 2
    assert "SECRET" not in (leg.out / "error.json").read_text()


def test_a_tokenizer_with_an_id_beyond_the_model_is_refused(workshop: Workshop) -> None:
    table = json.loads((workshop.root / "tokenizer.json").read_text())
    table["added_tokens"].append({"id": 270, "content": "<new>", "special": True})
    (workshop.root / "tokenizer.json").write_text(json.dumps(table))
    leg = run_here(workshop, "train", "out")
    assert leg.code == 2
    assert "the tokenizer has 270 and vocab_size is 270" in leg.json("error.json")["message"]


def test_a_directory_that_is_not_empty_is_refused_and_left_alone(workshop: Workshop) -> None:
    (workshop.root / "out").mkdir()
    (workshop.root / "out/other").write_text("x")
    leg = run_here(workshop, "train", "out")
    assert leg.code == 2
    assert [path.name for path in leg.out.iterdir()] == ["other"]


def test_a_bug_is_code_1_and_shows_no_text(
    workshop: Workshop, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from stacks.jax_stack import render_leg

    def broken(*arguments: object) -> None:
        raise KeyError("SECRET")

    monkeypatch.setattr(render_leg, "load_inputs", broken)
    leg = run_here(workshop, "render", "out")
    error = leg.json("error.json")
    assert (leg.code, error["kind"]) == (1, "failed")
    assert "KeyError" in error["message"]
    assert "SECRET" not in error["message"] + capsys.readouterr().err
