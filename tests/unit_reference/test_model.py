"""The backward pass against finite differences, the forward pass against outside judges."""

import dataclasses
import json
from pathlib import Path

import numpy as np
import pytest

from tests.reference import checkpoint
from tests.reference.cases import checkpoints
from tests.reference.checkpoint import EMBED, HEAD, ModelConfig, shapes
from tests.reference.loss import Floats
from tests.reference.model import Model, Rows, allowed, rms, rotate, softmax
from tests.reference.optimizer import Tensors
from tests.reference.step import MicroBatch, loss_and_gradients

X = -100
CONFIG = ModelConfig(
    width=8,
    feed_forward=6,
    num_layers=2,
    num_heads=4,
    num_kv_heads=2,
    head_width=4,
    vocab_size=9,
    epsilon=0.03,
    rope_base=50.0,
    tied=True,
    biases="",
)
CONFIGS = {
    "tied, grouped": CONFIG,
    "untied, one key/value head, all biases": dataclasses.replace(
        CONFIG, tied=False, biases="qkvo", num_kv_heads=1, head_width=2
    ),
    "biases of qwen2, no groups": dataclasses.replace(CONFIG, biases="qkv", num_kv_heads=4),
}
ROWS = Rows(
    input_ids=np.array([[1, 5, 3, 3, 7, 2, 0], [0, 0, 4, 8, 1, 6, 4]]),
    segments=np.array([[1, 1, 1, 2, 2, 2, 0], [0, 0, 1, 1, 2, 2, 2]]),
    positions=np.array([[0, 1, 2, 0, 1, 2, 0], [0, 0, 0, 1, 0, 1, 2]]),
)
LABELS = np.array([[X, 5, 3, X, 7, X, X], [X, X, X, 8, X, 6, 4]])
STEP: list[MicroBatch] = [(ROWS, LABELS), (ROWS, np.where(LABELS == 5, X, LABELS))]


def parameters(config: ModelConfig, number: type[np.floating]) -> Tensors:
    drawn = {name: checkpoints.draw(name, shape, 1.5) for name, shape in shapes(config).items()}
    return {name: tensor.astype(number) for name, tensor in drawn.items()}


def central_difference(
    config: ModelConfig, params: Tensors, name: str, index: int, width: float
) -> np.floating:
    number = params[EMBED].dtype.type
    flat, losses = params[name].reshape(-1), []
    kept = flat[index]
    for side in (number(width), number(-width)):
        flat[index] = kept + side
        losses.append(loss_and_gradients(config, params, STEP)[0])
    flat[index] = kept
    slope: np.floating = (losses[0] - losses[1]) / number(2 * width)
    return slope


@pytest.mark.parametrize("name", CONFIGS)
def test_gradients_are_central_differences_of_the_loss(name: str) -> None:
    config = CONFIGS[name]
    params = parameters(config, np.longdouble)
    _, _, grads = loss_and_gradients(config, params, STEP)
    assert grads.keys() == shapes(config).keys()
    for tensor, grad in grads.items():
        for index in range(0, grad.size, max(1, grad.size // 5)):
            # Richardson: the error of two widths cancels to the fourth order
            wide, narrow = (
                central_difference(config, params, tensor, index, width) for width in (2e-4, 1e-4)
            )
            slope = (4 * narrow - wide) / 3
            assert grad.reshape(-1)[index] == pytest.approx(slope, rel=1e-8, abs=1e-10), tensor


def test_float64_and_extended_precision_agree() -> None:
    for config in CONFIGS.values():
        wide = loss_and_gradients(config, parameters(config, np.longdouble), STEP)
        narrow = loss_and_gradients(config, parameters(config, np.float64), STEP)
        assert narrow[0] == pytest.approx(float(wide[0]), rel=1e-14)
        for name, grad in narrow[2].items():
            np.testing.assert_allclose(grad, wide[2][name].astype(float), rtol=1e-11, atol=1e-14)


def test_a_packed_example_has_the_logits_of_the_example_alone() -> None:
    params = parameters(CONFIG, np.float64)
    packed = Model(CONFIG, params, ROWS).forward()
    for row, first, last in ((0, 0, 3), (0, 3, 6), (1, 2, 4), (1, 4, 7)):
        ids = ROWS.input_ids[row : row + 1, first:last]
        alone = Rows(
            input_ids=ids,
            segments=np.ones_like(ids),
            positions=np.arange(last - first)[None],
        )
        logits = Model(CONFIG, params, alone).forward()
        np.testing.assert_allclose(packed[row, first:last], logits[0], rtol=1e-12, atol=1e-13)


def test_a_later_token_changes_no_earlier_logits() -> None:
    params = parameters(CONFIG, np.float64)
    changed = ROWS.input_ids.copy()
    changed[0, 2] = 8
    other = dataclasses.replace(ROWS, input_ids=changed)
    before, after = Model(CONFIG, params, ROWS).forward(), Model(CONFIG, params, other).forward()
    np.testing.assert_array_equal(before[0, :2], after[0, :2])
    np.testing.assert_array_equal(before[0, 3:6], after[0, 3:6])
    assert np.abs(before[0, 2] - after[0, 2]).max() > 0.1


def test_positions_enter_as_differences_only() -> None:
    params = parameters(CONFIG, np.float64)
    moved = dataclasses.replace(ROWS, positions=ROWS.positions + 11)
    before, after = Model(CONFIG, params, ROWS).forward(), Model(CONFIG, params, moved).forward()
    np.testing.assert_allclose(before, after, rtol=1e-11, atol=1e-12)


def test_rope_turns_halves_by_the_angle() -> None:
    x = np.array([[[[1.0, 0.0, 0.0, 2.0]]]])
    cos, sin = (np.array([[[f(0.3), f(0.1)]]]) for f in (np.cos, np.sin))
    # (x_0, x_2) turns by 0.3 and (x_1, x_3) by 0.1
    expected = [np.cos(0.3), -2 * np.sin(0.1), np.sin(0.3), 2 * np.cos(0.1)]
    np.testing.assert_allclose(rotate(x, cos, sin)[0, 0, 0], expected, rtol=1e-15)


def test_rms_of_a_constant_row() -> None:
    # mean of squares 4, plus ε 5: x / 3
    out, _, _ = rms(np.array([[2.0, -2.0]]), np.array([3.0, 1.0]), 5.0)
    np.testing.assert_allclose(out, [[2.0, -2 / 3]], rtol=1e-15)


def test_softmax_is_scipys_over_the_allowed_keys() -> None:
    from scipy.special import softmax as judge

    scores = np.array([[0.5, -1.0, 3.0], [700.0, 2.0, -700.0]])
    keep = np.array([[True, True, False], [True, True, True]])
    probs = softmax(scores, keep)
    np.testing.assert_allclose(probs[0, :2], judge(scores[0, :2]), rtol=1e-15)
    np.testing.assert_allclose(probs[1], judge(scores[1]), rtol=1e-15)
    assert probs[0, 2] == 0


def test_padding_sees_padding_so_no_row_is_without_a_key() -> None:
    keep = allowed(ROWS.segments)[:, 0]
    assert keep.diagonal(axis1=1, axis2=2).all()
    assert not keep[1, 2, 0]
    assert keep[1, 1, 0]


def outside_logits(folder: Path, ids: Floats) -> Floats:
    """The logits of the Hugging Face class in float32."""
    import torch
    from transformers import AutoModelForCausalLM

    config = folder / "config.json"  # the library has no null where S-12 has one
    record = json.loads(config.read_text(encoding="utf-8"))
    config.write_text(json.dumps({k: v for k, v in record.items() if v is not None}))
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    with torch.no_grad():
        logits: Floats = model(torch.tensor(ids)).logits.double().numpy()
    return logits


@pytest.mark.parametrize("name", ["tied", "untied", "qwen", "square", "trained", "head-copy"])
def test_logits_are_those_of_transformers_in_float32(name: str, tmp_path: Path) -> None:
    for file, data in checkpoints.VALID[name].files().items():
        (tmp_path / file).write_bytes(data)
    config, params = checkpoint.load(tmp_path, np.float64)
    ids = np.array([[3, 1, 4, 1, 0, 2], [2, 0, 1, 3, 3, 1]])
    rows = Rows(
        input_ids=ids,
        segments=np.ones_like(ids),
        positions=np.broadcast_to(np.arange(6), ids.shape),
    )
    logits = Model(config, params, rows).forward()
    np.testing.assert_allclose(logits, outside_logits(tmp_path, ids), rtol=2e-4, atol=2e-4)


def test_a_tied_model_has_no_head_of_its_own() -> None:
    assert HEAD not in shapes(CONFIG)
    assert HEAD in shapes(dataclasses.replace(CONFIG, tied=False))


def test_the_tied_gradient_is_the_sum_of_its_two_uses() -> None:
    untied = dataclasses.replace(CONFIG, tied=False)
    params = parameters(CONFIG, np.float64)
    _, _, tied_grads = loss_and_gradients(CONFIG, params, STEP)
    _, _, grads = loss_and_gradients(untied, params | {HEAD: params[EMBED]}, STEP)
    np.testing.assert_allclose(tied_grads[EMBED], grads[EMBED] + grads[HEAD], rtol=1e-12)


def test_config_of_every_checkpoint_is_plain_json() -> None:
    for fixture in checkpoints.VALID.values():
        assert json.loads(fixture.files()["config.json"]) == fixture.config
