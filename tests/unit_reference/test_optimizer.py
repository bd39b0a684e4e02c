import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.reference.errors import RefusedError
from tests.reference.optimizer import (
    AdamW,
    Tensors,
    clip_factor,
    global_norm,
    is_decayed,
    trainable_names,
)
from tests.reference.schedule import Number

PLAIN = AdamW(beta1=0.9, beta2=0.999, epsilon=1e-8, weight_decay=0.0, decay="none")
SIZES = st.floats(min_value=1e-3, max_value=1e3)


def run(adamw: AdamW, theta: float, grads: list[float], rate: float) -> float:
    params: Tensors = {"w": np.array([theta])}
    m: Tensors = {"w": np.zeros(1)}
    v: Tensors = {"w": np.zeros(1)}
    for step, grad in enumerate(grads):
        adamw.update(params, {"w": np.array([grad])}, m, v, step=step, rate=np.float64(rate))
    return float(params["w"][0])


@given(SIZES, st.booleans(), st.integers(1, 30))
def test_a_constant_gradient_moves_by_the_rate_each_update(
    size: float, negative: bool, num_updates: int
) -> None:
    # m̂ = g and sqrt(v̂) = |g| at every update
    grad = -size if negative else size
    moved = run(PLAIN, 0.0, [grad] * num_updates, 0.1)
    expected = -num_updates * 0.1 * grad / (size + 1e-8)
    assert moved == pytest.approx(expected, rel=1e-10)


def test_decay_without_gradient_is_a_geometric_series() -> None:
    adamw = AdamW(beta1=0.9, beta2=0.999, epsilon=1e-8, weight_decay=0.3, decay="all")
    assert run(adamw, 2.0, [0.0] * 7, 0.1) == pytest.approx(2.0 * 0.97**7, rel=1e-14)


def test_float64_norm_is_that_of_numpy() -> None:
    rng = np.random.default_rng(1)
    a, b = rng.normal(size=(7, 5)), rng.normal(size=11)
    judge = np.linalg.norm(np.concatenate([a.reshape(-1), b]))
    assert global_norm({"a": a, "b": b}, np.float64) == pytest.approx(judge, rel=1e-15)


@given(st.floats(min_value=0, max_value=1e6), SIZES)
def test_the_clipped_norm_never_exceeds_the_limit(norm: float, limit: float) -> None:
    factor = clip_factor(np.float64(norm), limit)
    assert 0 < factor <= 1
    assert norm * factor <= limit * (1 + 1e-12)


def test_off_never_clips_and_infinity_is_not_hidden() -> None:
    assert clip_factor(np.float64(1e9), "off") == 1
    assert np.isnan(clip_factor(np.float64("inf"), 1.0))
    assert np.isnan(clip_factor(np.float64("nan"), 1.0))


def test_scopes_and_prefixes() -> None:
    assert is_decayed("lm_head.weight", 2, "matrices")
    assert not is_decayed("lm_head.weight", 2, "projections")
    assert not is_decayed("model.embed_tokens.weight", 2, "projections")
    assert not is_decayed("model.norm.weight", 1, "matrices")
    assert is_decayed("model.norm.weight", 1, "all")


def test_a_prefix_is_literal_and_begins_a_name() -> None:
    names = ["model.layers.0.x", "model.layers.10.x", "model.norm.weight"]
    assert trainable_names(names, []) == names
    assert trainable_names(names, ["model.layers.1"]) == [names[0], names[2]]
    assert trainable_names(names, ["model."]) == []
    for prefix in ("layers.1", "model.layers.2", "model.norm.weight.", "model.layers.*"):
        with pytest.raises(RefusedError, match=r"begins no parameter"):
            trainable_names(names, ["model.layers.0.", prefix])


@pytest.mark.parametrize("number", [np.float64, np.longdouble])
def test_a_sum_of_squares_overflows_as_in_float64(number: Number) -> None:
    assert global_norm({"a": np.array([1e200], dtype=number)}, number) == np.inf
    assert global_norm({"a": np.array([1e154, 1e154], dtype=number)}, number) == np.inf
    assert global_norm({"a": np.array([3e152, 4e152], dtype=number)}, number) == pytest.approx(
        5e152
    )
    assert clip_factor(number(np.inf), "off") == 1
