"""The run config: a TOML file to frozen records (S-01).

Every key is required but the table `trajectory`, unknown keys are errors, nothing else has a
default. The annotations below are the schema; schema.py reads them.
"""

import hashlib
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from .errors import BadInput
from .schema import Bound, Paths, Pattern, convert

Text = Annotated[str, Pattern(regex=r"(?s).+")]  # not empty
Count = Annotated[int, Bound(at_least=0)]
Positive = Annotated[int, Bound(at_least=1)]
NonNegative = Annotated[float, Bound(at_least=0)]
AboveZero = Annotated[float, Bound(above=0)]
Beta = Annotated[float, Bound(at_least=0, below=1)]
Ratio = Annotated[float, Bound(at_least=0, at_most=1)]


@dataclass(frozen=True, kw_only=True)
class DataConfig:
    """Data, template, tokenizer, and how examples become batches."""

    train: Annotated[tuple[Text, ...], Paths()]
    eval: Annotated[tuple[Text, ...], Paths()]
    edge: Annotated[tuple[Text, ...], Paths()]
    template: Text
    tokenizer: Text
    bos_token: str
    eos_token: str
    pad_token: Text
    mask: Literal["assistant", "all"]
    max_length: Annotated[int, Bound(at_least=2)]  # tokens
    truncation_side: Literal["left", "right"]
    padding_side: Literal["left", "right"]
    pad_multiple: Positive
    packing: bool


@dataclass(frozen=True, kw_only=True)
class ModelConfig:
    """Which model, and which implementation of attention."""

    checkpoint: Text
    attention: Literal["eager", "fused"]


@dataclass(frozen=True, kw_only=True)
class TrainConfig:
    """Precision and amount of work."""

    precision: Literal["float64", "float32", "bfloat16", "bfloat16_pure"]
    num_steps: Positive
    micro_batch_size: Positive  # rows
    accumulation_steps: Positive


@dataclass(frozen=True, kw_only=True)
class OptimizerConfig:
    """AdamW and clipping."""

    learning_rate: NonNegative
    beta1: Beta
    beta2: Beta
    epsilon: AboveZero
    weight_decay: NonNegative
    decay: Literal["all", "matrices", "projections", "none"]
    frozen: tuple[Text, ...]  # prefixes of parameter names
    clip_norm: AboveZero | Literal["off"]


@dataclass(frozen=True, kw_only=True)
class ScheduleConfig:
    """The learning rate over the run."""

    kind: Literal["constant", "linear", "cosine"]
    warmup_steps: Count
    min_ratio: Ratio


@dataclass(frozen=True, kw_only=True)
class EvalConfig:
    """When and on how much to evaluate."""

    every_steps: Count  # 0: never
    num_examples: Positive


@dataclass(frozen=True, kw_only=True)
class SnapshotConfig:
    """When to write snapshots."""

    every_steps: Count  # 0: never


@dataclass(frozen=True, kw_only=True)
class TraceConfig:
    """When to record tensor statistics."""

    tensors_every: Count  # steps; 0: never


@dataclass(frozen=True, kw_only=True)
class RuntimeConfig:
    """Where and how to compute."""

    device: Literal["cpu", "cuda"]
    threads: Positive
    compile: bool


@dataclass(frozen=True, kw_only=True)
class TrajectoryConfig:
    """Whether a follower takes its state from a leader (S-30)."""

    mode: Literal["free", "anchored"]
    anchor_every: Count  # steps; 0 exactly when free


@dataclass(frozen=True, kw_only=True)
class RunConfig:
    """A whole run; a key with a default may be absent."""

    contract: Literal["1"]
    name: Annotated[str, Pattern(regex=r"[a-z0-9][a-z0-9-]{0,63}")]
    seed: Count
    data: DataConfig
    model: ModelConfig
    train: TrainConfig
    optimizer: OptimizerConfig
    schedule: ScheduleConfig
    eval: EvalConfig
    snapshot: SnapshotConfig
    trace: TraceConfig
    runtime: RuntimeConfig
    trajectory: TrajectoryConfig = TrajectoryConfig(mode="free", anchor_every=0)


@dataclass(frozen=True, kw_only=True)
class LoadedConfig:
    """A run config with the hash of the bytes it was read from and the root of its paths."""

    run: RunConfig
    path: Path
    root: Path
    sha256: str

    def resolve(self, path: str) -> Path:
        """`path` of the config, relative to the root that the launcher named (S-01)."""
        return self.root / path


def load_config(path: Path, root: Path) -> LoadedConfig:
    """Reads and checks a run config.

    Raises:
        BadInput: the file cannot be read, is not TOML 1.0, or breaks S-01.
    """
    try:
        data = path.read_bytes()
        table = tomllib.loads(data.decode("utf-8"))
    except OSError as error:
        raise BadInput(
            f"{path}: the run config cannot be read ({error.strerror}); check --config"
        ) from error
    except UnicodeDecodeError as error:
        raise BadInput(
            f"{path}: a run config is UTF-8, byte {error.start} is not; save it as UTF-8"
        ) from error
    except tomllib.TOMLDecodeError as error:
        raise BadInput(f"{path}: a run config is TOML 1.0, but: {error}") from error
    except (ValueError, RecursionError) as error:  # a number of thousands of digits, deep nesting
        raise BadInput(
            f"{path}: a run config is TOML 1.0 that can be read, this one not"
        ) from error
    run: RunConfig = convert(table, RunConfig, str(path), "")
    if run.schedule.warmup_steps >= run.train.num_steps:
        raise BadInput(
            f"{path}: schedule.warmup_steps is below train.num_steps (S-01), "
            f"but {run.schedule.warmup_steps} is not below {run.train.num_steps}"
        )
    trajectory = run.trajectory
    if (trajectory.mode == "free") != (trajectory.anchor_every == 0):
        raise BadInput(
            f"{path}: trajectory.anchor_every is 0 exactly when trajectory.mode is free (S-01), "
            f"but they are {trajectory.anchor_every} and {trajectory.mode}; change one"
        )
    return LoadedConfig(run=run, path=path, root=root, sha256=hashlib.sha256(data).hexdigest())
