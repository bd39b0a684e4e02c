"""Cases of S-12 and S-13 (logits) and of S-14 with S-15 (gradients) on tiny checkpoints."""

from typing import Any

from tests.reference.case import Case, Clause, computed, refused
from tests.reference.cases.checkpoints import BROKEN, BROKEN_CONFIGS

Grid = list[list[int]]
X = -100


def _rows(input_ids: Grid, segments: Grid, positions: Grid) -> dict[str, Any]:
    return {"input_ids": input_ids, "segments": segments, "positions": positions}


# Three rows of ten positions nearly everywhere: a stack compiles once for each model
FULL = [3, 1, 4, 1, 5, 2, 6, 0, 7, 5]
RIGHT = _rows(  # a full row, right padding, a filler row
    [FULL, [6, 2, 7, 0, 0, 0, 0, 0, 0, 0], [0] * 10],
    [[1] * 10, [1, 1, 1, 0, 0, 0, 0, 0, 0, 0], [0] * 10],
    [[*range(10)], [0, 1, 2, 0, 0, 0, 0, 0, 0, 0], [0] * 10],
)
LEFT = _rows(  # left padding, one token alone, a full row
    [[0, 0, 0, 0, 0, 0, 3, 1, 4, 1], [0] * 9 + [6], FULL],
    [[0, 0, 0, 0, 0, 0, 1, 1, 1, 1], [0] * 9 + [1], [1] * 10],
    [[0, 0, 0, 0, 0, 0, 0, 1, 2, 3], [0] * 10, [*range(10)]],
)
PACKED = _rows(  # padded on the right, full, padded on the left
    [[3, 1, 4, 1, 5, 6, 2, 7, 0, 0], [2] * 10, [0, 0, 0, 3, 1, 4, 1, 5, 2, 6]],
    [
        [1, 1, 1, 2, 2, 3, 3, 3, 0, 0],
        [1, 2, 2, 2, 2, 2, 3, 3, 3, 3],
        [0, 0, 0, 1, 1, 1, 2, 2, 3, 3],
    ],
    [
        [0, 1, 2, 0, 1, 0, 1, 2, 0, 0],
        [0, 0, 1, 2, 3, 4, 0, 1, 2, 3],
        [0, 0, 0, 0, 1, 2, 0, 1, 0, 1],
    ],
)
LONG = _rows([[i * 5 % 8 for i in range(40)]], [[1] * 40], [[*range(40)]])
ONE = _rows([[4]], [[1]], [[0]])
SMALL = _rows([[3, 1, 4, 1]], [[1] * 4], [[0, 1, 2, 3]])
INPUTS = {
    "full row, right padding and a filler row": RIGHT,
    "left padding": LEFT,
    "packed": PACKED,
}
MODELS = {
    "tied": "tied",
    "untied, one key/value head, biases": "untied",
    "qwen2, BF16, two shards": "qwen",
    "square matrices, F16": "square",
    "large logits": "trained",
}


def _logits(name: str, checkpoint: str, rows: dict[str, Any], attention: str = "eager") -> Case:
    given = {"checkpoint": f"checkpoints/{checkpoint}", **rows, "attention": attention}
    return computed(name, "logits", given, rtol=1e-12, atol=1e-13)


LOGITS = [
    *(
        _logits(f"{model}: {name}", checkpoint, rows)
        for model, checkpoint in MODELS.items()
        for name, rows in INPUTS.items()
    ),
    _logits("tied: one position", "tied", ONE),
    _logits("large logits: forty positions", "trained", LONG),
    _logits("fused, tied: packed", "tied", PACKED, "fused"),
    _logits("fused, tied: left padding", "tied", LEFT, "fused"),
    _logits("fused, untied: right padding and a filler row", "untied", RIGHT, "fused"),
    _logits("fused, qwen2: packed", "qwen", PACKED, "fused"),
    _logits("both places of the RoPE base agree", "both-bases", SMALL),
    *(
        refused(
            f"refused: {name}",
            "logits",
            {"checkpoint": f"checkpoints/broken-{name}", **SMALL, "attention": "eager"},
        )
        for name in BROKEN_CONFIGS
    ),
]

CHECKPOINTS = [
    _logits("a tied file that repeats the head", "head-copy", SMALL),
    _logits("rope_scaling of type default", "old-scaling", SMALL),
    _logits("the single file wins over an index", "single-and-index", SMALL),
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


RIGHT_LABELS = [[X, 1, 4, X, X, 2, 6, 0, X, 5], [X, 2, X, X, X, X, X, X, X, X], [X] * 10]
LEFT_LABELS = [[X, X, X, X, X, X, X, 1, X, 1], [X] * 10, [X, X, 4, 1, 5, X, X, X, 7, X]]
PACKED_LABELS = [
    [X, 1, 4, X, 5, X, X, 7, X, X],
    [X, X, 2, 2, X, X, X, 2, 2, 2],
    [X, X, X, X, X, 4, X, 5, X, 6],
]
ONE_LABEL = [[X] * 10, [X] * 10, [X] * 9 + [5]]
NONE = [[X] * 10] * 3
PADDED_STEP = [(RIGHT, RIGHT_LABELS), (LEFT, LEFT_LABELS)]
PACKED_STEP = [(PACKED, PACKED_LABELS), (LEFT, ONE_LABEL)]
GRADIENTS = [
    *(
        _gradients(f"{model}: {name}", checkpoint, step)
        for model, checkpoint in MODELS.items()
        for name, step in (("padded", PADDED_STEP), ("packed", PACKED_STEP))
    ),
    _gradients("tied: a micro-batch without a label", "tied", [(LEFT, NONE), (LEFT, LEFT_LABELS)]),
    _gradients("tied: no label at all", "tied", [(LEFT, NONE), (LEFT, NONE)]),
    _gradients("fused, tied: packed", "tied", PACKED_STEP, "fused"),
    _gradients("fused, untied: padded", "untied", PADDED_STEP, "fused"),
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
