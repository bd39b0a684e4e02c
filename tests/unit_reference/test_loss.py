import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import logsumexp

from tests.reference.loss import log_softmax, step_loss

X = -100
FINITE = st.floats(min_value=-700, max_value=700)


@given(st.lists(FINITE, min_size=2, max_size=9))
def test_log_softmax_is_minus_logsumexp(values: list[float]) -> None:
    logits = np.array(values)
    np.testing.assert_allclose(
        log_softmax(logits), logits - logsumexp(logits), rtol=1e-12, atol=1e-12
    )


@given(st.lists(FINITE, min_size=3, max_size=3), st.integers(0, 2))
def test_gradient_rows_sum_to_zero_and_point_from_the_label(
    values: list[float], label: int
) -> None:
    logits = np.array([[[values, [0.0, 0.0, 0.0]]]])
    loss, count, grad = step_loss(logits, np.array([[[X, label]]]))
    assert count == 1
    assert loss >= 0
    assert abs(grad[0, 0, 0].sum()) < 1e-12
    assert grad[0, 0, 0, label] <= 0
    assert (grad[0, 0, 1] == 0).all()


def test_the_gradient_is_the_central_difference() -> None:
    rng = np.random.default_rng(5)
    logits = rng.normal(size=(2, 2, 4, 5)).astype(np.longdouble)
    labels = np.array([[[X, 1, X, 4], [X, X, X, X]], [[X, 0, 2, 3], [X, X, 1, X]]])
    _, _, grad = step_loss(logits, labels)
    width = np.longdouble(1e-6)
    for index in np.ndindex(logits.shape):
        up, down = logits.copy(), logits.copy()
        up[index] += width
        down[index] -= width
        slope = (step_loss(up, labels)[0] - step_loss(down, labels)[0]) / (2 * width)
        assert float(grad[index]) == pytest.approx(float(slope), abs=1e-11)


def test_no_target_costs_nothing() -> None:
    loss, count, grad = step_loss(np.ones((1, 1, 2, 3)), np.full((1, 1, 2), X))
    assert loss == 0
    assert count == 0
    assert not grad.any()
