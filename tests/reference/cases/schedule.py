"""Cases of S-17."""

from typing import Any

from tests.reference.case import Case, Clause, computed, hand


def _given(kind: str, *, rate: float, warmup: int, steps: int, ratio: float) -> dict[str, Any]:
    return {
        "kind": kind,
        "learning_rate": rate,
        "warmup_steps": warmup,
        "num_steps": steps,
        "min_ratio": ratio,
    }


def _hand(name: str, kind: str, shape: tuple[float, int, int, float], lr: list[float]) -> Case:
    rate, warmup, steps, ratio = shape
    given = _given(kind, rate=rate, warmup=warmup, steps=steps, ratio=ratio)
    return hand(name, "schedule", given, {"lr": lr}, 4e-15)


def _case(
    name: str, kind: str, shape: tuple[float, int, int, float], *, rtol: float = 4e-15
) -> Case:
    rate, warmup, steps, ratio = shape
    given = _given(kind, rate=rate, warmup=warmup, steps=steps, ratio=ratio)
    return computed(name, "schedule", given, rtol=rtol)


HALF_ROOT = 0.7071067811865475244  # cos 45°
CASES = [
    # (rate, warm-up, steps, floor)
    _hand("linear to zero", "linear", (3.0, 2, 6, 0.0), [1.0, 2.0, 3.0, 2.0, 1.0, 0.0]),
    _hand("linear to a third", "linear", (3.0, 0, 5, 1 / 3), [3.0, 2.5, 2.0, 1.5, 1.0]),
    _hand("constant after warm-up", "constant", (6.0, 2, 5, 0.0), [2.0, 4.0, 6.0, 6.0, 6.0]),
    _hand("constant without warm-up", "constant", (0.5, 0, 3, 0.1), [0.5, 0.5, 0.5]),
    # p = 0, 1/4, 1/2, 3/4, 1
    _hand(
        "cosine to zero",
        "cosine",
        (1.0, 0, 5, 0.0),
        [1.0, (1 + HALF_ROOT) / 2, 0.5, (1 - HALF_ROOT) / 2, 0.0],
    ),
    _hand(
        "cosine to a half with warm-up",
        "cosine",
        (4.0, 1, 4, 0.5),
        [2.0, 4.0, 3.0, 2.0],
    ),
    _hand("one step, cosine", "cosine", (0.25, 0, 1, 0.0), [0.25]),
    _hand("one step, linear", "linear", (0.25, 0, 1, 0.0), [0.25]),
    _hand("one step, constant", "constant", (0.25, 0, 1, 0.0), [0.25]),
    _hand("two steps, cosine: full rate, then floor", "cosine", (8.0, 0, 2, 0.25), [8.0, 2.0]),
    _hand("two steps, linear, one of warm-up", "linear", (8.0, 1, 2, 0.25), [4.0, 8.0]),
    _hand("warm-up to the last update, cosine", "cosine", (4.0, 3, 4, 0.0), [1.0, 2.0, 3.0, 4.0]),
    _hand("warm-up to the last update, linear", "linear", (4.0, 3, 4, 0.1), [1.0, 2.0, 3.0, 4.0]),
    _hand("floor of one is constant", "cosine", (2.0, 0, 3, 1.0), [2.0, 2.0, 2.0]),
    _hand("rate zero", "linear", (0.0, 1, 3, 0.5), [0.0, 0.0, 0.0]),
    _hand("rate as an integer", "constant", (1, 1, 3, 0), [0.5, 1.0, 1.0]),
    _case("the demo's schedule", "cosine", (3e-4, 10, 120, 0.1)),
    _case("linear over 120", "linear", (3e-4, 10, 120, 0.1)),
    _case("linear to zero over 100", "linear", (1e-3, 7, 100, 0.0), rtol=4e-14),
    _case("cosine to zero over 100", "cosine", (1e-3, 0, 100, 0.0), rtol=2e-12),
    _case("an odd floor", "cosine", (7e-5, 3, 17, 0.0123), rtol=1e-14),
    _case("long warm-up", "constant", (1e-2, 40, 60, 0.0)),
]

CLAUSE = Clause(
    clause="S-17",
    note=(
        "A handful of operations: 4e-15. Near a floor of zero digits are lost: in the linear form"
        " 1 - p loses a factor N (4e-14 at N = 100), in the cosine form 1 + cos πp about 2/π² N²"
        " (2e-12 at N = 100); p = 1 is exact in both."
    ),
    cases=CASES,
)
