"""A whole run (S-01 to S-20) in memory: what the steps of a trace must say.

A micro-batches, B rows of a micro-batch, T positions of a row.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tests.reference import checkpoint, configs, encode
from tests.reference.batches import Batch, Encoded, make_batch
from tests.reference.configs import Section
from tests.reference.conversations import Conversation, read_split
from tests.reference.errors import RefusedError, require
from tests.reference.examples import Example, make_example
from tests.reference.model import Rows
from tests.reference.optimizer import AdamW, clip_factor, global_norm, trainable_names
from tests.reference.order import epoch_order
from tests.reference.render import Template
from tests.reference.rows import fill_rows
from tests.reference.schedule import Number, learning_rate
from tests.reference.step import MicroBatch, evaluation_loss, loss_and_gradients

Record = dict[str, Any]
SPLITS = ("train", "eval", "edge")


@dataclass(frozen=True, kw_only=True)
class Data:
    """The encoded splits, train by id, and the id of padding."""

    train: dict[str, Encoded]
    eval: list[Encoded]
    pad_id: int


def read_bytes(path: Path) -> bytes:
    """The bytes of an input file."""
    try:
        return path.read_bytes()
    except OSError:
        raise RefusedError(f"{path.name} cannot be read") from None


def load_data(data: Section, root: Path, vocab_size: int) -> Data:
    """Reads, renders and encodes all three splits. Raises RefusedError."""
    tokenizer = encode.load(read_bytes(root / data["tokenizer"]).decode())
    known = tokenizer.vocab | tokenizer.added
    for key in ("bos_token", "eos_token", "pad_token"):
        require(data[key] == "" or data[key] in known, f"{key} is no token of the tokenizer")
    largest = max(known.values())
    require(largest < vocab_size, f"id {largest} is not below the vocabulary of {vocab_size}")
    template = Template(
        read_bytes(root / data["template"]).decode(),
        bos_token=data["bos_token"],
        eos_token=data["eos_token"],
        mask=data["mask"],
    )

    def example(conversation: Conversation) -> Example:
        return make_example(
            conversation.messages,
            template=template,
            tokenizer=tokenizer,
            max_length=data["max_length"],
            truncation_side=data["truncation_side"],
        )

    seen: set[str] = set()
    splits: dict[str, list[tuple[str, Encoded]]] = {}
    for split in SPLITS:
        files = [(name, read_bytes(root / name)) for name in data[split]]
        splits[split] = [(c.id, example(c).encoded) for c in read_split(files, seen)]
    return Data(
        train=dict(splits["train"]),
        eval=[encoded for _, encoded in splits["eval"]],
        pad_id=known[data["pad_token"]],
    )


def steps_of_epochs(
    config: dict[str, Section], data: Data
) -> Iterator[tuple[int, list[str], Batch]]:
    """(epoch, ids of the step's examples in row order, arrays), without end."""
    section, train = config["data"], config["train"]
    shape = (train["accumulation_steps"], train["micro_batch_size"])
    epoch = 0
    while True:
        ids = epoch_order(config[""]["seed"], epoch, list(data.train))
        lengths = [len(data.train[i].ids) for i in ids]
        rows = fill_rows(lengths, max_length=section["max_length"], packing=section["packing"])
        for first in range(0, len(rows), shape[0] * shape[1]):
            taken = [[ids[i] for i in row] for row in rows[first : first + shape[0] * shape[1]]]
            batch = make_batch(
                [[data.train[i] for i in row] for row in taken],
                shape=shape,
                pad_id=data.pad_id,
                padding_side=section["padding_side"],
                pad_multiple=section["pad_multiple"],
            )
            yield epoch, [i for row in taken for i in row], batch
        epoch += 1


def micro_batches(batch: Batch) -> list[MicroBatch]:
    """The (B, T) arrays of each of the A micro-batches."""
    return [
        (Rows(input_ids=ids, segments=segments, positions=positions), labels)
        for ids, segments, positions, labels in zip(
            batch.input_ids, batch.segments, batch.positions, batch.labels, strict=True
        )
    ]


def evaluation_batches(config: dict[str, Section], data: Data) -> list[MicroBatch]:
    """S-20: the first examples in file order, unpacked, T for each batch alone."""
    size, section = config["train"]["micro_batch_size"], config["data"]
    chosen = data.eval[: config["eval"]["num_examples"]]
    batches = []
    for first in range(0, len(chosen), size):
        batch = make_batch(
            [[encoded] for encoded in chosen[first : first + size]],
            shape=(1, size),
            pad_id=data.pad_id,
            padding_side=section["padding_side"],
            pad_multiple=section["pad_multiple"],
        )
        batches += micro_batches(batch)
    return batches


def is_evaluated(step: int, num_steps: int, every_steps: int) -> bool:
    """Whether the evaluation loss is taken after update `step`."""
    return every_steps > 0 and ((step + 1) % every_steps == 0 or step == num_steps - 1)


def run(path: Path, number: Number = np.float64) -> list[Record]:
    """The step list of the run config at `path`, whose root is its folder. Raises RefusedError."""
    config = configs.load(path)
    o, s, num_steps = config["optimizer"], config["schedule"], config["train"]["num_steps"]
    model, params = checkpoint.load(path.parent / config["model"]["checkpoint"], number)
    data = load_data(config["data"], path.parent, model.vocab_size)
    evaluation = evaluation_batches(config, data)
    trainable = trainable_names(params, o["frozen"])
    m = {name: np.zeros_like(params[name]) for name in trainable}
    v = {name: np.zeros_like(params[name]) for name in trainable}
    constants = {key: o[key] for key in ("beta1", "beta2", "epsilon", "weight_decay", "decay")}
    adamw = AdamW(**constants)
    records: list[Record] = []
    for step, (epoch, ids, batch) in zip(
        range(num_steps), steps_of_epochs(config, data), strict=False
    ):
        loss, count, all_grads = loss_and_gradients(model, params, micro_batches(batch))
        grads = {name: all_grads[name] for name in trainable}
        norm = global_norm(grads, number)
        factor = clip_factor(norm, o["clip_norm"])
        rate = learning_rate(
            s["kind"],
            rate=o["learning_rate"],
            warmup_steps=s["warmup_steps"],
            num_steps=num_steps,
            min_ratio=s["min_ratio"],
            update=step,
            number=number,
        )
        clipped = {name: grad * factor for name, grad in grads.items()}
        adamw.update(params, clipped, m, v, step=step, rate=rate)
        evaluated = is_evaluated(step, num_steps, config["eval"]["every_steps"])
        records.append(
            {
                "step": step,
                "epoch": epoch,
                "examples": ids,
                "num_tokens": batch.num_tokens,
                "num_targets": count,
                "batch_sha256": batch.sha256,
                "lr": float(rate),
                "loss": float(loss),
                "grad_norm": float(norm),
                "clip_factor": float(factor),
                "param_norm": float(global_norm(params, number)),
                "eval_loss": float(evaluation_loss(model, params, evaluation))
                if evaluated
                else None,
            }
        )
    return records
