"""A training leg from its inputs to its footer: the loop of steps (S-20, S-21, S-23, S-24)."""

import json
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from .anchor import Follower, Leader
from .batch import StepData
from .config import LoadedConfig
from .errors import BadInput, Interrupted
from .facts import data_facts, make_header
from .host import Host
from .leg import Leg, check_vocabulary, leg_facts, make_leg
from .model import Params
from .numerics import Difference, statistics, tensor_sha256, tensors_sha256
from .prepare import LoadedInputs, load_inputs
from .resources import read_resources
from .runtime import StopSignal
from .snapshot import newest_snapshot, write_snapshot
from .splits import read_splits
from .step import Scalars, State, Trainer, arrays_of
from .trace import Trace
from .update import adam_state
from .weights import Checkpoint, read_checkpoint, write_checkpoint


@dataclass(frozen=True, kw_only=True)
class TrainOptions:
    """How a leg was started (S-26, S-30, S-31)."""

    resume: bool
    trace: bool
    device: str  # its kind
    host: Host
    anchors: Path | None  # the leader's, for a follower
    anchor_seconds: float


def train(
    config: LoadedConfig, out: Path, nonce: str, options: TrainOptions, stop: StopSignal
) -> None:
    """Runs a leg to its end.

    Raises:
        BadInput: an input breaks a clause.
        Failed: an anchor did not come.
        Interrupted: `stop` was set; a snapshot of the last step is there.
    """
    party = _party(config, out, options)
    if options.resume:
        _check_directory(out, config)
    found = newest_snapshot(out / "snapshots", config.sha256) if options.resume else None
    inputs = load_inputs(config)
    checkpoint = read_checkpoint(config.resolve(config.run.model.checkpoint))
    check_vocabulary(inputs, checkpoint)
    writer = Trace(out=out, is_recording=options.trace, has_steps=True)
    writer.begin(found.num_updates if found else 0)
    limits = {"train": None, "eval": config.run.eval.num_examples}
    splits = read_splits(config, inputs, writer, limits, stop.raise_if_set)
    leg = make_leg(config, inputs, splits, checkpoint, writer, found)
    steps = leg.data.steps(leg.position)
    first = next(steps)
    facts = data_facts(config, inputs, splits) | leg_facts(leg, arrays_of(first.batch))
    facts["files"] |= checkpoint.hashes()
    stop.raise_if_set()
    runtime = {"device": options.device, "compile": True}
    if options.host.condition:
        runtime["host"] = options.host.condition
    trajectory = vars(config.run.trajectory) | {"role": party.role} if party else None
    writer.write_header(make_header(config, nonce, "train", facts, runtime, trajectory))
    run_loop(leg, first, steps, stop, options.host, party)
    final = write_final(leg, inputs, checkpoint)
    writer.finish(
        {
            "nonce": nonce,
            "mode": "train",
            "num_steps": leg.num_updates,
            "num_examples": splits.num_examples,
            "final": final,
        }
    )


def _party(config: LoadedConfig, out: Path, options: TrainOptions) -> Leader | Follower | None:
    """The part that the leg plays in an anchored run, None in a free one (S-30)."""
    trajectory = config.run.trajectory
    if trajectory.mode == "free":
        if options.anchors is not None:
            raise BadInput(
                f"--anchors is for a run whose trajectory.mode is anchored (S-30), and that of "
                f"{config.path} is free; leave --anchors out, or change the config"
            )
        return None
    if options.anchors is None:
        return Leader(every=trajectory.anchor_every)
    return Follower(
        every=trajectory.anchor_every,
        folder=options.anchors,
        seconds=options.anchor_seconds,
        lines=out / "anchors.jsonl",
    )


def _check_directory(out: Path, config: LoadedConfig) -> None:
    """Refuses to resume in the directory of another config: its trace would be cut (S-23)."""
    path = out / "header.json"
    try:
        other = json.loads(path.read_bytes())["config_sha256"]
    except (OSError, ValueError, KeyError, TypeError):
        return  # it had not come as far as a header
    if other != config.sha256:
        raise BadInput(
            f"{path}: the leg has the config {other[:12]}, --config is {config.sha256[:12]}; "
            "resume with the config it began with, or name another --out"
        )


def run_loop(
    leg: Leg,
    first: StepData,
    steps: Iterator[StepData],
    stop: StopSignal,
    host: Host,
    party: Leader | Follower | None,
) -> None:
    """Makes the updates that are left."""
    began = time.perf_counter()
    if leg.num_updates == 0:
        record_initial(leg)
    if party and not party.begin(leg, stop):
        _stop(leg, stop)
    upcoming = first
    while leg.num_updates < len(leg.rates):
        step = leg.num_updates
        line, upcoming = host.step(partial(make_step, leg, upcoming, steps))
        leg.trace.add_step({"step": step, **line, "wall_seconds": time.perf_counter() - began})
        leg.trace.add_resources({"step": step, **read_resources()})
        if party and not party.settle(leg, stop):
            _stop(leg, stop)
        _save_if_due(leg, stop)


def make_step(
    leg: Leg, data: StepData, steps: Iterator[StepData]
) -> tuple[dict[str, Any], StepData]:
    """(what the step tells of itself, the data of the next one), after one update.

    The host makes the next batch while the device computes.
    """
    step, is_traced = leg.num_updates, _is_traced(leg, leg.num_updates)
    # The step donates its parameters: what they were is copied where it is recorded.
    before = jax.tree.map(jnp.copy, leg.state.trainable) if is_traced else {}
    leg.state, grads, scalars = leg.trainer.run(leg.state, arrays_of(data.batch), leg.rates[step])
    line = describe_data(data)
    upcoming = next(steps)
    line |= describe_result(leg.rates[step], jax.device_get(scalars))
    line |= describe_evaluation(leg, step)
    if is_traced:
        leg.trace.add_tensors(tensor_rows_of(step, leg.trainer, leg.state, grads, before))
    leg.num_updates, leg.position = step + 1, data.following
    return line, upcoming


def _is_traced(leg: Leg, step: int) -> bool:
    every = leg.run.trace.tensors_every
    return (
        leg.trace.is_recording and every > 0 and (step % every == 0 or step == len(leg.rates) - 1)
    )


def _save_if_due(leg: Leg, stop: StopSignal) -> None:
    """A snapshot when one is due, or when the leg was told to stop before its last update."""
    every, num_updates = leg.run.snapshot.every_steps, leg.num_updates
    is_last = num_updates == len(leg.rates)
    if stop.name is not None and not is_last:
        _stop(leg, stop)
    if every > 0 and (num_updates % every == 0 or is_last):
        _save(leg)


def _save(leg: Leg) -> None:
    leg.trace.sync()
    write_snapshot(leg.trace.out / "snapshots", leg.snapshot())


def _stop(leg: Leg, stop: StopSignal) -> None:
    """Ends a leg that was told to stop, with a snapshot of where it is."""
    _save(leg)
    raise Interrupted(
        f"{stop.name} stopped the leg after {leg.num_updates} of {len(leg.rates)} updates, with a "
        "snapshot; run it again with --resume"
    )


def describe_data(data: StepData) -> dict[str, Any]:
    """The fields of a step's line that the host knows before the step is done."""
    return {
        "epoch": data.epoch,
        "examples": data.examples,
        "batch_shape": list(data.batch.labels.shape),
        "batch_sha256": data.batch.sha256(),
        "num_tokens": data.batch.num_tokens,
        "num_targets": data.batch.num_targets,
    }


def describe_result(rate: float, scalars: Scalars) -> dict[str, Any]:
    """The fields of a step's line that need its result."""
    return {
        "lr": rate,
        "loss": float(scalars.loss),
        "grad_norm": float(scalars.grad_norm),
        "clip_factor": float(scalars.clip_factor),
        "param_norm": float(scalars.param_norm),
    }


def describe_evaluation(leg: Leg, step: int) -> dict[str, Any]:
    """The fields of a step's line that an evaluation gives, null where none is due (S-20)."""
    every = leg.run.eval.every_steps
    is_due = every > 0 and ((step + 1) % every == 0 or step == len(leg.rates) - 1)
    eval_loss, eval_targets = evaluate(leg) if is_due else (None, None)
    return {"eval_loss": eval_loss, "eval_targets": eval_targets}


def evaluate(leg: Leg) -> tuple[float, int]:
    """(mean negative log-likelihood over all targets, their number) of the split (S-20)."""
    total = sum(
        float(leg.trainer.sum_of_losses(leg.state.trainable, batch)) for batch in leg.eval_data
    )
    num_targets = sum(batch.num_targets for batch in leg.eval_data)
    return (total / num_targets if num_targets else 0.0), num_targets


def record_initial(leg: Leg) -> None:
    """The rows of kind `init`, with the hash of each tensor (S-21)."""
    if leg.trace.is_recording:
        params = leg.parameters()
        hashes = {name: tensor_sha256(value) for name, value in to_host(params).items()}
        shapes = {name: list(value.shape) for name, value in params.items()}
        leg.trace.add_tensors(tensor_rows(0, "init", params, shapes, hashes))


def tensor_rows_of(
    step: int, trainer: Trainer, state: State, grads: Params, before: Params
) -> list[dict[str, Any]]:
    """The rows of all kinds but `init`, at a step that is recorded (S-21).

    Args:
        before: the trainable parameters before the update.
    """
    adam = adam_state(state.optimizer)
    kinds = {
        "grad": grads,
        "m": adam.mu,
        "v": adam.nu,
        "update": Difference(state.trainable, before),
        "param": trainer.parameters(state),
    }
    shapes = {name: list(value.shape) for name, value in kinds["param"].items()}
    return [
        row
        for kind, tensors in kinds.items()
        for row in tensor_rows(step, kind, tensors, shapes, {})
    ]


def tensor_rows(
    step: int,
    kind: str,
    tensors: Mapping[str, Array],
    shapes: Mapping[str, list[int]],
    hashes: Mapping[str, str],
) -> list[dict[str, Any]]:
    """Rows of `tensors/`, one for each tensor."""
    return [
        {
            "step": step,
            "kind": kind,
            "name": name,
            "shape": shapes[name],
            "norm": of_tensor.norm,
            "mean": of_tensor.mean,
            "max_abs": of_tensor.max_abs,
            "sketch": of_tensor.sketch,
            "sha256": hashes.get(name),
        }
        for name, of_tensor in statistics(tensors).items()
    ]


def to_host(tensors: Params) -> dict[str, np.ndarray]:
    """Copies on the host: JAX silently does not donate an array while NumPy holds a view of it."""
    copies: dict[str, np.ndarray] = jax.device_get(jax.tree.map(jnp.copy, tensors))
    return copies


def write_final(leg: Leg, inputs: LoadedInputs, checkpoint: Checkpoint) -> dict[str, str]:
    """Writes `checkpoint/` (S-13) and returns the hashes of parameters and moments (S-24)."""
    adam = adam_state(leg.state.optimizer)
    copies = {
        "tokenizer.json": leg.config.resolve(leg.run.data.tokenizer).read_bytes(),
        "chat_template.jinja": inputs.template_bytes,
    }
    folder, dtype = leg.trace.out / "checkpoint", leg.trainer.precision.held.name
    params = to_host(leg.parameters())
    write_checkpoint(folder, params, checkpoint.config_text, dtype, copies)
    return {
        "params_sha256": tensors_sha256(params),
        "m_sha256": tensors_sha256(to_host(adam.mu)),
        "v_sha256": tensors_sha256(to_host(adam.nu)),
    }
