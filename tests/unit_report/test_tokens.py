import hashlib
import json
from dataclasses import replace

import numpy as np
import pytest

from oracle.align import example_rows
from oracle.report.facts import echo_rows, provenance_rows
from oracle.report.tokens import Names, example, spaced
from oracle.report.vocabulary import byte_of, names
from tests.unit_report.scenes import CANARY, CANARY_ID, EXAMPLE, ids, mask, text


def aligned(scene, reveal=False):
    legs = (Names.of(scene.a, reveal=reveal), Names.of(scene.b, reveal=reveal))
    rows = tuple(example_rows(trace, [EXAMPLE])[EXAMPLE] for trace in (scene.a, scene.b))
    return example(legs, rows)


def test_a_mask_difference_is_three_cells_between_folds():
    found = aligned(mask())
    assert found.num_different == 3
    assert [c.num_folded for c in found.cells if c.num_folded] == [31, 10]
    parted = [c for c in found.cells if not c.num_folded and not c.same]
    assert [(c.a.position, c.a.target, c.b.target) for c in parted] == [
        (37, True, False),
        (38, True, False),
        (39, True, False),
    ]
    assert all(c.same_token for c in found.cells)


def test_an_inserted_token_shifts_nothing_after_it():
    found = aligned(ids())
    first = found.cells[0]
    assert first.a is None
    assert (first.b.position, first.b.name, first.b.control) == (0, "<|endoftext|>", True)
    assert found.num_different == 2
    assert (found.num_a, found.num_b) == (56, 57)


def test_folds_and_cells_cover_every_token():
    found = aligned(ids())
    num_a = sum(c.num_folded or (c.a is not None) for c in found.cells)
    num_b = sum(c.num_folded or (c.b is not None) for c in found.cells)
    assert (num_a, num_b) == (56, 57)


def test_unrevealed_nothing_of_ordinary_tokens_or_text_is_kept():
    for scene in (mask(), ids(), text()):
        kept = repr(aligned(scene))
        assert CANARY not in kept
        assert str(CANARY_ID)[:4] not in kept
        named = [t.name for c in aligned(scene).cells for t in (c.a, c.b) if t and t.name]
        assert set(named) <= {"<|endoftext|>", "<|im_start|>", "<|im_end|>"}


def test_text_pieces_are_ranges_and_with_reveal_visible_white_space():
    assert [(p.op, p.a, p.text_a) for p in aligned(text()).pieces] == [
        ("insert", (95, 95), None),
        ("delete", (105, 106), None),
    ]
    shown = aligned(text(), reveal=True).pieces
    assert [p.text_b for p in shown if p.op == "insert"] == ["⏎→"]
    assert spaced("a b\n\t\x1b") == "a·b⏎→\\x1b"


def test_revealed_tokens_are_named_by_the_tokenizer_of_the_run_only(tmp_path):
    scene = mask()
    trace = replace(scene.a, path=tmp_path / "torch")
    assert names(trace) == {}
    table = {byte: c for c, byte in byte_of().items()}
    token = "".join(table[byte] for byte in " é\n".encode())
    vocab = {c: 300 + k for k, c in enumerate(sorted(table.values()))} | {token: CANARY_ID}
    file = tmp_path / "tokenizer.json"
    model = {"type": "BPE", "vocab": vocab, "merges": []}
    split = {
        "type": "ByteLevel",
        "add_prefix_space": False,
        "use_regex": True,
        "trim_offsets": True,
    }
    file.write_text(json.dumps({"model": model, "normalizer": None, "pre_tokenizer": split}))
    digest = hashlib.sha256(file.read_bytes()).hexdigest()
    trace.header["facts"]["files"]["tokenizer"] = digest
    (tmp_path / "bundle").mkdir()
    bundle = {"config_sha256": "0" * 64, "files": {str(file): digest}}
    (tmp_path / "bundle" / "bundle.json").write_text(json.dumps(bundle))
    assert names(trace)[CANARY_ID] == " é\n"
    assert Names.of(trace, reveal=True).name(CANARY_ID) == "·é⏎"
    assert Names.of(trace, reveal=False).name(CANARY_ID) is None
    file.write_text(file.read_text() + " ")
    assert names(trace) == {}


def test_the_byte_table_is_the_one_of_gpt2():
    table = byte_of()
    assert len(table) == 256
    assert (table["Ġ"], table["Ċ"], table["a"], table["ł"]) == (32, 10, 97, 160)


def test_echo_rows_say_what_differs_and_never_drop_it():
    scene = mask()
    many = {f"t{k}": {"shape": [k]} for k in range(2000)}
    scene.a.header["facts"] |= {"parameters": many, "seed": 18}
    scene.b.header["facts"] |= {"parameters": many | {"t1999": {"shape": [7]}}}
    rows = echo_rows(scene.a, scene.b)
    parted = {row.name: (row.a, row.b) for row in rows if not row.equal}
    assert parted == {
        "seed": ("18", "17"),
        "parameters.t1999": ('{"shape": [1999]}', '{"shape": [7]}'),
    }
    assert len(rows) < 700


def test_provenance_without_a_trace_is_what_the_verdict_knows():
    scene = mask()
    rows = {row.name: (row.a, row.b) for row in provenance_rows(scene.verdict, None, None)}
    assert rows["stack"] == ("torch_stack", "jax_stack")
    assert rows["versions.torch"] == ("2.13.0", "absent")


@pytest.mark.parametrize(
    ("a", "b", "shown"),
    [
        # "ser" is equal by chance: one difference, not three.
        ("User: ok then", "<|x|>user\nok then", [("User: ", "<|x|>user\n")]),
        ("keep this, and that.", "Keep this, and that!", [("k", "K"), (".", "!")]),
        ("ab", "ba", [("ab", "ba")]),
        ("same", "same tail", [("", " tail")]),
    ],
)
def test_letters_that_are_equal_by_chance_do_not_cut_a_difference(a, b, shown):
    names = (Names(control={}, ordinary={}, reveal=True),) * 2
    rows = tuple(
        {"split": "train", "id": "x", "text": whole, "ids": np.array([1]), "mask": np.array([0])}
        for whole in (a, b)
    )
    pieces = example(names, rows).pieces
    assert [(p.text_a, p.text_b) for p in pieces if p.op != "equal"] == [
        (spaced(left), spaced(right)) for left, right in shown
    ]
    for leg, whole in (("a", a), ("b", b)):
        ends = [getattr(piece, leg) for piece in pieces]
        assert "".join(whole[i:j] for i, j in ends) == whole
