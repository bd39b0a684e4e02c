"""The run config: TOML bytes to frozen records, every key explicit (S-01).

A record per table of the document, in the order of `run.schema.json`. A number is never read
from a string, a key that is missing or unknown is an error, and nothing has a default. Only the
table `trajectory` may be absent: the run is then free.
"""

import hashlib
import re
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from stacks.torch_stack.errors import BadInput
from stacks.torch_stack.table import Table

CONTRACT = "1"


@dataclass(frozen=True, kw_only=True)
class Data:
    """Files, template, tokens and rows (S-02 to S-11)."""

    train: tuple[str, ...]
    eval: tuple[str, ...]
    edge: tuple[str, ...]
    template: str
    tokenizer: str
    bos_token: str
    eos_token: str
    pad_token: str
    mask: Literal["assistant", "all"]
    max_length: int  # tokens
    truncation_side: Literal["left", "right"]
    padding_side: Literal["left", "right"]
    pad_multiple: int  # tokens
    packing: bool


@dataclass(frozen=True, kw_only=True)
class Model:
    """Initial weights and the implementation of attention (S-12, S-13)."""

    checkpoint: str
    attention: Literal["eager", "fused"]


@dataclass(frozen=True, kw_only=True)
class Train:
    """Precision and size of the run (S-10, S-19)."""

    precision: Literal["float64", "float32", "bfloat16", "bfloat16_pure"]
    num_steps: int
    micro_batch_size: int  # rows
    accumulation_steps: int


@dataclass(frozen=True, kw_only=True)
class Optimizer:
    """AdamW and clipping (S-16, S-18)."""

    learning_rate: float
    beta1: float
    beta2: float
    epsilon: float
    weight_decay: float
    decay: Literal["all", "matrices", "projections", "none"]
    frozen: tuple[str, ...]  # prefixes of parameter names
    clip_norm: float | Literal["off"]


@dataclass(frozen=True, kw_only=True)
class Schedule:
    """Learning rate (S-17)."""

    kind: Literal["constant", "linear", "cosine"]
    warmup_steps: int
    min_ratio: float


@dataclass(frozen=True, kw_only=True)
class Eval:
    """When and how much to evaluate (S-20)."""

    every_steps: int  # 0: never
    num_examples: int


@dataclass(frozen=True, kw_only=True)
class Snapshot:
    """When to keep the state (S-23)."""

    every_steps: int  # 0: never


@dataclass(frozen=True, kw_only=True)
class Trace:
    """When to describe tensors (S-21)."""

    tensors_every: int  # steps; 0: never


@dataclass(frozen=True, kw_only=True)
class Runtime:
    """Where the numeric library runs (S-26)."""

    device: Literal["cpu", "cuda"]
    threads: int
    compile: bool


@dataclass(frozen=True, kw_only=True)
class Trajectory:
    """Whether one leg takes its states from another (S-30)."""

    mode: Literal["free", "anchored"]
    anchor_every: int  # steps; 0 exactly when free


@dataclass(frozen=True, kw_only=True)
class Config:
    """A whole run. `root` resolves relative paths; `sha256` is the hash of the document's bytes."""

    path: Path
    root: Path
    sha256: str
    name: str
    seed: int
    data: Data
    model: Model
    train: Train
    optimizer: Optimizer
    schedule: Schedule
    eval: Eval
    snapshot: Snapshot
    trace: Trace
    runtime: Runtime
    trajectory: Trajectory

    def resolve(self, path: str) -> Path:
        """An input's path as the config writes it → where it lies."""
        return self.root / path


def load_config(path: Path, root: Path) -> Config:
    """Read and check the run config at `path`; relative paths in it resolve against `root`."""
    try:
        source = path.read_bytes()
        document = tomllib.loads(source.decode("utf-8"))
    except OSError as error:
        raise BadInput(
            f"S-01: the run config {path} cannot be read: {error.strerror}; check --config"
        ) from error
    except (ValueError, RecursionError) as error:  # not UTF-8, not TOML, or beyond Python
        raise BadInput(
            f"S-01: the run config {path} is not a TOML document: {error}; correct it"
        ) from error
    top = Table(document, path, "")
    if (contract := top.text("contract")) != CONTRACT:
        raise BadInput(
            f"S-01: {path} contract = {contract!r}, but this stack implements {CONTRACT!r}"
        )
    name = top.text("name")
    if not re.fullmatch(r"[a-z0-9][a-z0-9-]{0,63}", name):
        raise BadInput(
            f"S-01: {path} name = {name!r}, but it must be 1 to 64 of a-z, 0-9 and -, not - first"
        )
    config = Config(
        path=path,
        root=root,
        sha256=hashlib.sha256(source).hexdigest(),
        name=name,
        seed=top.integer("seed", 0),
        data=_data(top.table("data", path)),
        model=_model(top.table("model", path)),
        train=_train(top.table("train", path)),
        optimizer=_optimizer(top.table("optimizer", path)),
        schedule=_schedule(top.table("schedule", path)),
        eval=_eval(top.table("eval", path)),
        snapshot=_snapshot(top.table("snapshot", path)),
        trace=_trace(top.table("trace", path)),
        runtime=_runtime(top.table("runtime", path)),
        trajectory=_trajectory(top, path),
    )
    top.close()
    if config.schedule.warmup_steps >= config.train.num_steps:
        raise BadInput(
            f"S-01: {path} schedule.warmup_steps = {config.schedule.warmup_steps} is not below "
            f"train.num_steps = {config.train.num_steps}; warm up for fewer steps"
        )
    return config


def _data(table: Table) -> Data:
    data = Data(
        train=table.texts("train", at_least=1),
        eval=table.texts("eval", at_least=1),
        edge=table.texts("edge", at_least=1),
        template=table.text("template"),
        tokenizer=table.text("tokenizer"),
        bos_token=table.text("bos_token", empty=True),
        eos_token=table.text("eos_token", empty=True),
        pad_token=table.text("pad_token"),
        mask=table.choice("mask", "assistant", "all"),
        max_length=table.integer("max_length", 2),
        truncation_side=table.choice("truncation_side", "left", "right"),
        padding_side=table.choice("padding_side", "left", "right"),
        pad_multiple=table.integer("pad_multiple", 1),
        packing=table.flag("packing"),
    )
    table.close()
    return data


def _model(table: Table) -> Model:
    model = Model(
        checkpoint=table.text("checkpoint"), attention=table.choice("attention", "eager", "fused")
    )
    table.close()
    return model


def _train(table: Table) -> Train:
    train = Train(
        precision=table.choice("precision", "float64", "float32", "bfloat16", "bfloat16_pure"),
        num_steps=table.integer("num_steps", 1),
        micro_batch_size=table.integer("micro_batch_size", 1),
        accumulation_steps=table.integer("accumulation_steps", 1),
    )
    table.close()
    return train


def _optimizer(table: Table) -> Optimizer:
    optimizer = Optimizer(
        learning_rate=table.number("learning_rate", "a number of at least 0", lambda x: x >= 0),
        beta1=table.number("beta1", "a number in [0, 1)", lambda x: 0 <= x < 1),
        beta2=table.number("beta2", "a number in [0, 1)", lambda x: 0 <= x < 1),
        epsilon=table.number("epsilon", "a number above 0", lambda x: x > 0),
        weight_decay=table.number("weight_decay", "a number of at least 0", lambda x: x >= 0),
        decay=table.choice("decay", "all", "matrices", "projections", "none"),
        frozen=table.texts("frozen", at_least=0),
        clip_norm=table.number_or_off("clip_norm"),
    )
    table.close()
    return optimizer


def _schedule(table: Table) -> Schedule:
    schedule = Schedule(
        kind=table.choice("kind", "constant", "linear", "cosine"),
        warmup_steps=table.integer("warmup_steps", 0),
        min_ratio=table.number("min_ratio", "a number in [0, 1]", lambda x: 0 <= x <= 1),
    )
    table.close()
    return schedule


def _eval(table: Table) -> Eval:
    evaluation = Eval(
        every_steps=table.integer("every_steps", 0), num_examples=table.integer("num_examples", 1)
    )
    table.close()
    return evaluation


def _snapshot(table: Table) -> Snapshot:
    snapshot = Snapshot(every_steps=table.integer("every_steps", 0))
    table.close()
    return snapshot


def _trace(table: Table) -> Trace:
    trace = Trace(tensors_every=table.integer("tensors_every", 0))
    table.close()
    return trace


def _runtime(table: Table) -> Runtime:
    runtime = Runtime(
        device=table.choice("device", "cpu", "cuda"),
        threads=table.integer("threads", 1),
        compile=table.flag("compile"),
    )
    table.close()
    return runtime


def _trajectory(top: Table, path: Path) -> Trajectory:
    if "trajectory" not in top:
        return Trajectory(mode="free", anchor_every=0)
    table = top.table("trajectory", path)
    trajectory = Trajectory(
        mode=table.choice("mode", "free", "anchored"),
        anchor_every=table.integer("anchor_every", 0),
    )
    table.close()
    if (trajectory.mode == "anchored") != (trajectory.anchor_every > 0):
        raise BadInput(
            f"S-30: {path} trajectory.mode = {trajectory.mode!r} and trajectory.anchor_every = "
            f"{trajectory.anchor_every}, but anchor_every is 0 exactly when free; correct one"
        )
    return trajectory
