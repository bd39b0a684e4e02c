"""Cases of S-10 and S-11. Hashes of hand-worked steps come from `sha256sum` on bytes in hex."""

from typing import Any

from tests.reference.case import Case, Clause, computed, hand

Example = dict[str, list[int]]


def e(ids: list[int], mask: list[int] | None = None) -> Example:
    """An example; every token is a target when no mask is given."""
    return {"ids": ids, "mask": mask if mask is not None else [1] * len(ids)}


def _given(rows: list[list[Example]], **changes: Any) -> dict[str, Any]:
    given: dict[str, Any] = {
        "rows": rows,
        "pad_id": 0,
        "padding_side": "right",
        "pad_multiple": 4,
        "micro_batch_size": 1,
        "accumulation_steps": 1,
    }
    return given | changes


def _case(name: str, rows: list[list[Example]], **changes: Any) -> Case:
    return computed(name, "batches", _given(rows, **changes))


RIGHT = {
    "input_ids": [[[5, 6, 7, 0]]],
    "segments": [[[1, 1, 1, 0]]],
    "positions": [[[0, 1, 2, 0]]],
    "labels": [[[-100, 6, 7, -100]]],
    "batch_sha256": "8335d1f70573db38d5e58ad40c3c8643f06f3114c7d4d6ed24e292637cab0c66",
    "num_tokens": 3,
    "num_targets": 2,
}
LEFT = {
    "input_ids": [[[9, 5, 6, 7]]],
    "segments": [[[0, 1, 1, 1]]],
    "positions": [[[0, 0, 1, 2]]],
    "labels": [[[-100, -100, 6, 7]]],
    "batch_sha256": "83062585271021af206a80ba8cafc7f147a9131f831bc6da7df8a96f67a004e8",
    "num_tokens": 3,
    "num_targets": 2,
}
PACKED = {
    "input_ids": [[[4, 5, 6, 7, 8, 0]]],
    "segments": [[[1, 1, 2, 2, 2, 0]]],
    "positions": [[[0, 1, 0, 1, 2, 0]]],
    "labels": [[[-100, 5, -100, 7, 8, -100]]],
    "batch_sha256": "dd70b5d10791900d865b284dc9cdbabb6b51e19425d97ffbffa8586f7a929c0b",
    "num_tokens": 5,
    "num_targets": 3,
}

SHORT = [[e([10 + i])] for i in range(5)]
MIXED = [
    [e([11, 12, 13, 14, 15], [0, 0, 1, 1, 0])],
    [e([21, 22], [0, 1])],
    [e([31, 32, 33], [1, 0, 1])],
    [e([41, 42, 43, 44, 45, 46, 47], [0, 0, 0, 0, 1, 1, 1])],
    [e([51, 52, 53], [0, 0, 0])],
    [e([61], [1])],
    [e([71, 72, 73, 74], [1, 1, 1, 1])],
]
PACKS = [
    [e([11, 12, 13], [0, 1, 1]), e([21, 22], [1, 1]), e([31], [1])],
    [e([41, 42, 43, 44, 45], [0, 0, 1, 0, 1])],
    [e([51, 52], [0, 1]), e([61, 62, 63], [1, 0, 1])],
]

CASES = [
    hand("right padding", "batches", _given([[e([5, 6, 7])]]), {"steps": [RIGHT]}),
    hand(
        "left padding",
        "batches",
        _given([[e([5, 6, 7])]], padding_side="left", pad_id=9),
        {"steps": [LEFT]},
    ),
    hand(
        "packed segments: the first token of a segment is no target",
        "batches",
        _given([[e([4, 5]), e([6, 7, 8])]], pad_multiple=6),
        {"steps": [PACKED]},
    ),
    hand(
        "the mask of a first token changes nothing",
        "batches",
        _given([[e([4, 5], [0, 1]), e([6, 7, 8], [0, 1, 1])]], pad_multiple=6),
        {"steps": [PACKED]},
    ),
    _case("micro-batch of a row is k // B", MIXED, micro_batch_size=2, accumulation_steps=2),
    _case("one micro-batch of four rows", MIXED, micro_batch_size=4),
    _case("four micro-batches of one row", MIXED, accumulation_steps=4),
    _case(
        "left padding with filler rows",
        MIXED,
        padding_side="left",
        micro_batch_size=3,
        accumulation_steps=2,
    ),
    _case(
        "filler rows fill whole micro-batches",
        MIXED[:1],
        micro_batch_size=2,
        accumulation_steps=3,
    ),
    _case("rows that divide evenly leave no filler", MIXED[:4], micro_batch_size=2),
    _case("T is set by each step alone", MIXED, micro_batch_size=1, pad_multiple=2),
    _case("pad multiple 1", MIXED, micro_batch_size=7, pad_multiple=1),
    _case("longest row is a multiple already", [[e([*range(1, 9)])]], pad_multiple=8),
    _case("one token above a multiple", [[e([*range(1, 10)])]], pad_multiple=8),
    _case("rows of one token have no target", SHORT, micro_batch_size=5, pad_multiple=1),
    _case(
        "T is shared by the micro-batches of a step",
        [[e([1])], [e([1, 2, 3, 4, 5, 6])]],
        accumulation_steps=2,
        pad_multiple=1,
    ),
    _case(
        "a token that equals the pad id is a token",
        [[e([7, 0, 0], [0, 1, 1])], [e([0, 7], [1, 1])]],
        micro_batch_size=2,
    ),
    _case(
        "a token that equals the pad id under left padding",
        [[e([0, 0, 7], [1, 1, 1])]],
        padding_side="left",
    ),
    _case("id 0 is a target when it is masked in", [[e([3, 0], [0, 1])]], pad_id=2),
    _case("no target in the step", [[e([1, 2, 3], [0, 0, 0])]]),
    _case("only the first token is masked in", [[e([1, 2, 3], [1, 0, 0])]]),
    _case("only the last token is a target", [[e([1, 2, 3], [0, 0, 1])]], pad_multiple=3),
    _case("packing, right padding", PACKS, micro_batch_size=2, accumulation_steps=2),
    _case(
        "packing, left padding",
        PACKS,
        micro_batch_size=2,
        accumulation_steps=1,
        padding_side="left",
    ),
    _case(
        "packing of single tokens has no target",
        [[e([7]), e([8]), e([9])]],
        pad_multiple=1,
    ),
    _case("large ids are four bytes", [[e([151643, 65536, 256])]], pad_id=151645),
]
LABELS = ("segment", "mask", "target", "pad id")  # words in the names of cases about labels


def _is_about_labels(case: Case) -> bool:
    return any(word in case.name for word in LABELS)


CLAUSES = [
    Clause(
        clause="S-10",
        note="Exact. Labels are those of S-11.",
        cases=[case for case in CASES if not _is_about_labels(case)],
    ),
    Clause(clause="S-11", note="Exact.", cases=[case for case in CASES if _is_about_labels(case)]),
]
