"""Two implementations of one attention (S-12): `eager` and `fused`.

B rows, T positions, H query heads, G key/value heads, R = H / G, K head width

Scores and softmax are in float32 or wider; the weights are rounded to the dtype of q before they
meet v, and so is the sum (S-19). The fused form rounds weights that are not normalised yet.
"""

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Float

from .precision import round_to, wide_dtype

HIGHEST = lax.Precision.HIGHEST  # no TF32 (S-19)
KEY_BLOCK = 64  # keys that the fused form takes at a time


def attend_eager(
    q: Float[Array, "B T H K"],
    k: Float[Array, "B T G K"],
    v: Float[Array, "B T G K"],
    allowed: Bool[Array, "B T T"],
) -> Float[Array, "B T H K"]:
    """softmax(q k / sqrt(K)) v over the allowed keys, with all scores in memory at once.

    Query head n uses key/value head n // R: the query heads of one group are neighbours.
    """
    q_grouped = _group(q, k.shape[2])  # (B, T, G, R, K)
    scores = _wide_einsum("btgrk,bsgk->bgrts", q_grouped, k) * _scale(q)
    scores = jnp.where(allowed[:, None, None], scores, -jnp.inf)
    weights = round_to(jax.nn.softmax(scores, axis=-1), q.dtype)
    output = _wide_einsum("bgrts,bsgk->btgrk", weights, v).reshape(q.shape)
    return round_to(output, q.dtype)


def attend_fused(
    q: Float[Array, "B T H K"],
    k: Float[Array, "B T G K"],
    v: Float[Array, "B T G K"],
    allowed: Bool[Array, "B T T"],
) -> Float[Array, "B T H K"]:
    """The same, a block of keys at a time, with a running maximum and a running sum per query.

    jax.nn.dot_product_attention would not do: its scores are float32 whatever the inputs.
    """
    q_grouped = _group(q, k.shape[2])  # (B, T, G, R, K)
    num_blocks = -(-k.shape[1] // KEY_BLOCK)
    excess = num_blocks * KEY_BLOCK - k.shape[1]
    k_blocks, v_blocks = (_key_blocks(x, excess, num_blocks) for x in (k, v))  # (N, B, S, G, K)
    allowed_padded = jnp.pad(allowed, ((0, 0), (0, 0), (0, excess)))
    allowed_blocks = jnp.moveaxis(
        allowed_padded.reshape(*allowed.shape[:2], num_blocks, KEY_BLOCK), 2, 0
    )

    def add_block(
        carry: tuple[Array, Array, Array], block: tuple[Array, Array, Array]
    ) -> tuple[tuple[Array, Array, Array], None]:
        highest, total, output = carry  # (B, G, R, T), the same, (B, G, R, T, K)
        k_block, v_block, allowed_block = block
        scores = _wide_einsum("btgrk,bsgk->bgrts", q_grouped, k_block) * _scale(q)
        is_allowed = allowed_block[:, None, None]
        now = lax.stop_gradient(
            jnp.maximum(highest, jnp.max(scores, axis=-1, where=is_allowed, initial=-jnp.inf))
        )
        shift = jnp.where(jnp.isfinite(now), now, 0)  # no key was allowed yet: every weight is 0
        weights = jnp.where(
            is_allowed,
            jnp.exp(jnp.where(is_allowed, scores, shift[..., None]) - shift[..., None]),
            0,
        )
        correction = jnp.exp(highest - shift)
        total = total * correction + jnp.sum(weights, axis=-1)
        added = _wide_einsum("bgrts,bsgk->bgrtk", round_to(weights, q.dtype), v_block)
        return (now, total, output * correction[..., None] + added), None

    shape = (q.shape[0], *q_grouped.shape[2:4], q.shape[1])  # (B, G, R, T)
    wide = wide_dtype(q.dtype)
    start = (
        jnp.full(shape, -jnp.inf, wide),
        jnp.zeros(shape, wide),
        jnp.zeros((*shape, q.shape[3]), wide),
    )
    (_, total, output), _ = lax.scan(add_block, start, (k_blocks, v_blocks, allowed_blocks))
    return round_to(jnp.moveaxis(output / total[..., None], 3, 1).reshape(q.shape), q.dtype)


def _wide_einsum(
    subscripts: str, x: Float[Array, "..."], y: Float[Array, "..."]
) -> Float[Array, "..."]:
    """The product of two arrays, accumulated in float32 or wider and not rounded yet."""
    return jnp.einsum(
        subscripts, x, y, precision=HIGHEST, preferred_element_type=wide_dtype(x.dtype)
    )


def _key_blocks(
    x: Float[Array, "B T G K"], excess: int, num_blocks: int
) -> Float[Array, "N B S G K"]:
    padded = jnp.pad(x, ((0, 0), (0, excess), (0, 0), (0, 0)))
    return jnp.moveaxis(padded.reshape(x.shape[0], num_blocks, KEY_BLOCK, *x.shape[2:]), 1, 0)


def _group(q: Float[Array, "B T H K"], num_kv_heads: int) -> Float[Array, "B T G R K"]:
    return q.reshape(*q.shape[:2], num_kv_heads, q.shape[2] // num_kv_heads, q.shape[3])


def _scale(q: Float[Array, "B T H K"]) -> Float[Array, ""]:
    return jnp.asarray(1 / q.shape[3] ** 0.5, dtype=wide_dtype(q.dtype))


ATTENTIONS = {"eager": attend_eager, "fused": attend_fused}
