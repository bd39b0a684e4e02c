"""`read_trace`: what is whole is read exactly, what is not is refused with one sentence."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from oracle.columns import dtypes
from oracle.errors import TraceError
from oracle.trace import read_trace
from tests.unit_oracle_run.tiny import TinyRun, relist, write_trace

SECRET = "Mrs Doe has measles"


@pytest.fixture
def trace(tiny: TinyRun, tmp_path: Path) -> Path:
    return write_trace(tiny, tmp_path / "trace")


def refusal(path: Path, **wanted: Any) -> str:
    with pytest.raises(TraceError) as caught:
        read_trace(path, **wanted)
    sentence = str(caught.value)
    assert "\n" not in sentence
    return sentence


def edit(path: Path, change: Callable[[Any], None], line: int | None = None) -> None:
    """Change a JSON document, or one line (0-based) of a JSONL file, and list it anew."""
    lines = path.read_text().splitlines()
    document = json.loads(lines[line or 0])
    change(document)
    lines[line or 0] = json.dumps(document)
    path.write_text("\n".join(lines) + "\n")
    trace = path.parent if path.parent.name == "trace" else path.parent.parent
    if path.name != "done.json":
        relist(trace)


def to_parquet(trace: Path, folder: str, frame: pl.DataFrame) -> Path:
    """Replace a JSONL segment by a Parquet one."""
    (old,) = (trace / folder).glob("*.jsonl")
    new = old.with_suffix(".parquet")
    frame.write_parquet(new)
    old.unlink()
    done = json.loads((trace / "done.json").read_text())
    done["files"][f"{folder}/{new.name}"] = done["files"].pop(f"{folder}/{old.name}")
    (trace / "done.json").write_text(json.dumps(done))
    relist(trace)
    return new


def test_values_are_read_as_they_were_written(trace: Path) -> None:
    read = read_trace(trace, nonce="n1")
    assert read.steps["step"].to_list() == [0, 1, 2, 3]
    assert read.steps["loss"].to_list() == [2.0, 1.0, 2.0 / 3, 0.5]
    assert read.steps["batch_shape"].to_list() == [[1, 2, 12]] * 4
    assert read.steps["eval_loss"].to_list() == [None] * 4
    assert dict(read.steps.schema) == dtypes("step")
    tokens = read.tokens.collect()
    assert tokens["split"].to_list() == ["train"] * 5 + ["eval", "edge"]
    assert tokens["ids"][0].to_list() == list(b"What?That.")
    assert tokens["mask"][0].to_list() == [0] * 5 + [1] * 5
    assert read.tensors.collect()["sketch"].to_list() == [[0.6, 0.8] + [0.0] * 62]
    assert read.header["nonce"] == read.done["nonce"] == "n1"


def test_what_is_not_finite_becomes_a_float_and_null_stays_null(trace: Path) -> None:
    for line, text in enumerate(("NaN", "Infinity", "-Infinity")):
        edit(trace / "steps.jsonl", lambda row, t=text: row.update(loss=t, eval_loss=t), line)
    steps = read_trace(trace).steps
    assert math.isnan(steps["loss"][0])
    assert steps["loss"].to_list()[1:3] == [math.inf, -math.inf]
    assert steps["eval_loss"].to_list()[1:] == [math.inf, -math.inf, None]


def test_parquet_tables_give_the_same_values_as_jsonl(trace: Path) -> None:
    before = read_trace(trace)
    tokens, tensors = before.tokens.collect(), before.tensors.collect()
    to_parquet(trace, "tokens", tokens)
    to_parquet(trace, "tensors", tensors)
    after = read_trace(trace)
    assert after.tokens.collect().equals(tokens)
    assert after.tensors.collect().equals(tensors)


def test_narrower_integers_and_categories_of_parquet_are_widened(trace: Path) -> None:
    tokens = read_trace(trace).tokens.collect()
    narrow = tokens.with_columns(
        pl.col("index").cast(pl.UInt8),
        pl.col("ids").cast(pl.List(pl.Int64)),
        pl.col("split").cast(pl.Categorical),
    )
    to_parquet(trace, "tokens", narrow)
    assert read_trace(trace).tokens.collect().equals(tokens)


def test_a_render_trace_has_empty_steps_of_the_right_types(tiny: TinyRun, tmp_path: Path) -> None:
    trace = write_trace(tiny, tmp_path / "trace")
    for path in ("steps.jsonl", "tensors/00000000.jsonl"):
        (trace / path).unlink()
    done = json.loads((trace / "done.json").read_text())
    done |= {"mode": "render", "num_steps": 0, "final": None}
    done["files"] = {n: f for n, f in done["files"].items() if n[:3] not in ("ste", "ten")}
    (trace / "done.json").write_text(json.dumps(done))
    edit(trace / "header.json", lambda header: header.update(mode="render"))
    read = read_trace(trace)
    assert dict(read.steps.schema) == dtypes("step")
    assert read.steps.height == read.tensors.collect().height == 0
    assert dict(read.tensors.collect_schema()) == dtypes("tensor_row")


def test_a_trace_without_footer_is_not_finished(trace: Path) -> None:
    (trace / "done.json").unlink()
    assert refusal(trace) == (
        f"{trace} has no done.json, so the leg did not finish; resume it or run it again."
    )


def test_a_leg_s_own_error_is_passed_on(trace: Path) -> None:
    error = {"nonce": "n1", "kind": "bad_input", "message": "chat.jinja does not parse."}
    (trace / "error.json").write_text(json.dumps(error))
    assert refusal(trace, nonce="n1").endswith(
        "the leg ended with an error (bad_input): chat.jinja does not parse."
    )


def test_another_nonce_is_refused_with_both(trace: Path) -> None:
    sentence = refusal(trace, nonce="n2")
    assert "'n1'" in sentence
    assert "'n2'" in sentence


def test_another_config_is_refused_with_both_hashes(trace: Path) -> None:
    found = json.loads((trace / "header.json").read_text())["config_sha256"]
    sentence = refusal(trace, config_sha256="f" * 64)
    assert found in sentence
    assert "f" * 64 in sentence


def test_another_contract_is_refused_with_both(trace: Path) -> None:
    edit(trace / "header.json", lambda header: header.update(contract="2"))
    assert "has the contract '2' and '1' was expected" in refusal(trace)


def test_a_listed_file_that_is_missing_is_named(trace: Path) -> None:
    (trace / "steps.jsonl").unlink()
    assert "steps.jsonl is listed in done.json and cannot be read" in refusal(trace)


def test_a_changed_byte_is_seen_by_the_hash(trace: Path) -> None:
    path = trace / "tokens" / "00000.jsonl"
    path.write_bytes(path.read_bytes().replace(b"What?", b"Who??", 1))
    assert "tokens/00000.jsonl has the hash" in refusal(trace)


def test_a_cut_file_is_told_with_sizes_and_the_line(trace: Path) -> None:
    path = trace / "steps.jsonl"
    whole = path.read_bytes()
    path.write_bytes(whole[:-20])
    sentence = refusal(trace)
    assert f"has {len(whole) - 20} bytes and done.json lists {len(whole)}" in sentence
    assert "its last line (4) was cut in the middle" in sentence


def test_a_cut_last_line_is_refused_even_when_it_is_listed_so(trace: Path) -> None:
    path = trace / "steps.jsonl"
    path.write_bytes(path.read_bytes()[:-20])
    relist(trace)
    assert "steps.jsonl:4: the last line has no line end" in refusal(trace)


def test_a_line_that_is_not_json_is_named(trace: Path) -> None:
    path = trace / "steps.jsonl"
    lines = path.read_text().splitlines()
    path.write_text("\n".join([lines[0], "{oops", *lines[2:]]) + "\n")
    relist(trace)
    assert "steps.jsonl:2: the line is not JSON" in refusal(trace)


def test_a_bare_nan_is_not_json(trace: Path) -> None:
    path = trace / "steps.jsonl"
    path.write_text(path.read_text().replace('"loss": 1.0', '"loss": NaN'))
    relist(trace)
    assert "steps.jsonl:2: the line is not JSON" in refusal(trace)


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"loss": "low"}, "has loss as text that is not a number"),
        ({"loss": True}, "has loss as a boolean that is not a number"),
        ({"step": 1.5}, "has step as a number that is not an integer of at least 0"),
        ({"num_tokens": -1}, "has num_tokens as an integer that is not an integer of at least 0"),
        ({"batch_shape": [1, 2]}, "has batch_shape as a list that is not a list of 3"),
        ({"batch_sha256": "abc"}, "has batch_sha256 as text that is not text matching"),
        ({"grad_norm": None}, "has grad_norm as null that is not a number"),
        ({"extra": 1}, "has unknown 'extra'"),
        ({"examples": ["x" * 257]}, "each text of 1 to 256 characters"),
        ({"examples": ["a\x1b[2J"]}, "256 characters, none of them a control character"),
        ({"batch_sha256": "0" * 64 + "\n"}, "has batch_sha256 as text that is not text matching"),
    ],
)
def test_a_field_off_the_schema_is_named_with_line_and_kind(
    trace: Path, change: dict[str, Any], expected: str
) -> None:
    edit(trace / "steps.jsonl", lambda row: row.update(change), 2)
    sentence = refusal(trace)
    assert "steps.jsonl:3: the row" in sentence
    assert expected in sentence


def test_a_missing_gradient_norm_is_named(trace: Path) -> None:
    edit(trace / "steps.jsonl", lambda row: row.pop("grad_norm"), 1)
    assert "steps.jsonl:2: the row lacks 'grad_norm'" in refusal(trace)


@pytest.mark.parametrize(
    "change",
    [
        {"ids": [SECRET]},
        {"text": [SECRET]},
        {"mask": SECRET},
        {"split": SECRET},
        {"ids": [424242, -1]},
    ],
)
@pytest.mark.parametrize("parquet", [False, True])
def test_messages_hold_neither_text_nor_ids(
    trace: Path, change: dict[str, Any], parquet: bool
) -> None:
    edit(trace / "tokens" / "00000.jsonl", lambda row: row.update(text=SECRET), 0)
    if parquet:
        frame = pl.DataFrame(
            {
                name: [change.get(name, value)] * 7
                for name, value in read_trace(trace).tokens.collect().row(0, named=True).items()
            }
        )
        to_parquet(trace, "tokens", frame)
    else:
        edit(trace / "tokens" / "00000.jsonl", lambda row: row.update(change), 0)
    sentence = refusal(trace)
    assert SECRET not in sentence
    assert "424242" not in sentence
    assert next(iter(change)) in sentence


@pytest.mark.parametrize(
    ("column", "expected"),
    [
        (pl.col("ids").list.eval(pl.element() - 200).alias("ids"), "ids that is not a list, each"),
        ((pl.col("mask") + 1).alias("mask"), "mask that is not a list, each one of 0, 1"),
        (pl.lit(None, pl.String).alias("text"), "text that is not text"),
        (pl.lit("test").alias("split"), "split that is not one of train, eval, edge"),
        (pl.lit("").alias("id"), "id that is not text of 1 to 256 characters"),
        (pl.lit("x" * 257).alias("id"), "id that is not text of 1 to 256 characters"),
        (pl.lit("a\nb").alias("id"), "characters, none of them a control character"),
        (pl.lit("a\x00").alias("id"), "characters, none of them a control character"),
        (pl.lit("b\n").alias("id"), "characters, none of them a control character"),
        ((pl.col("index") - 1).alias("index"), "index that is not an integer of at least 0"),
        (pl.col("ids").list.concat(pl.lit(None, pl.Int32)).alias("ids"), "ids that is not a list"),
    ],
)
def test_each_demand_on_a_parquet_column_can_fail(
    trace: Path, column: pl.Expr, expected: str
) -> None:
    tokens = read_trace(trace).tokens.collect()
    to_parquet(trace, "tokens", tokens.with_columns(column))
    sentence = refusal(trace)
    assert "row 0" in sentence
    assert expected in sentence


def test_a_parquet_column_of_another_type_is_named_with_both(trace: Path) -> None:
    tensors = read_trace(trace).tensors.collect()
    to_parquet(trace, "tensors", tensors.with_columns(pl.col("norm").cast(pl.Float32)))
    assert "column norm is Float32 and should be Float64" in refusal(trace)


def test_a_missing_parquet_column_is_named(trace: Path) -> None:
    to_parquet(trace, "tokens", read_trace(trace).tokens.collect().drop("mask"))
    assert "lacks the columns mask" in refusal(trace)


def test_a_cut_parquet_segment_is_refused(trace: Path) -> None:
    path = to_parquet(trace, "tokens", read_trace(trace).tokens.collect())
    path.write_bytes(path.read_bytes()[:-10])
    relist(trace)
    assert "00000.parquet cannot be read as Parquet" in refusal(trace)


def test_a_sketch_of_63_numbers_is_refused(trace: Path) -> None:
    edit(trace / "tensors" / "00000000.jsonl", lambda row: row.update(sketch=[0.0] * 63))
    assert "has sketch as a list that is not a list of 64" in refusal(trace)


def test_ids_and_mask_of_different_lengths_are_refused(trace: Path) -> None:
    edit(trace / "tokens" / "00000.jsonl", lambda row: row["mask"].pop(), 2)
    assert "row 2 of tokens/ has ids and mask of different lengths" in refusal(trace)


def test_more_ids_than_before_truncation_are_refused(trace: Path) -> None:
    edit(
        trace / "tokens" / "00000.jsonl",
        lambda row: row.update(num_tokens_before_truncation=9),
        3,
    )
    assert "row 3 of tokens/ has more ids than num_tokens_before_truncation" in refusal(trace)


def test_an_example_out_of_order_is_named(trace: Path) -> None:
    edit(trace / "tokens" / "00000.jsonl", lambda row: row.update(index=4), 3)
    assert "row 3 of tokens/ is train 4 and should be train 3" in refusal(trace)


def test_a_repeated_example_is_refused(trace: Path) -> None:
    edit(trace / "tokens" / "00000.jsonl", lambda row: row.update(id="t0"), 4)
    assert "row 4 of tokens/ repeats the id of an earlier example" in refusal(trace)


def test_a_missing_example_is_counted(trace: Path) -> None:
    path = trace / "tokens" / "00000.jsonl"
    path.write_text("".join(path.read_text().splitlines(keepends=True)[:-1]))
    relist(trace)
    assert "tokens/ holds 6 examples and done.json counts 7" in refusal(trace)


def test_a_skipped_step_is_named(trace: Path) -> None:
    edit(trace / "steps.jsonl", lambda row: row.update(step=5), 2)
    assert "steps.jsonl:3: step 5 follows step 1" in refusal(trace)


def test_a_wrong_number_of_steps_is_told_with_both(trace: Path) -> None:
    edit(trace / "done.json", lambda done: done.update(num_steps=9))
    assert "steps.jsonl holds 4 steps and done.json counts 9" in refusal(trace)


def test_a_tensor_recorded_twice_is_refused(trace: Path) -> None:
    path = trace / "tensors" / "00000000.jsonl"
    path.write_text(path.read_text() * 2)
    relist(trace)
    assert "holds init of w at step 0 more than once" in refusal(trace)


def test_a_table_that_the_footer_does_not_list_is_of_another_run(trace: Path) -> None:
    (trace / "tokens" / "00001.jsonl").write_text("")
    assert "tokens/00001.jsonl is not listed in done.json" in refusal(trace)


def unlist(trace: Path, *names: str) -> None:
    edit(trace / "done.json", lambda done: [done["files"].pop(name) for name in names])


def test_steps_that_the_footer_does_not_list_are_refused(trace: Path) -> None:
    unlist(trace, "steps.jsonl")
    edit(trace / "steps.jsonl", lambda row: row.update(loss=9.0))
    assert "done.json does not list steps.jsonl" in refusal(trace)


def test_a_footer_without_a_segment_of_tokens_is_refused(trace: Path) -> None:
    unlist(trace, "tokens/00000.jsonl")
    (trace / "tokens" / "00000.jsonl").unlink()
    assert "done.json lists no file of tokens/" in refusal(trace)


def test_a_render_with_steps_beside_it_is_refused(trace: Path) -> None:
    unlist(trace, "steps.jsonl")
    for name in ("header.json", "done.json"):
        edit(trace / name, lambda document: document.update(mode="render"))
    assert "steps.jsonl is not listed in done.json" in refusal(trace)


def test_a_trace_that_begins_after_step_0_is_refused(trace: Path) -> None:
    path = trace / "steps.jsonl"
    path.write_text("".join(path.read_text().splitlines(keepends=True)[2:]))
    relist(trace)
    edit(trace / "done.json", lambda done: done.update(num_steps=2))
    assert "steps.jsonl:1: the first step is 2 and should be 0" in refusal(trace)


@pytest.mark.parametrize("name", ["header.json", "done.json", "error.json"])
def test_a_document_that_is_nested_too_deep_is_refused(trace: Path, name: str) -> None:
    (trace / name).write_text("[" * 100_000)
    assert f"{name} is not JSON" in refusal(trace)


def test_a_line_that_is_nested_too_deep_is_refused(trace: Path) -> None:
    (trace / "steps.jsonl").write_text("[" * 100_000 + "\n")
    relist(trace)
    assert "steps.jsonl:1: the line is not JSON" in refusal(trace)


def test_a_footer_cannot_name_files_outside_the_trace(trace: Path) -> None:
    edit(
        trace / "done.json",
        lambda done: done["files"].update({"../../secret": {"sha256": "0" * 64, "num_bytes": 1}}),
    )
    assert "lists '../../secret', which is no file of a trace" in refusal(trace)


@pytest.mark.parametrize(
    ("name", "change", "expected"),
    [
        ("header.json", lambda d: d.pop("facts"), "lacks key 'facts'"),
        ("header.json", lambda d: d.update(mood="good"), "has unknown key 'mood'"),
        ("header.json", lambda d: d["facts"].pop("dtypes"), "facts lacks key 'dtypes'"),
        ("header.json", lambda d: d["facts"].update(seed="3"), "facts.seed is text"),
        ("header.json", lambda d: d["provenance"].update(threads=0), "should be at least 1"),
        ("done.json", lambda d: d.update(num_steps="4"), "num_steps is text"),
        ("done.json", lambda d: d.update(nonce="n9"), "nonce is 'n1' in header.json and 'n9'"),
        ("done.json", lambda d: d["files"].pop("header.json"), "does not list header.json"),
    ],
)
def test_a_document_off_the_schema_is_named_with_its_field(
    trace: Path, name: str, change: Callable[[Any], None], expected: str
) -> None:
    edit(trace / name, change)
    sentence = refusal(trace)
    assert name in sentence
    assert expected in sentence


def test_a_footer_that_is_cut_is_no_footer(trace: Path) -> None:
    (trace / "done.json").write_text('{"nonce": ')
    assert "done.json is not JSON" in refusal(trace)


def test_a_file_is_not_a_trace(tiny: TinyRun) -> None:
    assert "is not a directory" in refusal(tiny.config)


@pytest.mark.parametrize(("name", "field"), [("steps.jsonl", "examples"), ("tokens", "text")])
def test_half_of_a_surrogate_pair_is_no_text(trace: Path, name: str, field: str) -> None:
    path = trace / name if name.endswith(".jsonl") else next((trace / name).glob("*.jsonl"))
    half = "\ud800" + SECRET
    edit(path, lambda row: row.update({field: [half] if field == "examples" else half}), 1)
    sentence = refusal(trace)
    assert f"{path.name}" in sentence
    assert "surrogate" in sentence
    assert SECRET not in sentence
