"""A training leg from its inputs to its footer: the loop of steps (S-20, S-21, S-23, S-24)."""

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from .batch import StepData
from .config import LoadedConfig
from .errors import BadInput, Interrupted
from .facts import data_facts, make_header
from .leg import Leg, check_vocabulary, leg_facts, make_leg
from .model import Params
from .numerics import difference, statistics, tensor_sha256, tensors_sha256
from .prepare import LoadedInputs, load_inputs
from .runtime import StopSignal
from .snapshot import Snapshot, newest_snapshot, write_snapshot
from .splits import read_splits
from .step import Scalars, arrays_of
from .trace import Trace
from .update import adam_state
from .weights import Checkpoint, read_checkpoint, write_checkpoint


def train(
    config: LoadedConfig,
    out: Path,
    nonce: str,
    *,
    resume: bool,
    trace: bool,
    device: str,
    stop: StopSignal,
) -> None:
    """Runs a leg to its end.

    Raises:
        BadInput: an input breaks a clause.
        Interrupted: `stop` was set; a snapshot of the last step is there.
    """
    if resume:
        _check_directory(out, config)
    found = newest_snapshot(out / "snapshots", config.sha256) if resume else None
    inputs = load_inputs(config)
    checkpoint = read_checkpoint(config.resolve(config.run.model.checkpoint))
    check_vocabulary(inputs, checkpoint)
    writer = Trace(out=out, is_recording=trace, has_steps=True)
    writer.begin(found.num_updates if found else 0)
    limits = {"train": None, "eval": config.run.eval.num_examples}
    splits = read_splits(config, inputs, writer, limits, stop.raise_if_set)
    leg = make_leg(config, inputs, splits, checkpoint, writer, found)
    steps = leg.data.steps(leg.position)
    first = next(steps)
    facts = data_facts(config, inputs, splits) | leg_facts(leg, arrays_of(first.batch))
    facts["files"] |= {
        "model_config": checkpoint.config_sha256,
        "weights": checkpoint.weights_sha256,
    }
    stop.raise_if_set()
    writer.write_header(
        make_header(config, nonce, "train", facts, {"device": device, "compile": True})
    )
    run_loop(leg, first, steps, stop)
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


def run_loop(leg: Leg, first: StepData, steps: Iterator[StepData], stop: StopSignal) -> None:
    """Makes the updates that are left; the host makes the next batch while the device computes."""
    began = time.perf_counter()
    if leg.num_updates == 0:
        record_initial(leg)
    upcoming = first
    while leg.num_updates < len(leg.rates):
        step, data = leg.num_updates, upcoming
        is_traced = _is_traced(leg, step)
        # The step donates its parameters: what they were is copied where it is recorded.
        before = jax.tree.map(jnp.copy, leg.state.trainable) if is_traced else {}
        leg.state, grads, scalars = leg.trainer.run(
            leg.state, arrays_of(data.batch), leg.rates[step]
        )
        line = describe_data(data)
        upcoming = next(steps)
        line |= describe_result(leg, step, jax.device_get(scalars))
        if is_traced:
            record_tensors(leg, step, grads, before)
        leg.num_updates, leg.position = step + 1, data.following
        leg.trace.add_step({"step": step, **line, "wall_seconds": time.perf_counter() - began})
        _save_if_due(leg, stop)


def _is_traced(leg: Leg, step: int) -> bool:
    every = leg.run.trace.tensors_every
    return (
        leg.trace.is_recording and every > 0 and (step % every == 0 or step == len(leg.rates) - 1)
    )


def _save_if_due(leg: Leg, stop: StopSignal) -> None:
    """A snapshot when one is due, or when the leg was told to stop before its last update."""
    every, num_updates = leg.run.snapshot.every_steps, leg.num_updates
    is_last = num_updates == len(leg.rates)
    is_stopping = stop.name is not None and not is_last
    if is_stopping or (every > 0 and (num_updates % every == 0 or is_last)):
        leg.trace.sync()
        write_snapshot(leg.trace.out / "snapshots", take_snapshot(leg))
    if is_stopping:
        raise Interrupted(
            f"{stop.name} stopped the leg after {num_updates} of {len(leg.rates)} updates, with "
            "a snapshot; run it again with --resume"
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


def describe_result(leg: Leg, step: int, scalars: Scalars) -> dict[str, Any]:
    """The fields of a step's line that need its result."""
    every = leg.run.eval.every_steps
    is_evaluated = every > 0 and ((step + 1) % every == 0 or step == len(leg.rates) - 1)
    eval_loss, eval_targets = evaluate(leg) if is_evaluated else (None, None)
    return {
        "lr": leg.rates[step],
        "loss": float(scalars.loss),
        "grad_norm": float(scalars.grad_norm),
        "clip_factor": float(scalars.clip_factor),
        "param_norm": float(scalars.param_norm),
        "eval_loss": eval_loss,
        "eval_targets": eval_targets,
    }


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
        leg.trace.add_tensors(tensor_rows(0, "init", params, hashes))


def record_tensors(leg: Leg, step: int, grads: Params, before: Params) -> None:
    """The rows of the other kinds, at a step that is recorded (S-21)."""
    adam = adam_state(leg.state.optimizer)
    kinds = {
        "grad": grads,
        "m": adam.mu,
        "v": adam.nu,
        "update": difference(leg.state.trainable, before),
    }
    for kind, tensors in {**kinds, "param": leg.parameters()}.items():
        leg.trace.add_tensors(tensor_rows(step, kind, tensors, {}))


def tensor_rows(
    step: int, kind: str, tensors: Params, hashes: dict[str, str]
) -> list[dict[str, Any]]:
    """Rows of `tensors/`, one for each tensor."""
    return [
        {
            "step": step,
            "kind": kind,
            "name": name,
            "shape": list(tensors[name].shape),
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


def take_snapshot(leg: Leg) -> Snapshot:
    """The state of the leg as it is (S-23)."""
    adam = adam_state(leg.state.optimizer)
    return Snapshot(
        num_updates=leg.num_updates,
        position=leg.position,
        params=to_host(leg.parameters()),
        m=to_host(adam.mu),
        v=to_host(adam.nu),
        config_sha256=leg.config.sha256,
    )


def write_final(leg: Leg, inputs: LoadedInputs, checkpoint: Checkpoint) -> dict[str, str]:
    """Writes `checkpoint/` (S-13) and returns the hashes of parameters and moments (S-24)."""
    snapshot = take_snapshot(leg)
    copies = {
        "tokenizer.json": leg.config.resolve(leg.run.data.tokenizer).read_bytes(),
        "chat_template.jinja": inputs.template_bytes,
    }
    folder = leg.trace.out / "checkpoint"
    write_checkpoint(
        folder, snapshot.params, checkpoint.config_text, leg.trainer.precision.held.name, copies
    )
    return {
        "params_sha256": tensors_sha256(snapshot.params),
        "m_sha256": tensors_sha256(snapshot.m),
        "v_sha256": tensors_sha256(snapshot.v),
    }
