"""The reference's own answer to a golden vector of any kind (S-27).

`number` is the floating type of the evaluation. Vectors are made in extended precision and
rounded once to float64, so that their last bit depends on no order of summation.
"""

from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from tests.reference import checkpoint, training
from tests.reference.batches import Batch, Encoded, epoch_batches
from tests.reference.conversations import read_split
from tests.reference.encode import load
from tests.reference.examples import make_example
from tests.reference.hashes import tensors_sha256
from tests.reference.loss import step_loss
from tests.reference.matching import from_json
from tests.reference.model import Model, Rows
from tests.reference.optimizer import AdamW, Tensors, clip_factor, global_norm, trainable_names
from tests.reference.order import epoch_order
from tests.reference.render import Template
from tests.reference.rows import fill_rows
from tests.reference.schedule import Number, learning_rate
from tests.reference.statistics import tensor_statistics
from tests.reference.step import loss_and_gradients

Input = dict[str, Any]
Output = dict[str, Any]


def answer(kind: str, given: Input, *, root: Path, number: Number = np.float64) -> Output:
    """The output for `given`; paths in it are relative to `root`. Raises RefusedError."""
    return KINDS[kind](given, root, number)


def nested(values: Any) -> Any:
    """A nested list of float64 numbers, whatever the precision of `values`."""
    return np.asarray(values).astype(np.float64).tolist()


def record_of(name: str, values: Any, number: Number) -> Output:
    """The statistics of a tensor as JSON has them."""
    record = asdict(tensor_statistics(name, values, number))
    return {**record, "sketch": list(record["sketch"])}


def tensors_of(given: Input, number: Number) -> Tensors:
    """name -> array from name -> nested list."""
    return {name: np.array(from_json(v), dtype=number) for name, v in given.items()}


def conversations(given: Input, _root: Path, _number: Number) -> Output:
    """S-02."""
    data = given["text"].encode() if "text" in given else bytes.fromhex(given["bytes_hex"])
    split = read_split([("input", data)], set())
    return {"examples": [{"id": c.id, "messages": list(c.messages)} for c in split]}


def template_of(given: Input) -> Template:
    """The compiled template of a case."""
    return Template(
        given["template"],
        bos_token=given["bos_token"],
        eos_token=given["eos_token"],
        mask=given["mask"],
    )


def render(given: Input, _root: Path, _number: Number) -> Output:
    """S-03, S-04."""
    rendered = template_of(given).render(given["messages"])
    return {"text": rendered.text, "spans": [list(span) for span in rendered.spans]}


def encode(given: Input, root: Path, _number: Number) -> Output:
    """S-05."""
    tokenizer = load((root / given["tokenizer"]).read_text(encoding="utf-8"))
    tokens = tokenizer.encode(given["text"])
    return {"ids": [t.id for t in tokens], "ranges": [[t.start, t.stop] for t in tokens]}


def example(given: Input, root: Path, _number: Number) -> Output:
    """S-03 to S-07."""
    made = make_example(
        given["messages"],
        template=template_of(given),
        tokenizer=load((root / given["tokenizer"]).read_text(encoding="utf-8")),
        max_length=given["max_length"],
        truncation_side=given["truncation_side"],
    )
    return {
        "ids": list(made.encoded.ids),
        "mask": list(made.encoded.mask),
        "num_tokens_before_truncation": made.num_tokens_before_truncation,
        "typed_control_tokens": made.typed_control_tokens,
    }


def order(given: Input, _root: Path, _number: Number) -> Output:
    """S-08."""
    return {"ids": epoch_order(given["seed"], given["epoch"], given["ids"])}


def rows(given: Input, _root: Path, _number: Number) -> Output:
    """S-09."""
    filled = fill_rows(given["lengths"], max_length=given["max_length"], packing=given["packing"])
    return {"rows": filled}


def describe(batch: Batch) -> Output:
    """A step's arrays, hash and counts."""
    return {
        "input_ids": batch.input_ids.tolist(),
        "segments": batch.segments.tolist(),
        "positions": batch.positions.tolist(),
        "labels": batch.labels.tolist(),
        "batch_sha256": batch.sha256,
        "num_tokens": batch.num_tokens,
        "num_targets": batch.num_targets,
    }


def batches(given: Input, _root: Path, _number: Number) -> Output:
    """S-10, S-11."""
    steps = epoch_batches(
        [
            [Encoded(ids=tuple(e["ids"]), mask=tuple(e["mask"])) for e in row]
            for row in given["rows"]
        ],
        micro_batch_size=given["micro_batch_size"],
        accumulation_steps=given["accumulation_steps"],
        pad_id=given["pad_id"],
        padding_side=given["padding_side"],
        pad_multiple=given["pad_multiple"],
    )
    return {"steps": [describe(step) for step in steps]}


def rows_of(given: Input, index: int | None = None) -> Rows:
    """The arrays (B, T) of a case, or of its micro-batch `index`."""
    arrays = {key: np.array(given[key]) for key in ("input_ids", "segments", "positions")}
    return Rows(**{key: v if index is None else v[index] for key, v in arrays.items()})


def logits(given: Input, root: Path, number: Number) -> Output:
    """S-12, S-13."""
    config, params = checkpoint.load(root / given["checkpoint"], number)
    return {"logits": nested(Model(config, params, rows_of(given)).forward())}


def gradients(given: Input, root: Path, number: Number) -> Output:
    """S-12, S-14, S-15."""
    config, params = checkpoint.load(root / given["checkpoint"], number)
    labels = np.array(given["labels"])
    parts = [(rows_of(given, i), labels[i]) for i in range(len(labels))]
    value, _, grads = loss_and_gradients(config, params, parts)
    return {
        "loss": float(value),
        "grad_norm": float(global_norm(grads, number)),
        "grads": {name: record_of(name, grad, number) for name, grad in grads.items()},
    }


def train(given: Input, root: Path, number: Number) -> Output:
    """S-01 to S-20."""
    return {"steps": training.run(root / given["config"], number)}


def loss(given: Input, _root: Path, number: Number) -> Output:
    """S-14."""
    logits, labels = np.array(given["logits"], dtype=number), np.array(given["labels"])
    value, count, grad = step_loss(logits, labels)
    return {"loss": float(value), "num_targets": count, "grad_logits": nested(grad)}


def clip(given: Input, _root: Path, number: Number) -> Output:
    """S-15, S-16."""
    grads = tensors_of(given["grads"], number)
    norm = global_norm(grads, number)
    factor = clip_factor(norm, given["clip_norm"])
    clipped = {name: nested(grad * factor) for name, grad in grads.items()}
    return {"grad_norm": float(norm), "clip_factor": float(factor), "clipped": clipped}


def schedule(given: Input, _root: Path, number: Number) -> Output:
    """S-17."""
    rates = [
        learning_rate(
            given["kind"],
            rate=given["learning_rate"],
            warmup_steps=given["warmup_steps"],
            num_steps=given["num_steps"],
            min_ratio=given["min_ratio"],
            update=t,
            number=number,
        )
        for t in range(given["num_steps"])
    ]
    return {"lr": [float(rate) for rate in rates]}


def adamw(given: Input, _root: Path, number: Number) -> Output:
    """S-18."""
    params = tensors_of(given["params"], number)
    trainable = trainable_names(params, given["frozen"])
    m = {name: np.zeros_like(params[name]) for name in trainable}
    v = {name: np.zeros_like(params[name]) for name in trainable}
    constants = AdamW(
        beta1=given["beta1"],
        beta2=given["beta2"],
        epsilon=given["epsilon"],
        weight_decay=given["weight_decay"],
        decay=given["decay"],
    )
    for step, (grads, rate) in enumerate(zip(given["grads"], given["lr"], strict=True)):
        update = {n: g for n, g in tensors_of(grads, number).items() if n in m}
        constants.update(params, update, m, v, step=step, rate=number(rate))
    return {
        kind: {name: nested(tensor) for name, tensor in tensors.items()}
        for kind, tensors in (("params", params), ("m", m), ("v", v))
    }


def statistics(given: Input, _root: Path, number: Number) -> Output:
    """S-21."""
    return record_of(given["name"], np.array(given["values"], dtype=number), number)


def tensor_hash(given: Input, _root: Path, _number: Number) -> Output:
    """S-22."""
    return {"sha256": tensors_sha256(tensors_of(given["tensors"], np.float64))}


KINDS: dict[str, Callable[[Input, Path, Number], Output]] = {
    "conversations": conversations,
    "render": render,
    "encode": encode,
    "example": example,
    "order": order,
    "rows": rows,
    "batches": batches,
    "logits": logits,
    "gradients": gradients,
    "training": train,
    "loss": loss,
    "clip": clip,
    "schedule": schedule,
    "adamw": adamw,
    "statistics": statistics,
    "tensors_sha256": tensor_hash,
}
