"""A render leg: every example of the three splits to `tokens/`, and no model (S-26)."""

from pathlib import Path

from .config import LoadedConfig
from .facts import data_facts, make_header
from .prepare import load_inputs
from .runtime import StopSignal
from .splits import read_splits
from .trace import Trace


def render(config: LoadedConfig, out: Path, nonce: str, stop: StopSignal) -> None:
    """Renders, encodes and masks; one example is in memory at a time, beyond a file of `tokens/`.

    Raises:
        BadInput: an input breaks a clause.
        Interrupted: `stop` was set.
    """
    inputs = load_inputs(config)
    trace = Trace(out=out, is_recording=True, has_steps=False)
    trace.begin(0)
    splits = read_splits(config, inputs, trace, {}, stop.raise_if_set)
    facts = data_facts(config, inputs, splits)
    trace.write_header(
        make_header(config, nonce, "render", facts, {"device": "cpu", "compile": False})
    )
    trace.finish(
        {
            "nonce": nonce,
            "mode": "render",
            "num_steps": 0,
            "num_examples": splits.num_examples,
            "final": None,
        }
    )
