"""The run config: a TOML file to frozen records (S-01).

Every key is required, unknown keys are errors, nothing has a default. The annotations below are the
schema: `Literal` for an enumeration, `Annotated[number, Bound]` for a limit.
"""

import hashlib
import math
import re
import tomllib
from dataclasses import dataclass, fields, is_dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

from .errors import BadInput


@dataclass(frozen=True, kw_only=True)
class Bound:
    """A limit of a number; the ends named `above` and `below` are excluded."""

    at_least: float | None = None
    above: float | None = None
    at_most: float | None = None
    below: float | None = None

    def broken_by(self, value: float) -> str | None:
        """The limit that `value` breaks, in words; None when it keeps all of them."""
        if self.at_least is not None and value < self.at_least:
            return f"at least {self.at_least:g}"
        if self.above is not None and value <= self.above:
            return f"above {self.above:g}"
        if self.at_most is not None and value > self.at_most:
            return f"at most {self.at_most:g}"
        if self.below is not None and value >= self.below:
            return f"below {self.below:g}"
        return None


@dataclass(frozen=True, kw_only=True)
class Pattern:
    """A string matches `regex` as a whole."""

    regex: str


Text = Annotated[str, Pattern(regex=r"(?s).+")]  # not empty
Count = Annotated[int, Bound(at_least=0)]
Positive = Annotated[int, Bound(at_least=1)]
NonNegative = Annotated[float, Bound(at_least=0)]
AboveZero = Annotated[float, Bound(above=0)]
Beta = Annotated[float, Bound(at_least=0, below=1)]
Ratio = Annotated[float, Bound(at_least=0, at_most=1)]


@dataclass(frozen=True, kw_only=True)
class Paths:
    """A list of at least one path."""

    at_least_one: bool = True


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

    precision: Literal["float64", "float32"]
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
class RunConfig:
    """A whole run."""

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
    run: RunConfig = _convert(table, RunConfig, str(path), "")
    if run.schedule.warmup_steps >= run.train.num_steps:
        raise BadInput(
            f"{path}: schedule.warmup_steps is below train.num_steps (S-01), "
            f"but {run.schedule.warmup_steps} is not below {run.train.num_steps}"
        )
    return LoadedConfig(run=run, path=path, root=root, sha256=hashlib.sha256(data).hexdigest())


def _convert(value: Any, hint: Any, path: str, key: str) -> Any:
    """`value` as the type that `hint` states, or BadInput that names the key and both sides."""
    if is_dataclass(hint):
        return _convert_table(value, hint, path, key)
    origin, arguments = get_origin(hint), get_args(hint)
    if origin is Annotated:
        converted = _convert(value, arguments[0], path, key)
        for constraint in arguments[1:]:
            _check(converted, constraint, path, key)
        return converted
    if origin is Literal:
        if not isinstance(value, str) or value not in arguments:
            raise _refusal(path, key, " or ".join(f'"{name}"' for name in arguments), value)
        return value
    if origin is Union or origin is type(int | str):
        return _convert(value, arguments[isinstance(value, str)], path, key)  # number | Literal
    if origin is tuple:
        if not isinstance(value, list):
            raise _refusal(path, key, "an array", value)
        return tuple(
            _convert(item, arguments[0], path, f"{key}[{i}]") for i, item in enumerate(value)
        )
    return _convert_scalar(value, hint, path, key)


def _convert_table(value: Any, record: Any, path: str, key: str) -> Any:
    if not isinstance(value, dict):
        raise _refusal(path, key, "a table", value)
    prefix = f"{key}." if key else ""
    names = [field.name for field in fields(record)]
    for name in value:
        if name not in names:
            raise BadInput(
                f"{path}: `{prefix}{name}` is not a key of a run config (S-01); remove it"
            )
    for name in names:
        if name not in value:
            raise BadInput(
                f"{path}: `{prefix}{name}` is required and missing (S-01: nothing has a "
                "default); add it"
            )
    hints = get_type_hints(record, include_extras=True)
    return record(
        **{name: _convert(value[name], hints[name], path, prefix + name) for name in names}
    )


def _convert_scalar(value: Any, kind: type, path: str, key: str) -> Any:
    """A boolean is no number, a float no integer, and a string never becomes a number (S-01)."""
    if isinstance(value, int) and not isinstance(value, bool) and not -(2**63) <= value < 2**63:
        raise _refusal(path, key, "an integer of 64 bits", value)
    if kind is float and isinstance(value, int | float) and not isinstance(value, bool):
        if math.isfinite(value):
            return float(value)
        raise _refusal(path, key, "a finite number", value)
    if kind is not float and type(value) is kind:
        return value
    names = {float: "a number", int: "an integer", bool: "true or false"}
    raise _refusal(path, key, names.get(kind, "a string"), value)


def _check(value: Any, constraint: object, path: str, key: str) -> None:
    if isinstance(constraint, Bound) and (limit := constraint.broken_by(value)):
        raise _refusal(path, key, limit, value)
    if isinstance(constraint, Pattern) and not re.fullmatch(constraint.regex, value):
        wanted = (
            "not empty"
            if constraint.regex == "(?s).+"
            else f"a string that matches {constraint.regex}"
        )
        raise _refusal(path, key, wanted, value)
    if isinstance(constraint, Paths) and not value:
        raise _refusal(path, key, "a list of at least one path", list(value))


def _refusal(path: str, key: str, wanted: str, value: Any) -> BadInput:
    shown = f'"{value}"' if isinstance(value, str) else str(value)
    return BadInput(f"{path}: `{key}` must be {wanted} (S-01), not {shown[:80]}; change it")
