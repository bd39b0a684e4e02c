"""The learning rate of every update (S-17).

`number` is the floating type of the evaluation: float64 by default; the golden vectors are
evaluated in extended precision and rounded once.
"""

import numpy as np

Number = type[np.floating]


def learning_rate(
    kind: str,
    *,
    rate: float,
    warmup_steps: int,
    num_steps: int,
    min_ratio: float,
    update: int,
    number: Number = np.float64,
) -> np.floating:
    """lr(t) for `update` = t in 0..num_steps; `rate` is the full rate η."""
    one, eta, ratio = number(1), number(rate), number(min_ratio)
    if update < warmup_steps:
        return eta * number(update + 1) / number(warmup_steps + 1)
    denominator = num_steps - 1 - warmup_steps
    p = number(update - warmup_steps) / number(denominator) if denominator else number(0)
    if kind == "constant":
        return eta
    if kind == "linear":
        return eta * (one - (one - ratio) * p)
    assert kind == "cosine", kind
    pi = number(4) * np.arctan(one)
    rate_now: np.floating = eta * (ratio + (one - ratio) * (one + np.cos(pi * p)) / number(2))
    return rate_now
