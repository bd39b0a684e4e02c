"""One training step as one compiled function (S-12 to S-19), and evaluation (S-20).

    A micro-batches, B rows, T positions

The step computes every scalar of a trace and returns the gradients whether or not anyone records
them, so that a traced run and an untraced one execute the same program.
"""

from dataclasses import dataclass, field
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jax import lax
from jaxtyping import Array, Float, Int

from .batch import Batch
from .loss import count_targets, mean_of, sum_of_nll
from .model import LanguageModel, Params, forward
from .numerics import global_norm, narrower_than
from .precision import Precision, round_all, widen_all
from .update import Optimizer, OptState, clip_factor


class Scalars(NamedTuple):
    """What a step tells of itself; the loss in `Precision.wide`, the others in float64."""

    loss: Float[Array, ""]
    grad_norm: Float[Array, ""]
    clip_factor: Float[Array, ""]
    param_norm: Float[Array, ""]


class State(NamedTuple):
    """What an update changes: the trainable parameters and the optimizer's state."""

    trainable: Params
    optimizer: OptState


class StepArrays(NamedTuple):
    """The arrays of a batch on the device."""

    input_ids: Int[Array, "A B T"]
    segments: Int[Array, "A B T"]
    positions: Int[Array, "A B T"]
    labels: Int[Array, "A B T"]


def arrays_of(batch: Batch) -> StepArrays:
    """Moves a batch to the device."""
    return StepArrays(
        *jax.device_put((batch.input_ids, batch.segments, batch.positions, batch.labels))
    )


def loss_and_grads(
    model: LanguageModel,
    attention: str,
    precision: Precision,
    trainable: Params,
    frozen: Params,
    arrays: StepArrays,
) -> tuple[Float[Array, ""], Params]:
    """S / n over all micro-batches and its gradient, one micro-batch in memory at a time (S-14).

    The gradients are summed in float32 or wider and rounded once to what they are held in (S-19).
    """
    count = count_targets(arrays.labels)

    def part_of_loss(params: Params, micro: StepArrays) -> tuple[Array, Array]:
        logits = forward(
            model,
            params | frozen,
            micro.input_ids,
            micro.segments,
            micro.positions,
            attention,
            precision,
        )
        total = sum_of_nll(logits, micro.labels)
        return mean_of(total, count), total

    def add_micro_batch(
        carry: tuple[Array, Params], micro: StepArrays
    ) -> tuple[tuple[Array, Params], None]:
        (_, total), grads = jax.value_and_grad(part_of_loss, has_aux=True)(wide, micro)
        return (carry[0] + total, jax.tree.map(jnp.add, carry[1], grads)), None

    wide = widen_all(trainable)
    start = (jnp.zeros((), precision.wide), jax.tree.map(jnp.zeros_like, wide))
    (total, grads), _ = lax.scan(add_micro_batch, start, arrays)
    grads = round_all(grads, trainable)
    return mean_of(total, count), grads


def updated(
    optimizer: Optimizer,
    state: State,
    grads: Params,
    factor: Float[Array, ""],
    learning_rate: Float[Array, ""],
) -> State:
    """The state after an update, computed from what is held and rounded once to it (S-19)."""
    wide: State = widen_all(state)
    updates, optimizer_state = optimizer.transformation.update(
        widen_all(grads),
        wide.optimizer,
        wide.trainable,
        factor=factor,
        learning_rate=learning_rate,
    )
    trainable: Params = optax.apply_updates(wide.trainable, updates)
    held: State = round_all(State(trainable, optimizer_state), state)
    return held


@dataclass(frozen=True, kw_only=True)
class CompiledStep:
    """A step for one shape of batch: the program, and the shapes and dtypes that it returns."""

    call: Any
    outputs: Any  # (State, Params, Scalars) of jax.ShapeDtypeStruct


@dataclass(kw_only=True)
class Trainer:
    """Compiles the step and the evaluation once per shape of batch.

    Attributes:
        steps: shape (A, B, T) -> the compiled step.
        steps_given: the same, with the gradients given (S-29).
        evaluations: shape (1, B, T) -> the compiled evaluation.
    """

    model: LanguageModel
    optimizer: Optimizer
    attention: str
    clip_norm: float | str
    precision: Precision
    frozen: Params
    steps: dict[tuple[int, ...], CompiledStep] = field(default_factory=dict)
    steps_given: dict[tuple[int, ...], CompiledStep] = field(default_factory=dict)
    evaluations: dict[tuple[int, ...], Any] = field(default_factory=dict)

    def parameters(self, state: State) -> Params:
        """All parameters, trainable and frozen."""
        return state.trainable | self.frozen

    def train_step(
        self,
        state: State,
        frozen: Params,
        arrays: StepArrays,
        learning_rate: Float[Array, ""],
        given: Params | None = None,
    ) -> tuple[State, Params, Scalars]:
        """(state, gradients before clipping, scalars) after one update; a pure function.

        The update is made from the gradients `given` if there are any; those that are returned are
        the step's own.
        """
        loss, own = loss_and_grads(
            self.model, self.attention, self.precision, state.trainable, frozen, arrays
        )
        grads = own if given is None else given
        grad_norm = global_norm(grads.values())
        factor = clip_factor(grad_norm, self.clip_norm)
        trainable, optimizer_state = updated(self.optimizer, state, grads, factor, learning_rate)
        scalars = Scalars(loss, grad_norm, factor, global_norm((trainable | frozen).values()))
        return State(trainable, optimizer_state), own, scalars

    def compiled_step(
        self, state: State, arrays: StepArrays, given: Params | None = None
    ) -> CompiledStep:
        """The step for this shape of batch, compiled when the shape is met first."""
        shape, steps = arrays.labels.shape, self.steps if given is None else self.steps_given
        if shape not in steps:
            rate = jnp.zeros((), jnp.float64)
            arguments = (state, self.frozen, arrays, rate, *([] if given is None else [given]))
            traced = jax.jit(self.train_step, donate_argnums=0).trace(*arguments)
            narrowest = self.precision.activation.name
            narrow = narrower_than(narrowest, traced.jaxpr.jaxpr)
            assert not narrow, (
                f"the step has tensors of {narrow}, S-19 wants none narrower than {narrowest}"
            )
            steps[shape] = CompiledStep(call=traced.lower().compile(), outputs=traced.out_info)
        return steps[shape]

    def run(
        self,
        state: State,
        arrays: StepArrays,
        learning_rate: float,
        given: Params | None = None,
    ) -> tuple[State, Params, Scalars]:
        """Starts one update; `state` is used up. The device may still compute on return."""
        call = self.compiled_step(state, arrays, given).call
        rate = jnp.asarray(learning_rate, jnp.float64)
        arguments = (state, self.frozen, arrays, rate, *([] if given is None else [given]))
        result: tuple[State, Params, Scalars] = call(*arguments)
        return result

    def sum_of_losses(self, trainable: Params, batch: Batch) -> Float[Array, ""]:
        """Sum of negative log-likelihoods over an evaluation batch of shape (1, B, T)."""
        arrays = arrays_of(batch)

        def evaluate(params: Params, frozen: Params, one: StepArrays) -> Float[Array, ""]:
            logits = forward(
                self.model,
                params | frozen,
                one.input_ids[0],
                one.segments[0],
                one.positions[0],
                self.attention,
                self.precision,
            )
            return sum_of_nll(logits, one.labels[0])

        shape = arrays.labels.shape
        if shape not in self.evaluations:
            self.evaluations[shape] = (
                jax.jit(evaluate).lower(trainable, self.frozen, arrays).compile()
            )
        result: Float[Array, ""] = self.evaluations[shape](trainable, self.frozen, arrays)
        return result
