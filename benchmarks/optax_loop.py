"""A bare jitted Optax loop on the rows of a trace: the contestant of `benchmarks.jax_leg`. Prints
seconds as JSON.

    python -m benchmarks.optax_loop TRACE CHECKPOINT WARM_STEPS

The least that trains the same model on the same batches: one jitted, donating step, accumulation by
scan, Optax's own clipping and AdamW; no trace, no statistics, no snapshot, no look at the loss.
Letters: A micro-batches, B rows, T positions, D width, H heads, G kv heads, K head width.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path
from typing import Any

os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:1])  # one thread, as the leg has

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pyarrow.parquet as pq
from safetensors.numpy import load_file

LAYERS, HEADS, GROUPS, WIDTH, BASE, EPSILON = 2, 4, 2, 16, 100_000.0, 1e-6


def batches(trace: Path) -> list[np.ndarray]:
    """Return per step the stacked ids, labels and lengths mask, int32 (3, A, B, T)."""
    rows: dict[str, tuple[list[int], list[int]]] = {}
    for file in sorted((trace / "tokens").glob("*.parquet")):
        table = pq.read_table(file, columns=["id", "ids", "mask"]).to_pydict()
        rows |= dict(zip(table["id"], zip(table["ids"], table["mask"], strict=True), strict=True))
    result = []
    for line in (trace / "steps.jsonl").read_text("utf-8").splitlines():
        step = json.loads(line)
        num_micro, num_rows, length = step["batch_shape"]
        flat = np.zeros((3, num_micro * num_rows, length), np.int32)
        for row, example in enumerate(step["examples"]):
            ids, mask = rows[example]
            flat[0, row, : len(ids)] = ids
            flat[1, row, 1 : len(ids)] = mask[1:]
            flat[2, row, : len(ids)] = 1
        result.append(flat.reshape(3, num_micro, num_rows, length))
    return result


def rms(x: jax.Array, w: jax.Array) -> jax.Array:
    """Root-mean-square norm."""
    return w * (x * jax.lax.rsqrt(jnp.mean(x * x, -1, keepdims=True) + EPSILON))


def rope(x: jax.Array) -> jax.Array:
    """Rotate (B, T, heads, K) by position, halves paired."""
    half = WIDTH // 2
    angles = jnp.arange(x.shape[1])[:, None] * BASE ** (-jnp.arange(half) / half)  # (T, K/2)
    cos, sin = jnp.cos(angles)[:, None].astype(x.dtype), jnp.sin(angles)[:, None].astype(x.dtype)
    a, b = x[..., :half], x[..., half:]
    return jnp.concatenate([a * cos - b * sin, b * cos + a * sin], -1)


def logits(p: dict[str, jax.Array], ids: jax.Array, real: jax.Array) -> jax.Array:
    """Return (B, T, V)."""
    h = p["model.embed_tokens.weight"][ids]
    rows, length = ids.shape
    allowed = jnp.tril(jnp.ones((length, length), bool)) & (real[:, :, None] == real[:, None, :])
    for layer in range(LAYERS):
        w = {k.split(".", 3)[3]: v for k, v in p.items() if k.startswith(f"model.layers.{layer}.")}
        x = rms(h, w["input_layernorm.weight"])
        q = rope((x @ w["self_attn.q_proj.weight"].T).reshape(rows, length, HEADS, WIDTH))
        k = rope((x @ w["self_attn.k_proj.weight"].T).reshape(rows, length, GROUPS, WIDTH))
        v = (x @ w["self_attn.v_proj.weight"].T).reshape(rows, length, GROUPS, WIDTH)
        q = q.reshape(rows, length, GROUPS, HEADS // GROUPS, WIDTH)
        s = jnp.einsum("btgnk,bsgk->bgnts", q, k) / WIDTH**0.5
        s = jax.nn.softmax(jnp.where(allowed[:, None, None], s, -jnp.inf), -1)
        o = jnp.einsum("bgnts,bsgk->btgnk", s, v).reshape(rows, length, HEADS * WIDTH)
        h = h + o @ w["self_attn.o_proj.weight"].T
        x = rms(h, w["post_attention_layernorm.weight"])
        gate = jax.nn.silu(x @ w["mlp.gate_proj.weight"].T)
        h = h + (gate * (x @ w["mlp.up_proj.weight"].T)) @ w["mlp.down_proj.weight"].T
    return rms(h, p["model.norm.weight"]) @ p["model.embed_tokens.weight"].T


def micro_loss(p: dict[str, jax.Array], micro: jax.Array, num: jax.Array) -> jax.Array:
    """Return the micro-batch's share of the step's loss."""
    ids, target, real = micro
    scores = optax.softmax_cross_entropy_with_integer_labels(
        logits(p, ids, real)[:, :-1], ids[:, 1:]
    )
    return jnp.sum(scores * target[:, 1:]) / num


def main() -> None:
    """Run the loop and print the seconds between the warm-up's end and the last step's end."""
    trace, checkpoint, warm_steps = Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3])
    data = batches(trace)
    params: Any = {
        k: jnp.asarray(v) for k, v in load_file(checkpoint / "model.safetensors").items()
    }
    schedule = optax.warmup_cosine_decay_schedule(0.0, 3e-4, 10, len(data), 3e-5)
    optimizer = optax.chain(optax.clip_by_global_norm(1.0), optax.adamw(schedule, weight_decay=0.1))

    def step(params: Any, state: Any, batch: jax.Array) -> tuple[Any, Any, jax.Array]:
        num = jnp.maximum(jnp.sum(batch[1, :, :, 1:]), 1)

        def body(carry: Any, micro: jax.Array) -> tuple[Any, None]:
            value, gradient = jax.value_and_grad(micro_loss)(params, micro, num)
            return (carry[0] + value, jax.tree.map(jnp.add, carry[1], gradient)), None

        zero = (jnp.zeros(()), jax.tree.map(jnp.zeros_like, params))
        (loss, gradient), _ = jax.lax.scan(body, zero, jnp.moveaxis(batch, 0, 1))
        updates, state = optimizer.update(gradient, state, params)
        return optax.apply_updates(params, updates), state, loss

    jitted = jax.jit(step, donate_argnums=(0, 1))
    state = optimizer.init(params)
    began = 0.0
    for index, batch in enumerate(data):
        if index == warm_steps:
            jax.tree.map(lambda leaf: leaf.block_until_ready(), params)
            began = time.perf_counter()
        params, state, _ = jitted(params, state, jnp.asarray(batch))
    jax.tree.map(lambda leaf: leaf.block_until_ready(), params)
    print(json.dumps({"seconds": time.perf_counter() - began}))


if __name__ == "__main__":
    main()
