"""A leg from its config to its trace: the verbs `train` and `render` (S-23, S-24, S-26)."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import torch

from stacks.torch_stack.anchors import Follower, Following, Leader
from stacks.torch_stack.config import Config
from stacks.torch_stack.documents import write_json
from stacks.torch_stack.errors import BadInput, Interrupted
from stacks.torch_stack.header import data_facts, header, train_facts
from stacks.torch_stack.host import run_step
from stacks.torch_stack.inputs import load_inputs, tokenize
from stacks.torch_stack.numerics import tensors_sha256
from stacks.torch_stack.precision import PRECISIONS
from stacks.torch_stack.recorder import Recorder
from stacks.torch_stack.resources import ResourceLog
from stacks.torch_stack.runtime import prepare_torch
from stacks.torch_stack.snapshot import read_snapshots, write_snapshot
from stacks.torch_stack.trace import (
    LISTED,
    StepLog,
    TensorTable,
    TokenTable,
    cut,
    files_of,
    num_steps_written,
)
from stacks.torch_stack.train import Trainer
from stacks.torch_stack.weights import load_checkpoint, write_checkpoint


@dataclass(frozen=True, kw_only=True)
class Leg:
    """What the launcher asked for."""

    config: Config
    out: Path
    nonce: str
    traced: bool
    stop_signal: Callable[[], str | None]  # the name of a signal that asked to stop, if any
    following: Following | None = None  # the leader's anchors (S-30)
    host: str | None = None  # a condition of S-31

    def check_stop(self) -> None:
        """Raises `Interrupted` when a signal came before the first step."""
        if (name := self.stop_signal()) is not None:
            raise Interrupted(f"S-26: {name} came before the first step; start again with --resume")


def render(leg: Leg) -> None:
    """The verb `render`: tokens of every example, and no training."""
    inputs = load_inputs(leg.config)
    tokenize(inputs, TokenTable(leg.out), leg.check_stop, keep=False)
    facts = data_facts(inputs)
    threads = leg.config.runtime.threads
    write_header(leg, "render", facts, "cpu", threads)
    write_done(leg, "render", inputs.num_examples, 0, None)


def train(leg: Leg) -> None:
    """The verb `train`: every step, from the start or from the newest snapshot."""
    config = leg.config
    if leg.following is not None and config.trajectory.mode == "free":
        raise BadInput(
            f"S-30: --anchors {leg.following.folder} was given, but the run of {config.path} is "
            'free; leave it out or set trajectory.mode = "anchored"'
        )
    device = prepare_torch(config)
    if not leg.traced and (leg.out / "steps.jsonl").exists():
        raise BadInput(
            f"S-26: {leg.out} holds steps.jsonl of a traced leg, but --no-trace was given; "
            "resume it without --no-trace"
        )
    checkpoint = load_checkpoint(
        config.resolve(config.model.checkpoint), PRECISIONS[config.train.precision].held
    )
    inputs = load_inputs(config)
    inputs.tokenizer.check_vocab_size(
        checkpoint.config.vocab_size, checkpoint.folder / "config.json"
    )
    examples = tokenize(inputs, TokenTable(leg.out) if leg.traced else None, leg.check_stop)
    trainer = Trainer(config, checkpoint, examples, inputs.pad_id, device)
    facts = train_facts(inputs, trainer)
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else device.type
    write_header(leg, "train", facts, name, torch.get_num_threads())
    start = _resume(leg, trainer)
    _run(leg, trainer, start)
    params = {name: one.detach() for name, one in trainer.parameters.items()}
    write_checkpoint(
        leg.out / "checkpoint",
        params,
        checkpoint.config_source,
        inputs.tokenizer.source,
        inputs.template_source,
    )
    m, v = trainer.moments()
    final = {
        "params_sha256": tensors_sha256(params),
        "m_sha256": tensors_sha256(m),
        "v_sha256": tensors_sha256(v),
    }
    write_done(leg, "train", inputs.num_examples, trainer.num_steps, final)


def _resume(leg: Leg, trainer: Trainer) -> int:
    """Restore the newest whole snapshot, cut the trace to it; returns the updates made."""
    folder = leg.out / "snapshots"
    num_written = num_steps_written(leg.out) if leg.traced else trainer.num_steps
    start = 0
    for snapshot in read_snapshots(
        folder, leg.config.sha256, trainer.parameters, trainer.trainable
    ):
        if snapshot.step <= num_written:  # the trace of the steps before it is there
            trainer.restore(snapshot)
            start = snapshot.step
            break
    if leg.traced:
        cut(leg.out, start)
    return start


def _run(leg: Leg, trainer: Trainer, start: int) -> None:
    """Steps `start`..N, each recorded when it is done; raises `Interrupted` after a signal."""
    loop = _Loop(leg, trainer, start)
    if loop.recorder is not None and start == 0:
        loop.recorder.describe_start(trainer)
    for t in range(start, trainer.num_steps):
        run_step(leg.host, partial(loop.advance, t))
    loop.close()


class _Loop:
    """What happens at each step of training, in order."""

    def __init__(self, leg: Leg, trainer: Trainer, start: int) -> None:
        self._leg, self._trainer = leg, trainer
        self._log = StepLog(leg.out) if leg.traced else None
        self._table = TensorTable(leg.out) if leg.traced else None
        self._resources = ResourceLog(leg.out, start) if leg.traced else None
        self.recorder = Recorder(self._table) if self._table is not None else None
        self._anchors: Leader | Follower | None = None
        if leg.following is not None:
            self._anchors = Follower(leg.config, leg.out, start, leg.following, leg.stop_signal)
        elif leg.config.trajectory.mode == "anchored":
            self._anchors = Leader(leg.config, leg.out)
        self._began = time.monotonic()

    def advance(self, t: int) -> None:
        """Step `t`: made, written, anchored, kept."""
        leg, trainer, recorder = self._leg, self._trainer, self.recorder
        config, n, log, table = leg.config, trainer.num_steps, self._log, self._table
        watches = watched(t, n, config.trace.tensors_every)
        step = trainer.step(t, recorder if watches else None)
        if log is not None:
            log.write({**vars(step), "wall_seconds": time.monotonic() - self._began})
        if self._resources is not None:
            self._resources.write(t)
        if self._anchors is not None:
            self._anchors.reach(t + 1, trainer)
        signal = leg.stop_signal() if t + 1 < n else None
        keeps = signal is not None or keeps_snapshot(t + 1, n, config.snapshot.every_steps)
        if log is not None and table is not None and (keeps or t + 1 == n or table.is_full()):
            log.sync()
            table.close_segment()
        if keeps:
            write_snapshot(leg.out / "snapshots", trainer.state(t + 1), config.sha256)
        if signal is not None:
            raise Interrupted(
                f"S-26: {signal} stopped the leg after step {t} of {n}; snapshot {t + 1} holds "
                "the state, go on with --resume"
            )

    def close(self) -> None:
        """After the last step."""
        if self._resources is not None:
            self._resources.close()


def watched(t: int, num_steps: int, every: int) -> bool:
    """Whether tensors are described at step `t` (S-21)."""
    return every > 0 and (t % every == 0 or t == num_steps - 1)


def keeps_snapshot(n: int, num_steps: int, every: int) -> bool:
    """Whether the state after `n` updates is kept (S-23)."""
    return every > 0 and (n % every == 0 or n == num_steps)


def write_header(leg: Leg, mode: str, facts: dict[str, object], device: str, threads: int) -> None:
    """`header.json`; `device` and `threads` are those in use."""
    document = header(mode, leg.nonce, leg.config, facts, device, threads, leg.host)
    trajectory = leg.config.trajectory
    if mode == "train" and trajectory.mode == "anchored":
        role = "leader" if leg.following is None else "follower"
        document["trajectory"] = {**vars(trajectory), "role": role}
    write_json(leg.out / "header.json", document)


def write_done(
    leg: Leg,
    mode: str,
    num_examples: dict[str, int],
    num_steps: int,
    final: dict[str, str] | None,
    listed: tuple[str, ...] = LISTED,
) -> None:
    """`done.json`, the last file of a leg; `listed` are the beginnings of the names it lists."""
    done = {
        "nonce": leg.nonce,
        "mode": mode,
        "num_steps": num_steps,
        "num_examples": num_examples,
        "files": files_of(leg.out, listed),
        "final": final,
    }
    write_json(leg.out / "done.json", done)
