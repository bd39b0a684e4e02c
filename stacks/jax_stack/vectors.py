"""Answers to golden vectors: one function per kind, each through the modules that a leg uses
(S-27).
"""

import io
import json
import tempfile
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import nnx

from . import train
from .anchor import compare_tensors
from .architecture import Architecture
from .batch import RowLayout, Tokens, epoch_order, fill_rows, make_batch
from .config import OptimizerConfig, ScheduleConfig, load_config
from .encode import Encoder
from .errors import BadInput, StackError
from .examples import ConversationReader
from .host import Host
from .loss import count_targets, mean_of, sum_of_nll
from .model import Params, RMSNorm, abstract_model, forward, parameter_shapes
from .numerics import global_norm, statistics, tensors_sha256
from .precision import PRECISIONS, Precision, castable, widen_all
from .prepare import Preparer
from .render import Renderer
from .runtime import StopSignal
from .step import State, StepArrays, loss_and_grads, updated
from .taps import TapRecorder
from .tokenizer import load_tokenizer
from .trace import to_json
from .update import (
    adam_state,
    check_frozen,
    clip_factor,
    is_trainable,
    learning_rates,
    make_optimizer,
    scale_by_factor,
)
from .weights import Checkpoint, match_tensors, read_checkpoint

Input = Mapping[str, Any]


def answer_file(path: Path, out: Path) -> None:
    """Answers every case of a vector file; a case that is refused is answered with its sentence.

    Raises:
        BadInput: the file is not one of golden vectors.
    """
    try:
        cases = json.loads(path.read_text(encoding="utf-8"))["cases"]
        given = [(case["name"], case["kind"], case["input"]) for case in cases]
    except OSError as error:
        raise BadInput(
            f"{path}: the vectors cannot be read ({error.strerror}); check --in"
        ) from error
    except (ValueError, KeyError, TypeError) as error:
        raise BadInput(
            f"{path}: golden vectors are an object with cases of name, kind and input (S-27)"
        ) from error
    answers = [answer(*case, path.parent) for case in given]
    out.write_text(to_json({"answers": answers}, indent=1) + "\n", encoding="utf-8")


def answer(name: str, kind: str, given: Input, folder: Path) -> dict[str, Any]:
    """The answer to one case; paths in it are relative to `folder`."""
    if kind not in KINDS:
        raise BadInput(f"the case `{name}` has the kind {kind}; S-27 knows {', '.join(KINDS)}")
    try:
        return {"name": name, "output": KINDS[kind](given, folder)}
    except StackError as error:
        return {"name": name, "error": str(error)}


def _precision(given: Input) -> Precision:
    return PRECISIONS[given.get("precision", "float64")]


def _array(values: Any, dtype: np.dtype) -> np.ndarray:
    """Nested lists as an array; what is not finite comes as a word, which NumPy can read (S-24)."""
    return castable(np.array(values, dtype=np.float64), dtype).astype(dtype)


def _tensors(given: Mapping[str, Any], dtype: np.dtype) -> dict[str, np.ndarray]:
    return {name: _array(values, dtype) for name, values in given.items()}


def _list(values: Any) -> Any:
    return np.asarray(values, dtype=np.float64).tolist()


def _lists(tensors: Params) -> dict[str, Any]:
    return {name: _list(value) for name, value in tensors.items()}


def _conversations(given: Input, folder: Path) -> dict[str, Any]:
    data = bytes.fromhex(given["bytes_hex"]) if "bytes_hex" in given else _utf8(given["text"])
    examples = ConversationReader().read_lines(io.BytesIO(data), "vectors")
    return {"examples": [{"id": e.id, "messages": e.messages} for e in examples]}


def _utf8(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")  # a surrogate is for the reader to refuse


def _renderer(given: Input) -> Renderer:
    return Renderer(
        source=given["template"],
        name="template",
        bos_token=given["bos_token"],
        eos_token=given["eos_token"],
        mask=given["mask"],
    )


def _render(given: Input, folder: Path) -> dict[str, Any]:
    rendered = _renderer(given).render(given["messages"], "messages")
    return {"text": rendered.text, "spans": [list(span) for span in rendered.spans]}


def _encode(given: Input, folder: Path) -> dict[str, Any]:
    encoding = Encoder(load_tokenizer(folder / given["tokenizer"])).encode(given["text"])
    ranges = [list(pair) for pair in zip(encoding.starts, encoding.ends, strict=True)]
    return {"ids": encoding.ids, "ranges": ranges}


def _example(given: Input, folder: Path) -> dict[str, Any]:
    preparer = Preparer(
        renderer=_renderer(given),
        encoder=Encoder(load_tokenizer(folder / given["tokenizer"])),
        mask=given["mask"],
        max_length=given["max_length"],
        truncation_side=given["truncation_side"],
    )
    prepared = preparer.prepare("example", given["messages"], "messages")
    return {
        "ids": prepared.ids,
        "mask": prepared.mask,
        "num_tokens_before_truncation": prepared.num_tokens_before_truncation,
        "typed_control_tokens": prepared.typed_control_tokens,
    }


def _order(given: Input, folder: Path) -> dict[str, Any]:
    order = epoch_order(given["seed"], given["epoch"], given["ids"])
    return {"ids": [given["ids"][i] for i in order]}


def _rows(given: Input, folder: Path) -> dict[str, Any]:
    return {"rows": fill_rows(given["lengths"], given["max_length"], given["packing"])}


def _batches(given: Input, folder: Path) -> dict[str, Any]:
    layout = RowLayout(
        pad_id=given["pad_id"],
        padding_side=given["padding_side"],
        pad_multiple=given["pad_multiple"],
        micro_batch_size=given["micro_batch_size"],
        accumulation_steps=given["accumulation_steps"],
    )
    rows = [[_tokens(example) for example in row] for row in given["rows"]]
    steps = []
    for start in range(0, len(rows), layout.rows_per_step):
        batch = make_batch(rows[start : start + layout.rows_per_step], layout)
        arrays = ("input_ids", "segments", "positions", "labels")
        steps.append(
            {name: getattr(batch, name).tolist() for name in arrays}
            | {"batch_sha256": batch.sha256()}
            | {"num_tokens": batch.num_tokens, "num_targets": batch.num_targets}
        )
    return {"steps": steps}


def _tokens(example: Input) -> Tokens:
    ids, mask = (np.array(example[key], dtype=np.int32) for key in ("ids", "mask"))
    return Tokens(id="", ids=ids, mask=mask)


@cache
def _compiled(architecture: Architecture, attention: str, precision: Precision) -> tuple[Any, Any]:
    """(logits, loss and gradients) of a model, compiled once for all cases of one shape."""
    model = abstract_model(architecture)

    def logits(params: Params, ids: jax.Array, segments: jax.Array, places: jax.Array) -> jax.Array:
        return forward(model, params, ids, segments, places, attention, precision)

    def grads(params: Params, arrays: StepArrays) -> tuple[jax.Array, Params]:
        return loss_and_grads(model, attention, precision, params, {}, arrays)

    return jax.jit(logits), jax.jit(grads)


def _logits(given: Input, folder: Path) -> dict[str, Any]:
    checkpoint = read_checkpoint(folder / given["checkpoint"])
    params = _parameters(checkpoint, given)
    arrays = (jnp.asarray(given[key], jnp.int32) for key in ("input_ids", "segments", "positions"))
    compute, _ = _compiled(checkpoint.architecture, given["attention"], _precision(given))
    return {"logits": _list(compute(params, *arrays))}


def _parameters(checkpoint: Checkpoint, given: Input) -> Params:
    shapes = parameter_shapes(abstract_model(checkpoint.architecture))
    values = match_tensors(checkpoint, shapes, _precision(given).held)
    return {name: jnp.asarray(value) for name, value in values.items()}


def _on_device(given: Mapping[str, Any], precision: Precision) -> Params:
    return {name: jnp.asarray(x) for name, x in _tensors(given, precision.held).items()}


def _loss(given: Input, folder: Path) -> dict[str, Any]:
    logits = jnp.asarray(_array(given["logits"], _precision(given).activation))
    labels = jnp.asarray(given["labels"], jnp.int32)
    count = count_targets(labels)

    def loss(values: jax.Array) -> jax.Array:
        return mean_of(jnp.sum(jax.vmap(sum_of_nll)(values, labels)), count)

    value, grads = jax.value_and_grad(loss)(logits)
    grad_logits = _list(grads)
    return {"loss": float(value), "num_targets": int(count), "grad_logits": grad_logits}


def _clip(given: Input, folder: Path) -> dict[str, Any]:
    grads = _on_device(given["grads"], _precision(given))
    grad_norm = global_norm(grads.values())
    factor = clip_factor(grad_norm, given["clip_norm"])
    clipped, _ = scale_by_factor().update(widen_all(grads), optax.EmptyState(), factor=factor)
    return {
        "grad_norm": float(grad_norm),
        "clip_factor": float(factor),
        "clipped": _lists(clipped),
    }


def _schedule(given: Input, folder: Path) -> dict[str, Any]:
    schedule = ScheduleConfig(
        kind=given["kind"], warmup_steps=given["warmup_steps"], min_ratio=given["min_ratio"]
    )
    return {"lr": learning_rates(schedule, given["learning_rate"], given["num_steps"])}


def _adamw(given: Input, folder: Path) -> dict[str, Any]:
    precision = _precision(given)
    params = _on_device(given["params"], precision)
    check_frozen(params, tuple(given["frozen"]))
    names = [name for name in params if is_trainable(name, tuple(given["frozen"]))]
    config = OptimizerConfig(
        learning_rate=0.0,  # given for each update
        beta1=given["beta1"],
        beta2=given["beta2"],
        epsilon=given["epsilon"],
        weight_decay=given["weight_decay"],
        decay=given["decay"],
        frozen=tuple(given["frozen"]),
        clip_norm="off",
    )
    optimizer = make_optimizer(config, {name: params[name].shape for name in names})
    trainable = {name: params[name] for name in names}
    state = State(trainable, optimizer.transformation.init(trainable))
    for values, rate in zip(given["grads"], given["lr"], strict=True):
        grads = _on_device({name: values[name] for name in names}, precision)
        state = updated(optimizer, state, grads, jnp.ones(()), jnp.asarray(rate, jnp.float64))
    adam = adam_state(state.optimizer)
    return {
        "params": _lists(params | state.trainable),
        "m": _lists(adam.mu),
        "v": _lists(adam.nu),
    }


def _statistics(given: Input, folder: Path) -> dict[str, Any]:
    values = jnp.asarray(_array(given["values"], _precision(given).held))
    return vars(statistics({given["name"]: values})[given["name"]])


def _tensors_sha256(given: Input, folder: Path) -> dict[str, Any]:
    return {"sha256": tensors_sha256(_tensors(given["tensors"], _precision(given).held))}


def _gradients(given: Input, folder: Path) -> dict[str, Any]:
    checkpoint = read_checkpoint(folder / given["checkpoint"])
    params = _parameters(checkpoint, given)
    arrays = StepArrays(*(jnp.asarray(given[key], jnp.int32) for key in StepArrays._fields))
    _, compute = _compiled(checkpoint.architecture, given["attention"], _precision(given))
    loss, grads = compute(params, arrays)
    return {
        "loss": float(loss),
        "grad_norm": float(global_norm(grads.values())),
        "grads": {name: vars(of_tensor) for name, of_tensor in statistics(grads).items()},
    }


STEP_FIELDS = (
    "step",
    "epoch",
    "examples",
    "num_tokens",
    "num_targets",
    "batch_sha256",
    "lr",
    "loss",
    "grad_norm",
    "clip_factor",
    "param_norm",
    "eval_loss",
)


def _taps(given: Input, folder: Path) -> dict[str, Any]:
    checkpoint = read_checkpoint(folder / given["checkpoint"])
    params = _parameters(checkpoint, given)
    arrays = StepArrays(*(jnp.asarray(given[key], jnp.int32) for key in StepArrays._fields))
    recorder = _recorder(checkpoint.architecture, given["attention"], _precision(given))
    return {"taps": recorder.record(params, arrays).rows}


@cache
def _recorder(architecture: Architecture, attention: str, precision: Precision) -> TapRecorder:
    """Compiles once for all cases of one shape."""
    model = abstract_model(architecture)
    return TapRecorder(model=model, attention=attention, precision=precision)


def _rms_norm(given: Input, folder: Path) -> dict[str, Any]:
    precision = _precision(given)
    values = jnp.asarray(_array(given["values"], precision.activation))
    module = RMSNorm(values.shape[-1], given["epsilon"])
    module.weight = nnx.Param(jnp.asarray(_array(given["weight"], precision.held)))
    return {"values": _list(jax.jit(lambda x: module(x))(values))}


def _anchor(given: Input, folder: Path) -> dict[str, Any]:
    own, anchor = (_tensors(given[key], _precision(given).held) for key in ("own", "anchor"))
    for name in sorted(own.keys() ^ anchor.keys()):
        raise BadInput(f"{name} is in one of own and anchor only (S-30); give it in both")
    return compare_tensors(own, anchor, anchor.__getitem__)


def _training(given: Input, folder: Path) -> dict[str, Any]:
    path = folder / given["config"]
    config = load_config(path, path.parent)
    with tempfile.TemporaryDirectory() as name:
        out = Path(name)
        options = train.TrainOptions(
            resume=False,
            trace=True,
            device="cpu",
            host=Host(condition=None),
            anchors=None,
            anchor_seconds=0.0,
        )
        train.train(config, out, "vectors", options, StopSignal())
        lines = [json.loads(line) for line in (out / "steps.jsonl").read_bytes().splitlines()]
    return {"steps": [{field: line[field] for field in STEP_FIELDS} for line in lines]}


KINDS: dict[str, Callable[[Input, Path], dict[str, Any]]] = {
    "conversations": _conversations,
    "render": _render,
    "encode": _encode,
    "example": _example,
    "order": _order,
    "rows": _rows,
    "batches": _batches,
    "logits": _logits,
    "loss": _loss,
    "clip": _clip,
    "schedule": _schedule,
    "adamw": _adamw,
    "statistics": _statistics,
    "tensors_sha256": _tensors_sha256,
    "gradients": _gradients,
    "training": _training,
    "taps": _taps,
    "rms_norm": _rms_norm,
    "anchor": _anchor,
}
