"""`header.json`: facts read back from live objects, and provenance (S-25)."""

import hashlib
import os
import platform
import sys
from collections.abc import Mapping
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from stacks.torch_stack.config import CONTRACT, Config
from stacks.torch_stack.inputs import Inputs

if TYPE_CHECKING:
    from stacks.torch_stack.train import Trainer

TRACE_VERSION = "1"
_LIBRARIES = (
    "torch",
    "transformers",
    "tokenizers",
    "jinja2",
    "datasets",
    "safetensors",
    "numpy",
    "pyarrow",
)


def header(
    mode: str,
    nonce: str,
    config: Config,
    facts: Mapping[str, object],
    device: str,
    threads: int,
    host: str | None = None,
) -> dict[str, object]:
    """The whole document; `device` and `threads` are those in use, `host` a condition of S-31."""
    package = Path(__file__).parent
    return {
        "trace_version": TRACE_VERSION,
        "contract": CONTRACT,
        "mode": mode,
        "nonce": nonce,
        "config_sha256": config.sha256,
        "facts": facts,
        "provenance": {
            "stack": package.name,
            "code_sha256": code_sha256(package),
            "code_path": str(package),
            "config_path": str(config.path),
            "python": sys.version.split()[0],
            "versions": {name: version(name) for name in _LIBRARIES},
            "machine": {
                "system": f"{platform.system()} {platform.release()}",
                "processor": platform.processor() or platform.machine(),
                "cores": os.cpu_count() or 1,
            },
            "device": device,
            "threads": threads,
            "attention": config.model.attention,
            "compile": config.runtime.compile,
            "started": datetime.now(UTC).isoformat(),
            "process_id": os.getpid(),
            **({} if host is None else {"host": host}),
        },
    }


def code_sha256(package: Path) -> str:
    """Hash of the stack's own code: path, 0x00, bytes, 0x00 of each `*.py` by path (S-25)."""
    digest = hashlib.sha256()
    for name in sorted(path.relative_to(package).as_posix() for path in package.rglob("*.py")):
        digest.update(name.encode() + b"\0" + (package / name).read_bytes() + b"\0")
    return digest.hexdigest()


def data_facts(inputs: Inputs) -> dict[str, object]:
    """Facts of both modes: what was read."""
    splits = inputs.splits
    return {
        "seed": inputs.config.seed,
        "files": {
            **{name: list(split.files_sha256) for name, split in splits.items()},
            "template": inputs.template_sha256,
            "tokenizer": inputs.tokenizer.sha256,
        },
        "num_examples": inputs.num_examples,
        "special_ids": dict(inputs.tokenizer.added),
        "pad_id": inputs.pad_id,
    }


def train_facts(inputs: Inputs, trainer: "Trainer") -> dict[str, object]:
    """Facts of a training leg: the model, the optimizer's groups, the dtypes of a step."""
    facts = data_facts(inputs)
    files = facts["files"]
    assert isinstance(files, dict)
    files["model_config"] = trainer.checkpoint.config_sha256
    files["weights"] = dict(trainer.checkpoint.files_sha256)
    parameters, groups = trainer.parameters, trainer.optimizer.param_groups
    decaying = {id(one) for group in groups if group["decay"] for one in group["params"]}
    trainable = {id(one) for group in groups for one in group["params"]}
    beta1, beta2 = groups[0]["betas"]
    return facts | {
        "rows_per_step": trainer.shape.num_rows,
        "steps_per_epoch": trainer.steps_per_epoch,
        "num_steps": trainer.num_steps,
        "parameters": {
            name: {
                "shape": list(one.shape),
                "trainable": id(one) in trainable,
                "decay": id(one) in decaying,
            }
            for name, one in parameters.items()
        },
        "num_parameters": sum(one.numel() for one in parameters.values()),
        "num_trainable_parameters": sum(
            one.numel() for one in parameters.values() if id(one) in trainable
        ),
        "model": _model_facts(trainer),
        "optimizer": {
            "name": type(trainer.optimizer).__name__.lower(),
            "beta1": beta1,
            "beta2": beta2,
            "epsilon": groups[0]["eps"],
            "weight_decay": max(group["weight_decay"] for group in groups if group["decay"]),
        },
        "dtypes": trainer.probe_dtypes(),
    }


def _model_facts(trainer: "Trainer") -> dict[str, object]:
    model = trainer.model
    decoder = model.model
    layer: Any = decoder.layers[0]
    return {
        "hidden_size": decoder.embed_tokens.weight.shape[1],
        "intermediate_size": layer.mlp.gate_proj.weight.shape[0],
        "num_layers": len(decoder.layers),
        "num_heads": layer.self_attn.num_heads,
        "num_kv_heads": layer.self_attn.num_kv_heads,
        "head_dim": layer.self_attn.head_dim,
        "vocab_size": model.head.shape[0],
        "rope_base": model.rope_base,
        "rms_norm_eps": decoder.norm.eps,
        "tied": model.head is decoder.embed_tokens.weight,
    }
