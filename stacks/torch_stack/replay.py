"""The verb `replay`: some steps again, from a state, with one of them seen from inside (S-29).

Steps n..t are made as `train` makes them, from each state that is named. One trainer serves all of
them: a state is read into it from its file, so that no second copy lies in memory.
"""

import dataclasses
import time
from dataclasses import dataclass
from pathlib import Path

import torch

from stacks.torch_stack.config import Config, Eval
from stacks.torch_stack.errors import BadInput, Interrupted
from stacks.torch_stack.exchange import (
    GivenStream,
    given_steps,
    read_batches,
    read_gradients,
    read_rates,
    write_batches,
    write_gradients,
    write_rates,
    write_token_loss,
)
from stacks.torch_stack.header import train_facts
from stacks.torch_stack.inputs import lazy_examples, load_inputs
from stacks.torch_stack.leg import Leg, write_done, write_header
from stacks.torch_stack.precision import PRECISIONS
from stacks.torch_stack.recorder import Recorder
from stacks.torch_stack.runtime import prepare_torch
from stacks.torch_stack.snapshot import Snapshot, read_snapshot, save_snapshot, step_of
from stacks.torch_stack.taps import Taps
from stacks.torch_stack.trace import StepLog, TensorTable, write_deep
from stacks.torch_stack.train import Taken, Trainer
from stacks.torch_stack.weights import Checkpoint, load_checkpoint

START = "start"


@dataclass(frozen=True, kw_only=True)
class Request:
    """What the launcher asked to see."""

    step: int  # t
    sources: tuple[str, ...]  # snapshots, or "start"
    batches: Path | None
    rates: Path | None
    gradients: Path | None
    exports: bool


class Observer(Recorder):
    """The watch of step t: describes its tensors, and hands its gradients on."""

    def __init__(self, table: TensorTable, exported: Path | None) -> None:
        super().__init__(table)
        self._exported = exported

    def before_clipping(self, t: int, trainer: Trainer) -> None:
        """The gradients of the step, its own or those that it took."""
        if self._exported is not None:
            write_gradients(self._exported, trainer.grads())
        super().before_clipping(t, trainer)


def replay(leg: Leg, request: Request) -> None:
    """Make the steps of every source in turn; `done.json` comes last."""
    config, t = (
        dataclasses.replace(leg.config, eval=Eval(every_steps=0, num_examples=1)),
        request.step,
    )
    if not 0 <= t < config.train.num_steps:
        raise BadInput(
            f"S-29: --step {t} is no step of this run, which has {config.train.num_steps}; "
            "count from 0"
        )
    device = prepare_torch(config)
    checkpoint = _load(config)
    rendered = not _all_given(request)
    inputs = load_inputs(config, rendered)
    inputs.tokenizer.check_vocab_size(
        checkpoint.config.vocab_size, checkpoint.folder / "config.json"
    )
    examples = lazy_examples(inputs)
    trainer = Trainer(config, checkpoint, {"train": examples, "eval": []}, inputs.pad_id, device)
    work = _Work(leg=leg, request=request, trainer=trainer, rendered=rendered)
    starts = [work.check(source) for source in request.sources]
    facts = train_facts(inputs, trainer)
    if not rendered:
        facts["steps_per_epoch"] = _steps_per_epoch(inputs.splits["train"].num_examples, trainer)
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else device.type
    write_header(leg, "replay", facts, name, torch.get_num_threads())
    for number, (source, n) in enumerate(zip(request.sources, starts, strict=True)):
        if source != START:
            trainer.restore(work.open(source))
        elif number > 0:  # the trainer was built at the start
            trainer.start_over(_load(config).tensors)
        work.make_steps(leg.out / str(number), n)
    num_examples = {"train": examples.num_encoded, "eval": 0, "edge": 0}
    write_done(leg, "replay", num_examples, t + 1, None, listed=("",))


def _load(config: Config) -> Checkpoint:
    held = PRECISIONS[config.train.precision].held
    return load_checkpoint(config.resolve(config.model.checkpoint), held)


def _all_given(request: Request) -> bool:
    """Whether the other leg's batches are all that the steps need."""
    if request.batches is None:
        return False
    starts = [0 if one == START else step_of(Path(one)) for one in request.sources]
    return given_steps(request.batches) >= set(range(min(starts), request.step + 1))


def _steps_per_epoch(num_examples: int, trainer: Trainer) -> int:
    """Without packing a row is an example; with it nobody knows before all are rendered: 1."""
    if trainer.config.data.packing:
        return 1
    return -(-num_examples // trainer.shape.num_rows)


class _Work:
    """The steps of one source after another, through one trainer."""

    def __init__(self, *, leg: Leg, request: Request, trainer: Trainer, rendered: bool) -> None:
        self._leg, self._request, self._trainer = leg, request, trainer
        self._rendered = rendered
        self._batches = read_batches(request.batches, trainer) if request.batches else {}
        self._rates = read_rates(request.rates) if request.rates else {}
        path = request.gradients
        self._gradients = read_gradients(path, trainer) if path else {}

    def open(self, source: str) -> Snapshot:
        """The snapshot that is named; what is read of it is in memory until it is let go."""
        trainer = self._trainer
        sha256 = self._leg.config.sha256
        return read_snapshot(Path(source), sha256, trainer.parameters, trainer.trainable)

    def check(self, source: str) -> int:
        """The number of updates that a source is after; raises `BadInput` before any step."""
        n, t = (0 if source == START else self.open(source).step), self._request.step
        if n > t:
            raise BadInput(
                f"S-29: the snapshot {source} is the state after {n} updates, which is after "
                f"--step {t}; take an earlier one"
            )
        return n

    def make_steps(self, out: Path, n: int) -> None:
        """Steps n..t from the state that the trainer holds."""
        trainer, t, exports = self._trainer, self._request.step, self._request.exports
        out.mkdir()
        if exports:
            state = trainer.state(n)
            save_snapshot(out / "state.safetensors", state, self._leg.config.sha256)
        own = trainer.stream if self._rendered else None
        stream = GivenStream(own, self._batches, n, trainer.stream)
        trainer.stream = stream
        log, table, taps = StepLog(out), TensorTable(out), Taps()
        observer = Observer(table, out / "gradients.safetensors" if exports else None)
        rates: dict[int, float] = {}
        began = time.monotonic()
        for s in range(n, t + 1):
            self._check_stop(s)
            is_seen = s == t
            step = trainer.step(
                s,
                observer if is_seen else None,
                taps if is_seen else None,
                Taken(rate=self._rates.get(s), gradients=self._gradients if is_seen else {}),
            )
            rates[s] = step.lr
            log.write({**vars(step), "wall_seconds": time.monotonic() - began})
        log.close()
        table.close_segment()
        write_deep(out, taps.rows(t))
        if exports:
            write_batches(out / "batches.safetensors", stream.taken)
            write_rates(out / "rates.json", rates)
            write_token_loss(out / "token_loss.safetensors", taps.token_loss)

    def _check_stop(self, s: int) -> None:
        if (signal := self._leg.stop_signal()) is not None:
            raise Interrupted(
                f"S-26: {signal} stopped the replay before step {s}; start it again in a new "
                "directory"
            )
