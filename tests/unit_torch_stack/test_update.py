"""Schedule, clipping and AdamW against their formulas (S-16, S-17, S-18)."""

import math

import numpy as np
import pytest
import torch
from torch import nn

from stacks.torch_stack.config import Optimizer, Schedule
from stacks.torch_stack.errors import BadInput
from stacks.torch_stack.update import (
    apply_update,
    build_optimizer,
    clip_factor,
    decays,
    learning_rate,
    moments,
    scale_gradients,
)


def rates(kind: str, warmup: int, steps: int, ratio: float = 0.1) -> list[float]:
    schedule = Schedule(kind=kind, warmup_steps=warmup, min_ratio=ratio)  # type: ignore[arg-type]
    return [learning_rate(t, steps, 2.0, schedule) for t in range(steps)]


def test_schedules_at_points_known_by_hand() -> None:
    assert rates("constant", 3, 5) == [0.5, 1.0, 1.5, 2.0, 2.0]
    assert rates("linear", 0, 3) == pytest.approx([2.0, 1.1, 0.2], rel=1e-15)
    assert rates("cosine", 1, 4, 0.0) == pytest.approx([1.0, 2.0, 1.0, 0.0], abs=1e-15)
    assert rates("cosine", 0, 1) == [2.0]
    assert rates("linear", 2, 3)[-1] == 2.0  # full rate and last update are one


@pytest.mark.parametrize("kind", ["linear", "cosine"])
@pytest.mark.parametrize("warmup", [0, 1, 7])
def test_full_rate_at_the_end_of_warm_up_and_floor_at_the_last_update(
    kind: str, warmup: int
) -> None:
    lr = rates(kind, warmup, 20)
    assert lr[warmup] == max(lr) == 2.0
    assert lr[-1] == pytest.approx(0.2, rel=1e-15)
    assert lr[warmup:] == sorted(lr[warmup:], reverse=True)


def test_clip_factor() -> None:
    assert clip_factor(0.5, 1.0) == 1.0
    assert clip_factor(4.0, 1.0) == 1.0 / (4.0 + 1e-6)
    assert clip_factor(0.0, 1e-9) == 1e-9 / 1e-6
    assert clip_factor(1e9, "off") == 1.0
    assert math.isnan(clip_factor(math.nan, 1.0))
    assert not math.isfinite(clip_factor(math.inf, 1.0))


def test_gradients_are_scaled_in_place() -> None:
    grads = [torch.tensor([2.0, 4.0]), torch.tensor([[8.0]])]
    scale_gradients(grads, 0.5)
    assert [one.tolist() for one in grads] == [[1.0, 2.0], [[4.0]]]
    scale_gradients(grads, math.nan)
    assert grads[1].isnan().all()


def test_decay_scopes() -> None:
    matrix, vector = torch.zeros(2, 2), torch.zeros(2)
    names = ("model.embed_tokens.weight", "lm_head.weight", "model.layers.0.mlp.up_proj.weight")
    assert [decays(name, matrix, "projections") for name in names] == [False, False, True]
    assert [decays(name, matrix, "matrices") for name in names] == [True] * 3
    assert [decays("model.norm.weight", vector, scope) for scope in
            ("all", "matrices", "projections", "none")] == [True, False, False, False]  # fmt: skip
    assert not decays(names[2], matrix, "none")


def settings(**changes: object) -> Optimizer:
    values = {
        "learning_rate": 1.0,
        "beta1": 0.9,
        "beta2": 0.95,
        "epsilon": 1e-6,
        "weight_decay": 0.3,
        "decay": "matrices",
        "frozen": ("c",),
        "clip_norm": "off",
    }
    return Optimizer(**{**values, **changes})  # type: ignore[arg-type]


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_updates_are_those_of_the_formula(dtype: torch.dtype) -> None:
    generator = np.random.default_rng(0)
    start = {"a": (3, 4), "b": (5,), "c": (2, 2)}
    values = {name: generator.normal(size=shape) for name, shape in start.items()}
    parameters = {
        name: nn.Parameter(torch.from_numpy(one).to(dtype)) for name, one in values.items()
    }
    optimizer = build_optimizer(parameters, settings())
    theta = {name: one.detach().double().numpy().copy() for name, one in parameters.items()}
    m = {name: np.zeros(shape) for name, shape in start.items()}
    v = {name: np.zeros(shape) for name, shape in start.items()}
    for t in range(40):
        lr = 0.1 / (t + 1)
        for name in ("a", "b"):
            g = torch.from_numpy(generator.normal(size=start[name]) * 10.0 ** (-t % 7)).to(dtype)
            parameters[name].grad = g
            wide = g.double().numpy()
            m[name] = 0.9 * m[name] + (1 - 0.9) * wide
            v[name] = 0.95 * v[name] + (1 - 0.95) * wide**2
            m_hat, v_hat = m[name] / (1 - 0.9 ** (t + 1)), v[name] / (1 - 0.95 ** (t + 1))
            decay = 0.3 * theta[name] if name == "a" else 0
            theta[name] = theta[name] - lr * (m_hat / (np.sqrt(v_hat) + 1e-6) + decay)
        apply_update(optimizer, lr)
    own_m, own_v = moments(optimizer, parameters)
    rtol = 1e-12 if dtype == torch.float64 else 2e-5
    assert own_m.keys() == own_v.keys() == {"a", "b"}
    for name in ("a", "b"):
        np.testing.assert_allclose(parameters[name].detach(), theta[name], rtol=rtol, atol=rtol)
        np.testing.assert_allclose(own_m[name], m[name], rtol=rtol, atol=rtol)
        np.testing.assert_allclose(own_v[name], v[name], rtol=rtol, atol=rtol)
    assert parameters["c"].detach().numpy() == pytest.approx(values["c"], rel=1e-6)
    assert not parameters["c"].requires_grad


def test_bias_corrections_of_a_late_update_are_float64() -> None:
    one = nn.Parameter(torch.ones(1, dtype=torch.float64))
    optimizer = build_optimizer({"a": one}, settings(decay="none", beta2=0.999999, frozen=()))
    optimizer.state[one]["step"].fill_(99_999)
    one.grad = torch.ones(1, dtype=torch.float64)
    apply_update(optimizer, 1.0)
    u = 100_000
    m_hat = 0.1 / (1 - 0.9**u)
    v_hat = (1 - 0.999999) / (1 - 0.999999**u)
    assert one.item() == pytest.approx(1 - m_hat / (math.sqrt(v_hat) + 1e-6), rel=1e-13)


def test_a_frozen_entry_that_begins_no_name_is_refused() -> None:
    parameters = {"model.norm.weight": nn.Parameter(torch.ones(1))}
    with pytest.raises(BadInput, match=r"holds 'norm', which begins no parameter"):
        build_optimizer(parameters, settings(frozen=("model.", "norm")))


def test_frozen_names_are_prefixes_and_everything_may_be_frozen() -> None:
    parameters = {
        name: nn.Parameter(torch.ones(1)) for name in ("model.layers.1.x", "model.layers.10.x")
    }
    optimizer = build_optimizer(parameters, settings(frozen=("model.layers.1.",)))
    assert [one.requires_grad for one in parameters.values()] == [False, True]
    assert len(optimizer.state) == 1
    optimizer = build_optimizer(parameters, settings(frozen=("model.",)))
    apply_update(optimizer, 1.0)
    assert [one.item() for one in parameters.values()] == [1.0, 1.0]
