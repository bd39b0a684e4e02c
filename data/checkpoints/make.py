"""Makes the small trained checkpoint that the demo and the fault runs start from.

Draws initial weights with NumPy's PCG64 (they are untrained, so nothing depends on a framework's
generator), trains them with one of the stacks on the committed clinical sample, and writes the
result with its provenance.

    python data/checkpoints/make.py --stack torch

Shapes: vocabulary V = 4096, width D = 64, feed-forward F = 176, H = 4 query heads, G = 2 key/value
heads, K = 16, L = 2.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
from safetensors.numpy import save_file

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
TARGET = HERE / "clinical-tiny"
CONFIG = ROOT / "configs" / "runs" / "make-clinical-tiny.toml"
SEED = 20_240_229
STD = 0.04

MODEL = {
    "architectures": ["LlamaForCausalLM"],
    "attention_bias": False,
    "bos_token_id": None,
    "dtype": "float32",
    "eos_token_id": 2,
    "head_dim": 16,
    "hidden_act": "silu",
    "hidden_size": 64,
    "initializer_range": STD,
    "intermediate_size": 176,
    "max_position_embeddings": 2048,
    "mlp_bias": False,
    "model_type": "llama",
    "num_attention_heads": 4,
    "num_hidden_layers": 2,
    "num_key_value_heads": 2,
    "pad_token_id": 0,
    "rms_norm_eps": 1e-6,
    "rope_theta": 100000.0,
    "tie_word_embeddings": True,
    "vocab_size": 4096,
}


def initial_weights() -> dict[str, np.ndarray]:
    """Return the untrained tensors under their names of clause S-13, float32, drawn in the order of
    the names.
    """
    width, inner, heads, groups, head = 64, 176, 4, 2, 16
    shapes: dict[str, tuple[int, ...]] = {
        "model.embed_tokens.weight": (4096, width),
        "model.norm.weight": (width,),
    }
    for layer in range(2):
        prefix = f"model.layers.{layer}."
        shapes |= {
            prefix + "input_layernorm.weight": (width,),
            prefix + "post_attention_layernorm.weight": (width,),
            prefix + "self_attn.q_proj.weight": (heads * head, width),
            prefix + "self_attn.k_proj.weight": (groups * head, width),
            prefix + "self_attn.v_proj.weight": (groups * head, width),
            prefix + "self_attn.o_proj.weight": (width, heads * head),
            prefix + "mlp.gate_proj.weight": (inner, width),
            prefix + "mlp.up_proj.weight": (inner, width),
            prefix + "mlp.down_proj.weight": (width, inner),
        }
    generator = np.random.Generator(np.random.PCG64(SEED))
    return {
        name: np.ones(shape, np.float32)
        if len(shape) == 1
        else (STD * generator.standard_normal(shape)).astype(np.float32)
        for name, shape in sorted(shapes.items())
    }


def sha256(path: Path) -> str:
    """Return the hash of a file's bytes."""
    return hashlib.sha256(path.read_bytes()).hexdigest()


def train(stack: str, folder: Path) -> dict[str, object]:
    """Train `folder/initial` with `stack`; returns the provenance. Raises CalledProcessError when
    the leg fails.
    """
    config = folder / "run.toml"
    text = CONFIG.read_text("utf-8").replace('"@initial"', json.dumps(str(folder / "initial")))
    config.write_text(text, "utf-8")
    argv = ["-m", f"stacks.{stack}_stack", "train", "--config", str(config)]
    argv += ["--root", str(CONFIG.parent), "--out", str(folder / "trace"), "--nonce", "make"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    subprocess.run([sys.executable, *argv], env=environment, check=True)
    header = json.loads((folder / "trace" / "header.json").read_text("utf-8"))
    steps = (folder / "trace" / "steps.jsonl").read_text("utf-8").splitlines()
    first, last = json.loads(steps[0]), json.loads(steps[-1])
    return {
        "command": f"python data/checkpoints/make.py --stack {stack}",
        "config": str(CONFIG.relative_to(ROOT)),
        "config_template_sha256": sha256(CONFIG),
        "initial": f"NumPy PCG64({SEED}), normal with standard deviation {STD}, norm weights 1",
        "initial_sha256": sha256(folder / "initial" / "model.safetensors"),
        "data_sha256": header["facts"]["files"],
        "stack": header["provenance"]["stack"],
        "code_sha256": header["provenance"]["code_sha256"],
        "versions": header["provenance"]["versions"],
        "num_steps": len(steps),
        "first_loss": first["loss"],
        "last_loss": last["loss"],
        "heldout_loss": last["eval_loss"],
    }


def main() -> None:
    """Make the checkpoint and put it, with `provenance.json`, into `data/checkpoints/clinical-
    tiny`.
    """
    parser = argparse.ArgumentParser(description="Make the small trained checkpoint.")
    parser.add_argument("--stack", choices=["torch", "jax"], default="torch")
    stack = parser.parse_args().stack
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "initial").mkdir()
        (folder / "initial" / "config.json").write_text(json.dumps(MODEL, indent=1) + "\n", "utf-8")
        save_file(initial_weights(), folder / "initial" / "model.safetensors", {"format": "pt"})
        provenance = train(stack, folder)
        TARGET.mkdir(exist_ok=True)
        for file in ("config.json", "model.safetensors"):
            shutil.copy(folder / "trace" / "checkpoint" / file, TARGET / file)
            (TARGET / file).chmod(0o644)
    provenance["model_sha256"] = sha256(TARGET / "model.safetensors")
    (TARGET / "provenance.json").write_text(json.dumps(provenance, indent=1) + "\n", "utf-8")
    print(f"{TARGET}: held-out loss {provenance['heldout_loss']}")


if __name__ == "__main__":
    main()
