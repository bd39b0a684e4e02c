"""Cases of S-12 and S-13 (logits) and of S-14 with S-15 (gradients) on tiny checkpoints."""

from typing import Any

from tests.reference.case import Case, Clause, computed, refused
from tests.reference.cases.checkpoints import BROKEN

Grid = list[list[int]]
X = -100


def _rows(input_ids: Grid, segments: Grid, positions: Grid) -> dict[str, Any]:
    return {"input_ids": input_ids, "segments": segments, "positions": positions}


FULL = _rows([[3, 1, 4, 1, 5, 2, 6, 0]], [[1] * 8], [[*range(8)]])
RIGHT = _rows(
    [[3, 1, 4, 1, 5, 2], [6, 2, 7, 0, 0, 0], [0] * 6],
    [[1] * 6, [1, 1, 1, 0, 0, 0], [0] * 6],
    [[*range(6)], [0, 1, 2, 0, 0, 0], [0] * 6],
)
LEFT = _rows(
    [[3, 1, 4, 1, 5, 2], [0, 0, 0, 6, 2, 7]],
    [[1] * 6, [0, 0, 0, 1, 1, 1]],
    [[*range(6)], [0, 0, 0, 0, 1, 2]],
)
PACKED = _rows(
    [[3, 1, 4, 1, 5, 6, 2, 7, 0, 0], [2, 2, 2, 2, 2, 2, 2, 2, 2, 2]],
    [[1, 1, 1, 2, 2, 3, 3, 3, 0, 0], [1, 2, 2, 2, 2, 2, 3, 3, 3, 3]],
    [[0, 1, 2, 0, 1, 0, 1, 2, 0, 0], [0, 0, 1, 2, 3, 4, 0, 1, 2, 3]],
)
PACKED_LEFT = _rows([[0, 0, 3, 1, 4, 1, 5]], [[0, 0, 1, 1, 1, 2, 2]], [[0, 0, 0, 1, 2, 0, 1]])
LONG = _rows([[i * 5 % 8 for i in range(40)]], [[1] * 40], [[*range(40)]])
ONE = _rows([[4]], [[1]], [[0]])
PADDING = _rows([[0, 0, 0]], [[0] * 3], [[0] * 3])
SMALL = _rows([[3, 1, 4, 1]], [[1] * 4], [[0, 1, 2, 3]])
INPUTS = {
    "full row": FULL,
    "right padding and a filler row": RIGHT,
    "left padding": LEFT,
    "packed": PACKED,
    "packed, left padding": PACKED_LEFT,
    "forty positions": LONG,
    "one position": ONE,
    "padding alone": PADDING,
}


def _logits(name: str, checkpoint: str, rows: dict[str, Any], attention: str = "eager") -> Case:
    given = {"checkpoint": f"checkpoints/{checkpoint}", **rows, "attention": attention}
    return computed(name, "logits", given, rtol=1e-12, atol=1e-13)


LOGITS = [
    *(_logits(f"tied: {name}", "tied", rows) for name, rows in INPUTS.items()),
    *(
        _logits(f"untied, one key/value head, biases: {name}", "untied", INPUTS[name])
        for name in ("full row", "left padding", "packed", "one position")
    ),
    *(
        _logits(f"qwen2, BF16, two shards: {name}", "qwen", INPUTS[name])
        for name in ("full row", "right padding and a filler row", "packed")
    ),
    *(
        _logits(f"square matrices, F16: {name}", "square", INPUTS[name])
        for name in ("full row", "left padding", "packed")
    ),
    *(
        _logits(f"large logits: {name}", "trained", INPUTS[name])
        for name in ("full row", "forty positions", "packed, left padding")
    ),
    _logits("fused, tied: packed", "tied", PACKED, "fused"),
    _logits("fused, tied: left padding", "tied", LEFT, "fused"),
    _logits("fused, untied: right padding and a filler row", "untied", RIGHT, "fused"),
    _logits("fused, qwen2: packed, left padding", "qwen", PACKED_LEFT, "fused"),
]

CHECKPOINTS = [
    _logits("a tied file that repeats the head", "head-copy", SMALL),
    _logits("rope_scaling of type default", "old-scaling", SMALL),
    *(
        refused(
            f"refused: {name}",
            "logits",
            {"checkpoint": f"checkpoints/broken-{name}", **SMALL, "attention": "eager"},
        )
        for name in BROKEN
    ),
]


def _gradients(
    name: str, checkpoint: str, steps: list[tuple[dict[str, Any], Grid]], attention: str = "eager"
) -> Case:
    """Micro-batches of rows and their labels; all of one shape."""
    given: dict[str, Any] = {"checkpoint": f"checkpoints/{checkpoint}"}
    for key in ("input_ids", "segments", "positions"):
        given[key] = [rows[key] for rows, _ in steps]
    given |= {"labels": [labels for _, labels in steps], "attention": attention}
    rtol, atol = (1e-11, 1e-13) if checkpoint == "trained" else (1e-12, 1e-14)
    return computed(name, "gradients", given, rtol=rtol, atol=atol)


FULL_LABELS = [[X, 1, 4, 1, 5, 2, 6, 0]]
RIGHT_LABELS = [[X, X, 4, 1, 5, 2], [X, 2, X, X, X, X], [X] * 6]
LEFT_LABELS = [[X, 1, X, X, 5, 2], [X, X, X, X, 2, 7]]
PACKED_LABELS = [[X, 1, 4, X, 5, X, X, 7, X, X], [X, X, 2, 2, X, X, X, 2, 2, 2]]
NONE = [[X] * 6, [X] * 6]
GRADIENTS = [
    _gradients("tied", "tied", [(FULL, FULL_LABELS)]),
    _gradients("tied, padded and filled", "tied", [(RIGHT, RIGHT_LABELS)]),
    _gradients("tied, packed", "tied", [(PACKED, PACKED_LABELS)]),
    _gradients(
        "tied, two micro-batches",
        "tied",
        [(LEFT, LEFT_LABELS), (LEFT, [[X, X, X, X, X, 2], [X] * 6])],
    ),
    _gradients("tied, a micro-batch without a label", "tied", [(LEFT, NONE), (LEFT, LEFT_LABELS)]),
    _gradients("no label at all", "tied", [(LEFT, NONE), (LEFT, NONE)]),
    _gradients("untied, one key/value head, biases", "untied", [(FULL, FULL_LABELS)]),
    _gradients("untied, left padding", "untied", [(LEFT, LEFT_LABELS)]),
    _gradients("untied, packed", "untied", [(PACKED, PACKED_LABELS)]),
    _gradients("qwen2", "qwen", [(FULL, FULL_LABELS)]),
    _gradients("qwen2, packed", "qwen", [(PACKED, PACKED_LABELS)]),
    _gradients("square matrices", "square", [(RIGHT, RIGHT_LABELS)]),
    _gradients("large logits", "trained", [(FULL, FULL_LABELS)]),
    _gradients("fused, tied, packed", "tied", [(PACKED, PACKED_LABELS)], "fused"),
    _gradients("fused, untied, left padding", "untied", [(LEFT, LEFT_LABELS)], "fused"),
]

CLAUSES = [
    Clause(
        clause="S-12",
        note=(
            "Two layers of sums over at most 20 products: float64 arithmetic uses at most a tenth"
            " of rtol 1e-12 with atol 1e-13 (logits reach 23 and some cancel); the rest is room for"
            " another order of summation and other exponentials."
        ),
        cases=LOGITS,
    ),
    Clause(clause="S-13", note="As S-12.", cases=CHECKPOINTS),
]
