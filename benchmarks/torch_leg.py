"""The PyTorch leg, traced, against `transformers.Trainer`, untraced, on the same work: the
yardstick is what people use.

Both train the demo's checkpoint in float32 with fused attention on one thread, on the same rows in
the same order padded to the same lengths, with accumulation, clipping, AdamW and the same schedule.
The Trainer gets ids and labels that are already rendered, so that its tokenisation costs nothing.
Goal: ratio (Trainer's seconds / leg's seconds) at least 1.

    python -m benchmarks.torch_leg
"""

from __future__ import annotations

from benchmarks.duel import Duel

NUM_STEPS = 120
DUEL = Duel(
    name="torch_leg",
    stack="torch",
    contestant="benchmarks.trainer",
    environment={},
    num_steps=NUM_STEPS,
    warm_steps=20,
    changes={
        "train": {"precision": "float32", "num_steps": NUM_STEPS},
        "model": {"attention": "fused"},
        "eval": {"every_steps": 0},
        "snapshot": {"every_steps": 0},
        "trace": {"tensors_every": 20},
    },
    what="seconds of transformers.Trainer untraced / seconds of the PyTorch leg traced",
    goal="ratio >= 1",
)

if __name__ == "__main__":
    DUEL.main()
