"""A replay: from one state or several to the end of one step, with everything recorded (S-29).

    n  updates that a state has behind it; t  the step that is looked at

A step is the program of a training leg, so it repeats what that leg did.
"""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp

from .batch import START, StepData
from .config import LoadedConfig
from .errors import BadInput, Interrupted
from .exchange import (
    open_batches,
    read_gradients,
    read_rates,
    write_batches,
    write_named,
    write_rates,
)
from .facts import data_facts, make_header
from .leg import (
    check_vocabulary,
    initial_parameters,
    make_trainer,
    place,
    place_saved,
    trainer_facts,
    training_data,
)
from .model import Params, abstract_model, parameter_shapes
from .prepare import LoadedInputs, load_inputs
from .replay_data import ReplayExamples, StepSource, read_examples
from .runtime import StopSignal
from .snapshot import SavedState, Snapshot, open_checked, write_state
from .step import State, Trainer, arrays_of
from .taps import TOKEN_LOSS, DeepTrace, TapRecorder
from .trace import Trace
from .train import describe_data, describe_result, tensor_rows_of
from .update import adam_state, learning_rates
from .weights import Checkpoint, read_checkpoint

FROM_CHECKPOINT = "start"


@dataclass(frozen=True, kw_only=True)
class ReplayOptions:
    """What is replayed; `sources` are snapshots, or the word `start`."""

    step: int  # t
    sources: Sequence[str]
    batches: Path | None
    rates: Path | None
    gradients: Path | None
    export: bool
    device: str  # its kind


@dataclass(frozen=True, kw_only=True)
class Origin:
    """A state to replay from, and the data of its steps n..t; `saved` None: the checkpoint."""

    saved: SavedState | None
    steps: list[StepData]


@dataclass(frozen=True, kw_only=True)
class Replay:
    """What all states of a replay share."""

    config: LoadedConfig
    options: ReplayOptions
    trainer: Trainer
    recorder: TapRecorder
    checkpoint: Checkpoint
    rates: Mapping[int, float]
    gradients: Params | None  # of step t, another leg's

    def first_step(self, origin: Origin) -> int:
        """The n of an origin."""
        return self.options.step + 1 - len(origin.steps)

    def place(self, origin: Origin) -> State:
        """The state of an origin, on the device."""
        if origin.saved is not None:
            return place_saved(self.trainer, origin.saved)
        return place(self.trainer, initial_parameters(self.trainer, self.checkpoint), None)


def replay(
    config: LoadedConfig, out: Path, nonce: str, options: ReplayOptions, stop: StopSignal
) -> None:
    """Replays every state and writes `out`.

    Raises:
        BadInput: an input breaks a clause.
        Interrupted: `stop` was set.
    """
    _check_step(config, options.step)
    inputs = load_inputs(config)
    checkpoint = read_checkpoint(config.resolve(config.run.model.checkpoint))
    check_vocabulary(inputs, checkpoint)
    shared = _prepare(config, options, checkpoint)
    saved = [_open_source(source, shared) for source in options.sources]
    examples = read_examples(config, inputs.preparer)
    origins = _find_data(shared, inputs, examples, saved)
    top = Trace(out=out, is_recording=False, has_steps=False)
    for number, origin in enumerate(origins):
        state = shared.place(origin)
        if number == 0:
            facts = data_facts(config, inputs, examples.splits())
            facts |= _facts(shared, state, origins, len(examples.ids))
            facts["files"] |= checkpoint.hashes()
            runtime = {"device": options.device, "compile": True}
            top.write_header(make_header(config, nonce, "replay", facts, runtime))
        _replay_one(shared, origin, state, out / str(number), stop)
        del state
    done = {
        "nonce": nonce,
        "mode": "replay",
        "num_steps": options.step + 1,
        "num_examples": examples.splits().num_examples,
        "final": None,
    }
    top.finish(done, traced=["**/*"])


def _check_step(config: LoadedConfig, step: int) -> None:
    num_steps = config.run.train.num_steps
    if not 0 <= step < num_steps:
        raise BadInput(
            f"--step is {step}, the run of {config.path} has the steps 0 to {num_steps - 1} "
            "(S-29); name one of them"
        )


def _prepare(config: LoadedConfig, options: ReplayOptions, checkpoint: Checkpoint) -> Replay:
    run = config.run
    trainer = make_trainer(run, abstract_model(checkpoint.architecture))
    rates = dict(
        enumerate(learning_rates(run.schedule, run.optimizer.learning_rate, run.train.num_steps))
    )
    shapes = parameter_shapes(trainer.model)
    trainable = {name: shapes[name] for name in trainer.optimizer.decay_mask}
    return Replay(
        config=config,
        options=options,
        trainer=trainer,
        recorder=TapRecorder(
            model=trainer.model, attention=trainer.attention, precision=trainer.precision
        ),
        checkpoint=checkpoint,
        rates=rates | (read_rates(options.rates) if options.rates else {}),
        gradients=(
            read_gradients(options.gradients, trainable, trainer.precision.held)
            if options.gradients
            else None
        ),
    )


def _open_source(source: str, shared: Replay) -> SavedState | None:
    if source == FROM_CHECKPOINT:
        return None
    trainer, step = shared.trainer, shared.options.step
    saved = open_checked(
        Path(source),
        shared.config.sha256,
        parameter_shapes(trainer.model),
        frozenset(trainer.optimizer.decay_mask),
        trainer.precision.held,
    )
    if saved.num_updates > step:
        raise BadInput(
            f"{source}: the snapshot is the state after {saved.num_updates} updates, which is "
            f"beyond step {step} (S-29); take an earlier snapshot, or a later --step"
        )
    return saved


def _find_data(
    shared: Replay,
    inputs: LoadedInputs,
    examples: ReplayExamples,
    saved: Sequence[SavedState | None],
) -> list[Origin]:
    """Renders what the steps of all states need, and nothing else."""
    run, options = shared.config.run, shared.options
    taken = None
    if options.batches is not None:
        taken = open_batches(
            options.batches,
            run.train.accumulation_steps,
            run.train.micro_batch_size,
            shared.checkpoint.architecture.vocab_size,
        )
    data = training_data(run, inputs.pad_id, examples.ids, examples.examples.tokens_of)
    source = StepSource(data=data, taken=taken)
    origins = []
    for state in saved:
        first, position = (state.num_updates, state.position) if state else (0, START)
        steps = list(source.steps(position, first, options.step))
        origins.append(Origin(saved=state, steps=steps))
    return origins


def _facts(
    shared: Replay, state: State, origins: Sequence[Origin], num_examples: int
) -> dict[str, Any]:
    """The facts that a training leg would have (S-25).

    The steps of a packed epoch cannot be counted without rendering all of it: those up to t are
    counted.
    """
    run, first = shared.config.run, origins[0]
    arrays = arrays_of(first.steps[0].batch)
    given = shared.gradients if len(first.steps) == 1 else None
    outputs = shared.trainer.compiled_step(state, arrays, given).outputs
    rows_per_step = arrays.labels.shape[0] * arrays.labels.shape[1]
    if run.data.packing:
        steps_per_epoch = shared.options.step + 1
    else:
        steps_per_epoch = -(-num_examples // rows_per_step)
    facts = {
        "rows_per_step": rows_per_step,
        "steps_per_epoch": steps_per_epoch,
        "num_steps": run.train.num_steps,
        **trainer_facts(shared.trainer, state, arrays, outputs),
    }
    return facts


def _replay_one(shared: Replay, origin: Origin, state: State, out: Path, stop: StopSignal) -> None:
    """Makes the updates n..t from `state`, and writes what S-29 names into `out`."""
    out.mkdir(mode=0o700)
    trace = Trace(
        out=out, is_recording=True, has_steps=True, has_tokens=False, line_files=("steps.jsonl",)
    )
    trace.begin(0)
    first = shared.first_step(origin)
    if shared.options.export:
        _export_inputs(shared, origin, state, out)
    began = time.perf_counter()
    for step, data in enumerate(origin.steps, start=first):
        if stop.name:
            raise Interrupted(
                f"{stop.name} stopped the replay before step {step}; start it again in an empty "
                "directory"
            )
        run = _run_last if step == shared.options.step else _run
        state, line = run(shared, trace, state, step, data)
        wall_seconds = time.perf_counter() - began
        trace.add_step({"step": step, **line, "wall_seconds": wall_seconds})
    trace.close()


def _run(
    shared: Replay, trace: Trace, state: State, step: int, data: StepData
) -> tuple[State, dict[str, Any]]:
    """(state, line of the trace) after an update of which nothing else is recorded."""
    rate = shared.rates[step]
    state, _, scalars = shared.trainer.run(state, arrays_of(data.batch), rate)
    return state, _line(data, rate, scalars)


def _run_last(
    shared: Replay, trace: Trace, state: State, step: int, data: StepData
) -> tuple[State, dict[str, Any]]:
    """The same for step t, which is recorded in full."""
    trainer, rate, arrays = shared.trainer, shared.rates[step], arrays_of(data.batch)
    deep = shared.recorder.record(trainer.parameters(state), arrays)
    before = jax.tree.map(jnp.copy, state.trainable)
    state, own, scalars = trainer.run(state, arrays, rate, shared.gradients)
    grads = own if shared.gradients is None else shared.gradients
    trace.add_tensors(tensor_rows_of(step, trainer, state, grads, before))
    trace.write_deep(step, deep.rows)
    if shared.options.export:
        _export_results(deep, grads, trace.out)
    return state, _line(data, rate, scalars)


def _line(data: StepData, rate: float, scalars: Any) -> dict[str, Any]:
    result = describe_result(rate, jax.device_get(scalars))
    return {**describe_data(data), **result, "eval_loss": None, "eval_targets": None}


def _export_inputs(shared: Replay, origin: Origin, state: State, out: Path) -> None:
    """Writes the state of n, and the batches and rates of the steps n..t."""
    first = shared.first_step(origin)
    adam = adam_state(state.optimizer)
    snapshot = Snapshot(
        num_updates=first,
        position=origin.saved.position if origin.saved else START,
        params=shared.trainer.parameters(state),
        m=adam.mu,
        v=adam.nu,
        config_sha256=shared.config.sha256,
    )
    write_state(out / "state.safetensors", snapshot)
    steps = dict(enumerate(origin.steps, start=first))
    write_batches(out / "batches.safetensors", {s: data.batch for s, data in steps.items()})
    write_rates(out / "rates.json", {step: shared.rates[step] for step in steps})


def _export_results(deep: DeepTrace, grads: Params, out: Path) -> None:
    """Writes the gradients of step t before clipping, and its loss of each token."""
    write_named(out / "gradients.safetensors", "grad/", grads)
    write_named(out / "token_loss.safetensors", "", {TOKEN_LOSS: deep.token_loss})
