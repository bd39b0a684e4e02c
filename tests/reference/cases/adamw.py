"""Cases of S-18."""

from typing import Any

from tests.reference.case import Case, Clause, computed, hand, refused
from tests.reference.cases.loss import wave

EMBED, HEAD = "model.embed_tokens.weight", "lm_head.weight"
Q0, Q1, Q10 = (f"model.layers.{i}.self_attn.q_proj.weight" for i in (0, 1, 10))
Q0_BIAS, NORM = "model.layers.0.self_attn.q_proj.bias", "model.norm.weight"

Nested = Any


def _given(
    params: dict[str, Nested], grads: list[dict[str, Nested]], lr: list[float], **changes: Any
) -> dict[str, Any]:
    constants: dict[str, Any] = {
        "beta1": 0.9,
        "beta2": 0.999,
        "epsilon": 1e-8,
        "weight_decay": 0.0,
        "decay": "all",
        "frozen": [],
    }
    return {"params": params, "grads": grads, "lr": lr} | constants | changes


def _after(theta: Nested, m: Nested, v: Nested) -> dict[str, Any]:
    return {"params": {"w": theta}, "m": {"w": m}, "v": {"w": v}}


def _one(
    name: str,
    start: float,
    grads: list[float],
    lr: list[float],
    after: tuple[float, float, float],
    *,
    rtol: float = 1e-14,
    **changes: Any,
) -> Case:
    """A single number; `after` is (θ, m, v)."""
    theta, m, v = after
    given = _given({"w": [start]}, [{"w": [g]} for g in grads], lr, **changes)
    return hand(name, "adamw", given, _after([theta], [m], [v]), rtol)


MODEL = {
    EMBED: wave(4, 3, seed=1),
    Q0: wave(3, 3, seed=2),
    Q0_BIAS: wave(3, seed=3),
    Q1: wave(2, 3, seed=4),
    Q10: wave(3, 2, seed=5),
    NORM: wave(3, seed=6),
    HEAD: wave(4, 3, seed=7),
}


def _shape(values: Nested) -> tuple[int, ...]:
    return (len(values), *_shape(values[0])) if isinstance(values, list) else ()


def _model_grads(num_updates: int, frozen: tuple[str, ...] = ()) -> list[dict[str, Nested]]:
    """Gradients of several updates; scales from 1e-3 to 10, none for frozen tensors."""
    return [
        {
            name: wave(*_shape(values), scale=10.0 ** (i % 5 - 3), seed=31 * t + i)
            for i, (name, values) in enumerate(MODEL.items())
            if not name.startswith(frozen or ("\n",))
        }
        for t in range(num_updates)
    ]


def _model(
    name: str, num_updates: int, frozen: tuple[str, ...] = (), rtol: float = 1e-13, **changes: Any
) -> Case:
    lr = [0.01 / (t + 1) for t in range(num_updates)]
    given = _given(MODEL, _model_grads(num_updates, frozen), lr, frozen=list(frozen), **changes)
    return computed(name, "adamw", given, rtol=rtol)


CASES = [
    # m = 0.05, v = 0.00025; m / 0.1 = 0.5, sqrt(v / 0.001) = 0.5: a step of lr · 0.5/(0.5 + 1e-8)
    # = lr (1 - 2e-8 + 4e-16), and decay lr · 0.1 · 1: θ = 1 - 0.1 (1.1 - 2e-8)
    _one(
        "first update: about the sign of the gradient, plus decay",
        1.0,
        [0.5],
        [0.1],
        (0.890000001999999960, 0.05, 0.00025),
        weight_decay=0.1,
    ),
    _one(
        "first update against a negative gradient",
        0.0,
        [-0.5],
        [0.1],
        (0.0999999980000000400, -0.05, 0.00025),
    ),
    # sqrt(v / (1 - β2)) = 1e-8 = ε: half a step; with ε inside the root it would be 1e-4 of one
    _one(
        "epsilon stands outside the root",
        0.0,
        [1e-8],
        [0.1],
        (-0.05, 1e-9, 1e-19),
    ),
    # without the correction of v: m̂ = 1e-8, sqrt(v) = 1e-8 sqrt(0.001): another number
    _one(
        "epsilon of one",
        0.0,
        [1.0],
        [1.0],
        (-0.5, 0.1, 0.001),
        epsilon=1.0,
    ),
    # u = 1: m = v = 1/2, m̂ = v̂ = 1, step 1/2.  u = 2: m = -1/4, v = 3/4, m̂ = -1/3, v̂ = 1
    _one(
        "two updates with halves",
        0.0,
        [1.0, -1.0],
        [1.0, 1.0],
        (-1 / 3, -0.25, 0.75),
        beta1=0.5,
        beta2=0.5,
        epsilon=1.0,
    ),
    # θ ← θ - 1/2 · 1/2 · θ, twice, no gradient
    _one(
        "decay alone is decoupled and multiplied by the rate",
        8.0,
        [0.0, 0.0],
        [0.5, 0.5],
        (4.5, 0.0, 0.0),
        weight_decay=0.5,
    ),
    # decay uses θ before the update: 4 - 1 · (1/(1 + 1) + 0.25 · 4)
    _one(
        "decay of the value before the update",
        4.0,
        [1.0],
        [1.0],
        (2.5, 0.1, 0.001),
        epsilon=1.0,
        weight_decay=0.25,
    ),
    _one(
        "betas of zero",
        1.0,
        [3.0, -2.0],
        [0.25, 0.25],
        (1.0, -2.0, 4.0),
        beta1=0,
        beta2=0,
        epsilon=1e-300,
        rtol=1e-15,
    ),
    _one(
        "a rate of zero moves the moments only",
        1.0,
        [1.0],
        [0.0],
        (1.0, 0.1, 0.001),
        weight_decay=0.1,
    ),
    # momentum of an earlier step moves θ although the gradient is 0 now (S-14, n = 0):
    # u = 2: m = 1/4, v = 1/4, both corrections 3/4: m̂ = v̂ = 1/3; step (1/3)/(sqrt(1/3) + 1)
    _one(
        "an update without a gradient still moves",
        0.0,
        [1.0, 0.0],
        [1.0, 1.0],
        (-0.5 - (1 / 3) / (0.57735026918962576451 + 1), 0.25, 0.25),
        beta1=0.5,
        beta2=0.5,
        epsilon=1.0,
    ),
    hand(
        "decay scope projections",
        "adamw",
        _given(
            {name: [[1.0]] for name in (EMBED, HEAD, Q0)} | {NORM: [1.0], Q0_BIAS: [1.0]},
            [{name: [[0.0]] for name in (EMBED, HEAD, Q0)} | {NORM: [0.0], Q0_BIAS: [0.0]}],
            [0.5],
            weight_decay=0.5,
            decay="projections",
        ),
        {
            "params": {EMBED: [[1.0]], HEAD: [[1.0]], Q0: [[0.75]], NORM: [1.0], Q0_BIAS: [1.0]},
            "m": {EMBED: [[0.0]], HEAD: [[0.0]], Q0: [[0.0]], NORM: [0.0], Q0_BIAS: [0.0]},
            "v": {EMBED: [[0.0]], HEAD: [[0.0]], Q0: [[0.0]], NORM: [0.0], Q0_BIAS: [0.0]},
        },
        1e-15,
    ),
    hand(
        "a frozen tensor has no moments and no decay",
        "adamw",
        _given(
            {"a.w": [[1.0]], "b.w": [[1.0]]},
            [{"b.w": [[0.0]]}],
            [0.5],
            weight_decay=0.5,
            frozen=["a."],
        ),
        {
            "params": {"a.w": [[1.0]], "b.w": [[0.75]]},
            "m": {"b.w": [[0.0]]},
            "v": {"b.w": [[0.0]]},
        },
        1e-15,
    ),
    _model("decay all", 3, weight_decay=0.1),
    _model("decay matrices", 3, weight_decay=0.1, decay="matrices"),
    _model("decay projections", 3, weight_decay=0.1, decay="projections"),
    _model("decay none", 3, weight_decay=0.1, decay="none"),
    # "model.layers.1" is the beginning of layer 1 and of layer 10
    _model("frozen prefix, taken literally", 2, ("model.layers.1",), weight_decay=0.1),
    _model(
        "two frozen prefixes",
        3,
        ("model.embed_tokens", "model.layers.0.self_attn.q_proj.b"),
        weight_decay=0.1,
    ),
    _model("everything frozen", 2, ("model.", "lm_head."), weight_decay=0.1),
    _model("a prefix within another", 2, ("model.layers.1", "model.layers.10."), weight_decay=0.1),
    *(
        refused(f"refused: {name}", "adamw", _given(MODEL, _model_grads(1), [0.01], frozen=frozen))
        for name, frozen in {
            "a prefix that matches nothing": ["layers.0"],
            "one of two prefixes matches nothing": ["model.layers.0.", "model.layers.2."],
            "a prefix longer than the name": [f"{NORM}."],
            "a prefix in capitals": ["Model."],
            "a prefix is no pattern": ["model.layers.*.self_attn"],
        }.items()
    ),
    _model("other betas", 4, rtol=4e-12, beta1=0.8, beta2=0.95, epsilon=1e-6),
    computed(
        "tiny second moments",
        "adamw",
        _given(
            {"w": wave(12)},
            [{"w": wave(12, scale=10.0**-k, seed=k)} for k in (7, 8, 9, 10)],
            [0.01] * 4,
        ),
        rtol=1e-13,
    ),
    computed(
        "gradients far below epsilon",
        "adamw",
        _given({"w": wave(6)}, [{"w": wave(6, scale=1e-120)}] * 2, [0.5] * 2),
        rtol=1e-13,
    ),
    # a constant gradient keeps m̂ and sqrt(v̂) at 1: θ = -400 · 0.001 / (1 + 1e-8)
    computed(
        "four hundred updates with a constant gradient",
        "adamw",
        _given({"w": [0.0]}, [{"w": [1.0]}] * 400, [0.001] * 400),
        rtol=2e-13,
    ),
    computed(
        "a scalar and a tensor of three dimensions",
        "adamw",
        _given(
            {"s": 0.5, "t": wave(2, 2, 3)},
            [{"s": 0.25, "t": wave(2, 2, 3, seed=9)}, {"s": -1.0, "t": wave(2, 2, 3, seed=8)}],
            [0.1, 0.05],
            weight_decay=0.3,
            decay="matrices",
        ),
        rtol=1e-13,
    ),
]

CLAUSE = Clause(
    clause="S-18",
    note=(
        "The correction 1 - β2^u loses up to three digits at β2 = 0.999, halved by the root: 1e-13;"
        " 2e-13 over 400 updates. With the other betas one entry of m cancels to 1/4000: 4e-12."
    ),
    cases=CASES,
)
