"""Golden vectors: one answer for each case, through the functions that training uses (S-27).

A micro-batches, B rows, T positions, V vocabulary. Floating work is in float64 unless a case
says `precision`.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from stacks.torch_stack.anchors import compare
from stacks.torch_stack.batch import Batch, Shape, build_batch, epoch_order, fill_rows
from stacks.torch_stack.config import Data, Optimizer, Schedule, load_config
from stacks.torch_stack.documents import jsonable
from stacks.torch_stack.encode import Encoder, IntArray, Tokens
from stacks.torch_stack.errors import BadInput
from stacks.torch_stack.examples import parse_lines
from stacks.torch_stack.inputs import load_inputs, tokenize
from stacks.torch_stack.loss import loss_from_logits, micro_batch_sum, micro_batches
from stacks.torch_stack.model import CausalLM, RMSNorm
from stacks.torch_stack.numerics import Sketcher, Statistics, global_norm, tensors_sha256
from stacks.torch_stack.precision import PRECISIONS, Precision
from stacks.torch_stack.render import Template
from stacks.torch_stack.runtime import prepare_torch
from stacks.torch_stack.taps import Taps
from stacks.torch_stack.tokenizer import load_tokenizer
from stacks.torch_stack.tokens import encode_conversations
from stacks.torch_stack.train import Trainer
from stacks.torch_stack.update import (
    apply_update,
    build_optimizer,
    clip_factor,
    learning_rate,
    moments,
    scale_gradients,
)
from stacks.torch_stack.weights import build_model, load_checkpoint


@dataclass(frozen=True, kw_only=True)
class Case:
    """A case of a vector file; paths in `input` are relative to `folder`."""

    kind: str
    input: Mapping[str, Any]
    folder: Path
    precision: Precision

    def __getitem__(self, key: str) -> Any:
        if key not in self.input:
            raise BadInput(f"S-27: a case of kind {self.kind} lacks the input {key!r}; add it")
        return self.input[key]

    def path(self, key: str) -> Path:
        """An input that is a path."""
        return self.folder / str(self[key])

    def tensor(self, values: object) -> Tensor:
        """Nested lists → a tensor in the case's precision; "NaN" and its like are numbers."""
        return torch.from_numpy(np.array(values, np.float64)).to(self.precision.held)

    def tensors(self, named: Mapping[str, object]) -> dict[str, Tensor]:
        """Named nested lists → named tensors."""
        return {name: self.tensor(values) for name, values in named.items()}

    def integers(self, key: str) -> Tensor:
        """Nested lists of integers → int32."""
        return torch.tensor(self[key], dtype=torch.int32)


def answer_file(source: Path, target: Path) -> None:
    """Answer every case of the vector file at `source`, in order, into `target`."""
    try:
        document = json.loads(source.read_text(encoding="utf-8"))
    except OSError as error:
        raise BadInput(f"S-27: {source} cannot be read: {error.strerror}; check --in") from error
    except ValueError as error:
        raise BadInput(f"S-27: {source} is not JSON; check --in") from error
    torch.set_num_threads(1)
    answers = [answer(case, source.parent) for case in document["cases"]]
    target.parent.mkdir(parents=True, exist_ok=True)
    text = json.dumps(jsonable({"answers": answers}), allow_nan=False)
    target.write_text(text + "\n", encoding="utf-8")


def answer(case: Mapping[str, Any], folder: Path) -> dict[str, object]:
    """One case → its name and output; a refusal is an output too."""
    precision = PRECISIONS[case["input"].get("precision", case.get("precision", "float64"))]
    default = torch.get_default_dtype()
    torch.set_default_dtype(precision.wide)
    try:
        kind = case["kind"]
        if kind not in _KINDS:
            raise BadInput(f"S-27: {kind!r} is no kind of case; use one of {', '.join(_KINDS)}")
        output = _KINDS[kind](
            Case(kind=kind, input=case["input"], folder=folder, precision=precision)
        )
    except BadInput as error:
        return {"name": case["name"], "error": str(error)}
    finally:
        torch.set_default_dtype(default)
    return {"name": case["name"], "output": output}


def _conversations(case: Case) -> dict[str, object]:
    by_text = "text" in case.input
    source = case["text"].encode() if by_text else bytes.fromhex(case["bytes_hex"])
    return {"examples": parse_lines(source, "the file")}


def _render(case: Case) -> dict[str, object]:
    rendered = _template(case).render(case["messages"], "the example")
    return {"text": rendered.text, "spans": rendered.spans}


def _template(case: Case) -> Template:
    return Template(
        "of the case",
        case["template"],
        bos_token=case["bos_token"],
        eos_token=case["eos_token"],
        mask=case["mask"],
    )


def _encode(case: Case) -> dict[str, object]:
    encoder = Encoder(load_tokenizer(case.path("tokenizer")))
    (encoded,) = encoder.encode([case["text"]], ["the text"])
    ranges = np.stack([encoded.starts, encoded.ends], axis=1)
    return {"ids": encoded.ids.tolist(), "ranges": ranges.tolist()}


def _example(case: Case) -> dict[str, object]:
    settings = Data(
        train=(),
        eval=(),
        edge=(),
        template="",
        tokenizer="",
        bos_token=case["bos_token"],
        eos_token=case["eos_token"],
        pad_token="",
        mask=case["mask"],
        max_length=case["max_length"],
        truncation_side=case["truncation_side"],
        padding_side="right",
        pad_multiple=1,
        packing=False,
    )
    encoder = Encoder(load_tokenizer(case.path("tokenizer")))
    (row,) = encode_conversations(
        ["case"], [case["messages"]], ["the example"], _template(case), encoder, settings
    )
    return {
        "ids": row.tokens.ids.tolist(),
        "mask": row.tokens.mask.tolist(),
        "num_tokens_before_truncation": row.num_tokens_before_truncation,
        "typed_control_tokens": row.typed_control_tokens,
    }


def _order(case: Case) -> dict[str, object]:
    order = epoch_order(case["ids"], case["seed"], case["epoch"])
    return {"ids": [case["ids"][index] for index in order]}


def _rows(case: Case) -> dict[str, object]:
    return {"rows": fill_rows(case["lengths"], case["max_length"], case["packing"])}


def _batches(case: Case) -> dict[str, object]:
    shape = Shape(
        accumulation_steps=case["accumulation_steps"],
        micro_batch_size=case["micro_batch_size"],
        pad_id=case["pad_id"],
        padding_side=case["padding_side"],
        pad_multiple=case["pad_multiple"],
    )
    rows = [
        [
            Tokens(
                id="case", ids=np.array(one["ids"], np.int32), mask=np.array(one["mask"], np.int8)
            )
            for one in row
        ]
        for row in case["rows"]
    ]
    starts = range(0, len(rows), shape.num_rows)
    return {
        "steps": [
            _describe_batch(build_batch(rows[start : start + shape.num_rows], shape))
            for start in starts
        ]
    }


def _describe_batch(batch: Batch) -> dict[str, object]:
    return {
        "input_ids": batch.input_ids.tolist(),
        "segments": batch.segments.tolist(),
        "positions": batch.positions.tolist(),
        "labels": batch.labels.tolist(),
        "batch_sha256": batch.sha256(),
        "num_tokens": batch.num_tokens,
        "num_targets": batch.num_targets,
    }


def _load_model(case: Case) -> CausalLM:
    checkpoint = load_checkpoint(case.path("checkpoint"), case.precision.held)
    num_positions = int(case.integers("positions").max()) + 1
    return build_model(
        checkpoint, case["attention"], num_positions, case.precision, torch.device("cpu")
    )


@torch.no_grad()
def _logits(case: Case) -> dict[str, object]:
    logits = _load_model(case)(
        case.integers("input_ids"), case.integers("segments"), case.integers("positions")
    )
    return {"logits": logits.tolist()}


def _loss(case: Case) -> dict[str, object]:
    logits = case.tensor(case["logits"]).requires_grad_()
    loss, num_targets = loss_from_logits(logits, case.integers("labels").long())
    (grad,) = torch.autograd.grad(loss, logits)
    return {"loss": loss.item(), "num_targets": num_targets, "grad_logits": grad.tolist()}


def _clip(case: Case) -> dict[str, object]:
    grads = case.tensors(case["grads"])
    norm = global_norm(list(grads.values()))
    factor = clip_factor(norm, case["clip_norm"])
    scale_gradients(list(grads.values()), factor)
    clipped = {name: one.tolist() for name, one in grads.items()}
    return {"grad_norm": norm, "clip_factor": factor, "clipped": clipped}


def _schedule(case: Case) -> dict[str, object]:
    schedule = Schedule(
        kind=case["kind"], warmup_steps=case["warmup_steps"], min_ratio=case["min_ratio"]
    )
    steps, peak = case["num_steps"], case["learning_rate"]
    return {"lr": [learning_rate(t, steps, peak, schedule) for t in range(steps)]}


def _adamw(case: Case) -> dict[str, object]:
    parameters = {name: nn.Parameter(one) for name, one in case.tensors(case["params"]).items()}
    settings = Optimizer(
        learning_rate=0.0,
        beta1=float(case["beta1"]),
        beta2=float(case["beta2"]),
        epsilon=float(case["epsilon"]),
        weight_decay=float(case["weight_decay"]),
        decay=case["decay"],
        frozen=tuple(case["frozen"]),
        clip_norm="off",
    )
    optimizer = build_optimizer(parameters, settings)
    for rate, grads in zip(case["lr"], case["grads"], strict=True):
        for name, one in parameters.items():
            if one.requires_grad:
                one.grad = case.tensor(grads[name])
        apply_update(optimizer, rate)
    m, v = moments(optimizer, parameters)
    named: dict[str, Mapping[str, Tensor]] = {"params": parameters, "m": m, "v": v}
    return {kind: {name: one.tolist() for name, one in of.items()} for kind, of in named.items()}


def _statistics(case: Case) -> dict[str, object]:
    (found,) = Sketcher().describe({case["name"]: case.tensor(case["values"])}).values()
    return _plain(found)


def _plain(statistics: Statistics) -> dict[str, object]:
    return {**vars(statistics), "sketch": statistics.sketch.tolist()}


def _tensors_sha256(case: Case) -> dict[str, object]:
    return {"sha256": tensors_sha256(case.tensors(case["tensors"]))}


def _gradients(case: Case) -> dict[str, object]:
    model, batch = _load_model(case), _batch(case)
    total, parameters = 0.0, dict(model.named_parameters())
    for one in parameters.values():
        one.grad = torch.zeros_like(one)
    for micro in micro_batches(batch, torch.device("cpu")):
        share = micro_batch_sum(model, micro) / batch.num_targets
        share.backward()  # type: ignore[no-untyped-call]
        total += share.item()
    grads = {name: one.grad for name, one in parameters.items() if one.grad is not None}
    return {
        "loss": total,
        "grad_norm": global_norm(list(grads.values())),
        "grads": {name: _plain(one) for name, one in Sketcher().describe(grads).items()},
    }


def _batch(case: Case) -> Batch:
    arrays: dict[str, IntArray] = {
        name: case.integers(name).numpy()
        for name in ("input_ids", "segments", "positions", "labels")
    }
    return Batch(examples=(), **arrays)


def _taps(case: Case) -> dict[str, object]:
    model, batch, taps = _load_model(case), _batch(case), Taps()
    device = torch.device("cpu")
    with taps.observe(model, batch, device):
        for micro in micro_batches(batch, device):
            micro_batch_sum(model, micro)
    return {
        "taps": [
            {"tap": row.tap, "shape": row.shape, **_plain(row.statistics)} for row in taps.rows(0)
        ]
    }


def _rms_norm(case: Case) -> dict[str, object]:
    norm = RMSNorm(len(case["weight"]), float(case["epsilon"]))
    norm.weight = nn.Parameter(case.tensor(case["weight"]))
    values = norm(case.tensor(case["values"]).to(case.precision.forward))
    return {"values": values.tolist()}


def _anchor(case: Case) -> dict[str, object]:
    return compare(case.tensors(case["own"]), case.tensors(case["anchor"]))


def _training(case: Case) -> dict[str, object]:
    path = case.path("config")
    config = load_config(path, path.parent)
    device = prepare_torch(config)
    checkpoint = load_checkpoint(
        config.resolve(config.model.checkpoint), PRECISIONS[config.train.precision].held
    )
    inputs = load_inputs(config)
    inputs.tokenizer.check_vocab_size(checkpoint.config.vocab_size, path)
    examples = tokenize(inputs, None, lambda: None)
    trainer = Trainer(config, checkpoint, examples, inputs.pad_id, device)
    left_out = {"batch_shape", "eval_targets"}
    steps = [vars(trainer.step(t)) for t in range(trainer.num_steps)]
    return {"steps": [{k: v for k, v in step.items() if k not in left_out} for step in steps]}


_KINDS: dict[str, Callable[[Case], dict[str, object]]] = {
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
