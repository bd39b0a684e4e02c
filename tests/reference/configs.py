"""Run configs (S-01): a TOML file to a frozen record; every key required, none unknown.

Written as a table of its own, so that a mistake in the schema file is not repeated here.
"""

import math
import re
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.reference.errors import RefusedError, require

Check = Callable[[Any], bool]
Section = dict[str, Any]


def is_whole(value: Any) -> bool:
    """An integer of 64 bits with sign; true, false and 1.0 are none."""
    return type(value) is int and -(2**63) <= value < 2**63


def whole(least: int) -> Check:
    """An integer from `least` on."""
    return lambda v: is_whole(v) and v >= least


def number(holds: Callable[[float], bool]) -> Check:
    """An integer or a finite float."""
    return lambda v: (is_whole(v) or (type(v) is float and math.isfinite(v))) and holds(v)


def one_of(*words: str) -> Check:
    """One of these strings."""
    return lambda v: isinstance(v, str) and v in words


def text(least: int) -> Check:
    """A string of at least this many characters."""
    return lambda v: isinstance(v, str) and len(v) >= least


def texts(least: int) -> Check:
    """A list of at least this many strings, none empty."""
    return lambda v: isinstance(v, list) and len(v) >= least and all(text(1)(x) for x in v)


def flag(value: Any) -> bool:
    """true or false."""
    return isinstance(value, bool)


def name(value: Any) -> bool:
    """A run's name."""
    return isinstance(value, str) and re.fullmatch("[a-z0-9][a-z0-9-]{0,63}", value) is not None


SIDES = one_of("left", "right")
TOP: dict[str, Check] = {"contract": one_of("1"), "name": name, "seed": whole(0)}
SECTIONS: dict[str, dict[str, Check]] = {
    "data": {
        **{"train": texts(1), "eval": texts(1), "edge": texts(1)},
        **{"template": text(1), "tokenizer": text(1)},
        **{"bos_token": text(0), "eos_token": text(0), "pad_token": text(1)},
        **{"mask": one_of("assistant", "all"), "max_length": whole(2), "truncation_side": SIDES},
        **{"padding_side": SIDES, "pad_multiple": whole(1), "packing": flag},
    },
    "model": {"checkpoint": text(1), "attention": one_of("eager", "fused")},
    "train": {
        **{"precision": one_of("float64", "float32"), "num_steps": whole(1)},
        **{"micro_batch_size": whole(1), "accumulation_steps": whole(1)},
    },
    "optimizer": {
        **{"learning_rate": number(lambda v: v >= 0), "weight_decay": number(lambda v: v >= 0)},
        **{"beta1": number(lambda v: 0 <= v < 1), "beta2": number(lambda v: 0 <= v < 1)},
        **{"epsilon": number(lambda v: v > 0), "frozen": texts(0)},
        "decay": one_of("all", "matrices", "projections", "none"),
        "clip_norm": lambda v: v == "off" or number(lambda c: c > 0)(v),
    },
    "schedule": {
        **{"kind": one_of("constant", "linear", "cosine"), "warmup_steps": whole(0)},
        "min_ratio": number(lambda v: 0 <= v <= 1),
    },
    "eval": {"every_steps": whole(0), "num_examples": whole(1)},
    "snapshot": {"every_steps": whole(0)},
    "trace": {"tensors_every": whole(0)},
    "runtime": {"device": one_of("cpu", "cuda"), "threads": whole(1), "compile": flag},
}


def check_section(given: Any, checks: dict[str, Check], where: str) -> None:
    """Exactly these keys, each with a value that its check accepts."""
    require(isinstance(given, dict), f"{where} is no table")
    missing, unknown = sorted(checks.keys() - given), sorted(given.keys() - checks)
    require(not missing, f"{where}: missing {missing}")
    require(not unknown, f"{where}: unknown {unknown}")
    for key, check in checks.items():
        require(check(given[key]), f"{where}: {key} has a value that is not allowed")


def load(path: Path) -> dict[str, Section]:
    """The sections of a run config, with `seed` and `name` in a section ''."""
    try:
        record = tomllib.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError):  # also too many digits, too deep
        raise RefusedError(f"{path.name}: not TOML") from None
    keys = {**dict.fromkeys(SECTIONS, lambda _: True), **TOP}
    check_section(record, keys, path.name)
    for section, checks in SECTIONS.items():
        check_section(record[section], checks, f"{path.name} [{section}]")
    warmup, steps = record["schedule"]["warmup_steps"], record["train"]["num_steps"]
    require(warmup < steps, f"{path.name}: warmup_steps {warmup} is not below num_steps {steps}")
    return {**{s: record[s] for s in SECTIONS}, "": {key: record[key] for key in TOP}}
