"""The JAX leg, traced, against a bare jitted Optax loop on the same work.

Goal: ratio (bare seconds / leg seconds) at least 0.95.

    python -m benchmarks.jax_leg
"""

from __future__ import annotations

from benchmarks.duel import Duel

NUM_STEPS = 200
DUEL = Duel(
    name="jax_leg",
    stack="jax",
    contestant="benchmarks.optax_loop",
    environment={"JAX_PLATFORMS": "cpu"},
    num_steps=NUM_STEPS,
    warm_steps=100,
    changes={
        "data": {"pad_multiple": 256},  # one shape: nothing compiles after the first step
        "train": {"precision": "float32", "num_steps": NUM_STEPS},
        "eval": {"every_steps": 0},
        "snapshot": {"every_steps": 0},
        "trace": {"tensors_every": 20},
    },
    what="seconds of a bare jitted Optax loop / seconds of the JAX leg traced",
    goal="ratio >= 0.95",
)

if __name__ == "__main__":
    DUEL.main()
