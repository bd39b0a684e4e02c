"""The training loop: a batch to a step, a step to a state (S-10 to S-20).

A micro-batches, B rows, T positions. `Trainer.step` is the whole step in order; what is recorded
of it is read by a `Watch` and changes nothing.
"""

import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import Protocol

import torch
from torch import Tensor

from stacks.torch_stack.batch import Batch, BatchStream, Shape, Stream, build_batch
from stacks.torch_stack.config import Config
from stacks.torch_stack.encode import Tokens
from stacks.torch_stack.loss import (
    MicroBatch,
    micro_batch_sum,
    micro_batches,
    negative_log_likelihood,
)
from stacks.torch_stack.numerics import global_norm
from stacks.torch_stack.precision import PRECISIONS, dtype_name
from stacks.torch_stack.rounded import hold_gradients, sum_gradients_in_float32, widen_gradients
from stacks.torch_stack.snapshot import Snapshot
from stacks.torch_stack.taps import Taps
from stacks.torch_stack.update import (
    apply_update,
    build_optimizer,
    clip_factor,
    learning_rate,
    moments,
    scale_gradients,
)
from stacks.torch_stack.weights import Checkpoint, build_model


@dataclass(frozen=True, kw_only=True)
class Step:
    """What one step was: a line of `steps.jsonl` without its wall clock (S-24)."""

    step: int
    epoch: int
    examples: tuple[str, ...]
    batch_shape: tuple[int, int, int]  # A, B, T
    batch_sha256: str
    num_tokens: int
    num_targets: int
    lr: float
    loss: float
    grad_norm: float
    clip_factor: float
    param_norm: float
    eval_loss: float | None
    eval_targets: int | None


class Watch(Protocol):
    """Reads tensors at two points of a step."""

    def before_clipping(self, t: int, trainer: "Trainer") -> None:
        """The gradients are those of S-14; the parameters are still the old ones."""

    def after_update(self, t: int, trainer: "Trainer") -> None:
        """Parameters and moments are the new ones."""


@dataclass(frozen=True, kw_only=True)
class Taken:
    """What a step takes from another leg (S-29)."""

    rate: float | None = None
    gradients: Mapping[str, Tensor] = field(default_factory=dict)  # of all trainable tensors


_NOTHING = Taken()


class Trainer:
    """Model, optimizer and data of a run, with the step that advances them."""

    def __init__(
        self,
        config: Config,
        checkpoint: Checkpoint,
        examples: Mapping[str, Sequence[Tokens]],
        pad_id: int,
        device: torch.device,
    ) -> None:
        self.config, self.checkpoint, self.device = config, checkpoint, device
        self.precision = PRECISIONS[config.train.precision]
        self.num_steps = config.train.num_steps
        self.model = build_model(
            checkpoint, config.model.attention, config.data.max_length, self.precision, device
        )
        self.parameters = dict(self.model.named_parameters())
        self.optimizer = build_optimizer(self.parameters, config.optimizer)
        self.trainable = {name: one for name, one in self.parameters.items() if one.requires_grad}
        self.shape = Shape(
            accumulation_steps=config.train.accumulation_steps,
            micro_batch_size=config.train.micro_batch_size,
            pad_id=pad_id,
            padding_side=config.data.padding_side,
            pad_multiple=config.data.pad_multiple,
        )
        self._is_pure = self.precision.held == torch.bfloat16
        self._examples = examples["train"]
        stream = BatchStream(self._examples, config, self.shape)
        self.stream: Stream = stream
        self.steps_per_epoch = stream.steps_per_epoch
        self._evaluation = self._eval_batches(examples["eval"][: config.eval.num_examples])
        self._sum: Callable[..., Tensor] = micro_batch_sum
        if config.runtime.compile:
            # dynamic from the start: shapes met so far must not choose the kernels (S-23)
            self._sum = torch.compile(micro_batch_sum, dynamic=True)

    def step(
        self,
        t: int,
        watch: Watch | None = None,
        taps: Taps | None = None,
        taken: Taken = _NOTHING,
    ) -> Step:
        """Update `t`: one batch, one gradient, one change of the parameters.

        `taps` watches the forward passes. What is `taken` stands in place of the leg's own.
        """
        epoch = self.stream.epoch
        batch = next(self.stream)
        micros = micro_batches(batch, self.device)
        with nullcontext() if taps is None else self._observe(taps, batch):
            loss = self._backward(micros, batch.num_targets)
        for name, gradient in taken.gradients.items():
            self.trainable[name].grad = gradient.to(self.device)
        grads = self.grads()
        grad_norm = global_norm(list(grads.values()))
        factor = clip_factor(grad_norm, self.config.optimizer.clip_norm)
        rate = learning_rate(
            t, self.num_steps, self.config.optimizer.learning_rate, self.config.schedule
        )
        if taken.rate is not None:
            rate = taken.rate
        if watch is not None:
            watch.before_clipping(t, self)
        if self._is_pure:
            widen_gradients(self.trainable.values())
            grads = self.grads()
        scale_gradients(list(grads.values()), factor)
        apply_update(self.optimizer, rate)
        if watch is not None:
            watch.after_update(t, self)
        self.optimizer.zero_grad(set_to_none=True)
        eval_loss, eval_targets = self.evaluate() if self._evaluates(t) else (None, None)
        return Step(
            step=t,
            epoch=epoch,
            examples=batch.examples,
            batch_shape=batch.labels.shape,
            batch_sha256=batch.sha256(),
            num_tokens=batch.num_tokens,
            num_targets=batch.num_targets,
            lr=rate,
            loss=loss,
            grad_norm=grad_norm,
            clip_factor=factor,
            param_norm=global_norm(list(self.parameters.values())),
            eval_loss=eval_loss,
            eval_targets=eval_targets,
        )

    def _observe(self, taps: Taps, batch: Batch) -> AbstractContextManager[None]:
        return taps.observe(self.model, batch, self.device, self.config.runtime.compile)

    def _backward(self, micros: Sequence[MicroBatch], num_targets: int) -> float:
        """Add up the gradient of `S / n` over the micro-batches; returns the loss (S-14)."""
        total = torch.zeros((), dtype=self.precision.wide, device=self.device)
        if self._is_pure:
            sum_gradients_in_float32(self.trainable.values())
        for micro in micros:
            share = self._sum(self.model, micro) / num_targets
            if share.requires_grad:  # not when everything is frozen
                share.backward()  # type: ignore[no-untyped-call]
            total += share.detach()
        if not micros:
            for one in self.trainable.values():
                one.grad = torch.zeros_like(one, dtype=self.precision.wide)
        if self._is_pure:
            hold_gradients(self.trainable.values())
        return float(total)

    def grads(self) -> dict[str, Tensor]:
        """The live gradients of the trainable tensors."""
        grads = {}
        for name, one in self.trainable.items():
            assert one.grad is not None, f"{name} has no gradient"
            grads[name] = one.grad
        return grads

    def moments(self) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
        """The live m and v of the trainable tensors."""
        return moments(self.optimizer, self.parameters)

    def _evaluates(self, t: int) -> bool:
        every = self.config.eval.every_steps
        return every > 0 and ((t + 1) % every == 0 or t == self.num_steps - 1)

    def _eval_batches(self, examples: Sequence[Tokens]) -> list[MicroBatch]:
        """Unpacked, in file order, `micro_batch_size` rows each, padded each alone (S-20)."""
        if self.config.eval.every_steps == 0:
            return []
        # A last batch that is not full has filler rows, which add nothing and keep one shape
        shape = dataclasses.replace(self.shape, accumulation_steps=1)
        found: list[MicroBatch] = []
        for start in range(0, len(examples), shape.num_rows):
            rows = [[one] for one in examples[start : start + shape.num_rows]]
            found += micro_batches(build_batch(rows, shape), self.device)
        return found

    @torch.no_grad()
    def evaluate(self) -> tuple[float, int]:
        """S-20: loss over the evaluation examples, and their number of targets."""
        num_targets = sum(len(micro.targets) for micro in self._evaluation)
        total = math.fsum(float(self._sum(self.model, micro)) for micro in self._evaluation)
        return (total / num_targets if num_targets else 0.0), num_targets

    def probe_dtypes(self) -> dict[str, str]:
        """The dtypes of a step, read off a forward and backward pass of two tokens (S-25)."""
        two = torch.zeros((1, 2), dtype=torch.int32, device=self.device)
        hidden = self.model.hidden(two, two + 1, two)
        logits = self.model.logits_of(hidden[0])
        loss = negative_log_likelihood(logits, two[0].long())
        named = {
            "param": next(iter(self.parameters.values())),
            "activation": hidden,
            "logits": logits,
            "loss": loss,
            "grad": loss,
            "moment": loss,
        }
        if self.trainable:
            first = next(iter(self.trainable.values()))
            named["grad"] = torch.autograd.grad(loss, first)[0]
            named["moment"] = self.optimizer.state[first]["exp_avg"]
        return {kind: dtype_name(one.dtype) for kind, one in named.items()}

    def state(self, num_updates: int) -> Snapshot:
        """The state after `num_updates` updates, as live tensors."""
        m, v = self.moments()
        return Snapshot(
            step=num_updates,
            epoch=self.stream.epoch,
            row=self.stream.row,
            params={name: one.detach() for name, one in self.parameters.items()},
            m=m,
            v=v,
        )

    @torch.no_grad()
    def adopt(self, snapshot: Snapshot) -> None:
        """Take parameters and moments, and stay at the own place in the data (S-30)."""
        for name, one in self.parameters.items():
            one.copy_(snapshot.params[name])
        for name, one in self.trainable.items():
            state = self.optimizer.state[one]
            state["exp_avg"].copy_(snapshot.m[name])
            state["exp_avg_sq"].copy_(snapshot.v[name])
            state["step"].fill_(snapshot.step)

    def restore(self, snapshot: Snapshot) -> None:
        """Go on from a snapshot (S-23)."""
        self.adopt(snapshot)
        self.stream = BatchStream(
            self._examples, self.config, self.shape, snapshot.epoch, snapshot.row
        )

    def start_over(self, params: Mapping[str, Tensor]) -> None:
        """Go back to the start, with the parameters of the checkpoint."""
        zeros = dict.fromkeys(self.trainable, torch.zeros(()))
        self.restore(Snapshot(step=0, epoch=0, row=0, params=params, m=zeros, v=zeros))
