"""Cases of S-14."""

import math
from typing import Any

from tests.reference.case import Case, Clause, computed, hand
from tests.reference.cases.model import GRADIENTS

LN2, LN4 = math.log(2.0), math.log(4.0)


def wave(*shape: int, scale: float = 1.0, seed: int = 0) -> Any:
    """A nested list of multiples of 1/64 that look random and are exact in every precision."""

    def build(dims: tuple[int, ...], start: int) -> Any:
        if not dims:
            return ((start * 7919 + seed * 104729 + 13) * 2654435761 % 4096 - 2048) / 1024 * scale
        step = math.prod(dims[1:])
        return [build(dims[1:], start + i * step) for i in range(dims[0])]

    return build(shape, 0)


def _case(name: str, logits: Any, labels: Any, *, rtol: float = 2e-14, atol: float = 0.0) -> Case:
    return computed(name, "loss", {"logits": logits, "labels": labels}, rtol=rtol, atol=atol)


X = -100
CASES = [
    # uniform over two words: each target costs ln 2; the gradient is (p - 1{y}) / n
    hand(
        "uniform logits cost ln 2",
        "loss",
        {"logits": [[[[0, 0], [0, 0], [5, -5]]]], "labels": [[[X, 1, 0]]]},
        {
            "loss": LN2,
            "num_targets": 2,
            "grad_logits": [[[[0.25, -0.25], [-0.25, 0.25], [0.0, 0.0]]]],
        },
        1e-15,
    ),
    # micro-batch 0: two targets at ln 4 each; micro-batch 1: one target of cost 0 (certain)
    # loss = 2 ln 4 / 3; the mean of the micro-batches' means would be ln 4 / 2
    hand(
        "tokens are averaged, not micro-batches",
        "loss",
        {
            "logits": [
                [[[0, 0, 0, 0], [1, 1, 1, 1], [0, 0, 0, 0]]],
                [[[2000, 0, 0, 0], [0, 0, 0, 0], [0, 0, 0, 0]]],
            ],
            "labels": [[[X, 2, 0]], [[X, 0, X]]],
        },
        {
            "loss": 2 * LN4 / 3,
            "num_targets": 3,
            "grad_logits": [
                [[[1 / 12, 1 / 12, -0.25, 1 / 12], [-0.25, 1 / 12, 1 / 12, 1 / 12], [0.0] * 4]],
                [[[0.0] * 4, [0.0] * 4, [0.0] * 4]],
            ],
        },
        1e-15,
    ),
    # a certain mistake: -log softmax = 1000, no overflow
    hand(
        "logits of 1000 do not overflow",
        "loss",
        {"logits": [[[[1000, 0], [0, 0]]]], "labels": [[[X, 1]]]},
        {"loss": 1000.0, "num_targets": 1, "grad_logits": [[[[1.0, -1.0], [0.0, 0.0]]]]},
        1e-15,
    ),
    hand(
        "no label at all: loss 0, gradient 0",
        "loss",
        {"logits": [[[[1, 2], [3, 4]]], [[[5, 6], [7, 8]]]], "labels": [[[X, X]], [[X, X]]]},
        {
            "loss": 0.0,
            "num_targets": 0,
            "grad_logits": [[[[0.0, 0.0], [0.0, 0.0]]], [[[0.0, 0.0], [0.0, 0.0]]]],
        },
    ),
    # ln 4: softmax of (ln 1, ln 3) is (1/4, 3/4)
    hand(
        "softmax of ln 3",
        "loss",
        {"logits": [[[[0, math.log(3.0)], [9, 9]]]], "labels": [[[X, 0]]]},
        {"loss": LN4, "num_targets": 1, "grad_logits": [[[[-0.75, 0.75], [0.0, 0.0]]]]},
        1e-15,
    ),
    hand(
        "an ignored position with enormous logits adds nothing",
        "loss",
        {"logits": [[[[0, 0], [1e308, -1e308], [0, 0]]]], "labels": [[[X, 1, X]]]},
        {
            "loss": LN2,
            "num_targets": 1,
            "grad_logits": [[[[0.5, -0.5], [0.0, 0.0], [0.0, 0.0]]]],
        },
        1e-15,
    ),
    _case(
        "a micro-batch without a label",
        wave(2, 2, 4, 5),
        [[[X, 1, X, 4], [X, X, 0, 3]], [[X] * 4, [X] * 4]],
    ),
    _case(
        "a row without a label",
        wave(1, 3, 4, 6, seed=2),
        [[[X, 5, 0, 1], [X] * 4, [X, X, X, 2]]],
    ),
    _case(
        "unequal numbers of targets in three micro-batches",
        wave(3, 1, 6, 7, scale=2.0, seed=3),
        [[[X, 0, 1, 2, 3, 4]], [[X, X, X, X, X, 6]], [[X, X, 5, 5, X, X]]],
    ),
    _case(
        "first and last word of the vocabulary",
        wave(1, 1, 5, 9, seed=4),
        [[[X, 0, 8, 0, 8]]],
    ),
    _case(
        "the last logits are never used",
        [[[[0.5, -0.5, 0.25], [1.0, 2.0, -1.0], [700.0, -700.0, 0.0]]]],
        [[[X, 2, 0]]],
    ),
    _case(
        "constant offset of the logits",
        [[[[300.5, 301.0, 299.75], [-500.0, -500.5, -501.0], [0.0, 0.0, 0.0]]]],
        [[[X, 1, 2]]],
    ),
    _case(
        "confident logits",
        wave(1, 2, 6, 8, scale=10.0, seed=5),
        [[[X, 1, 2, 3, 4, 5], [X, 7, 6, 5, 4, 3]]],
        rtol=1e-13,
        atol=1e-16,
    ),
    _case("one position has no target", [[[[1.0, 2.0, 3.0]]]], [[[X]]]),
]

CLAUSE = Clause(
    clause="S-14",
    note=(
        "One log-sum-exp and a short sum: 2e-14 is a hundred units in the last place. A confident"
        " position loses digits in p - 1, hence its atol of 1e-16 (half a unit of 1, over n)."
        " Gradients of a model are sums that cancel: float64 arithmetic uses at most a fifth of"
        " rtol 1e-12 with atol 1e-14, and of rtol 1e-11 with atol 1e-13 where logits are large."
    ),
    cases=CASES + GRADIENTS,
)
