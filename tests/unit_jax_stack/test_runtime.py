"""What really limits XLA: counted in a process of its own."""

import os
import subprocess
import sys

import pytest

from .conftest import ROOT

COUNT = """
import os
from stacks.jax_stack.runtime import limit_threads, start_jax
limit_threads({threads})
start_jax("cpu")
import jax.numpy as jnp
jnp.ones((64, 64)).sum().block_until_ready()
names = [open(f"/proc/self/task/{{t}}/comm").read().strip() for t in os.listdir("/proc/self/task")]
print(sum(name.startswith("tf_XLAEigen") for name in names), jnp.ones(1).dtype)
"""


@pytest.mark.parametrize("threads", [1, 3])
def test_the_pool_of_xla_has_as_many_threads_as_the_config_says(threads: int) -> None:
    environment = {k: v for k, v in os.environ.items() if k not in ("NPROC", "PJRT_NPROC")}
    found = subprocess.run(
        [sys.executable, "-c", COUNT.format(threads=threads)],
        env={**environment, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert found.stdout.split() == [str(threads), "float64"]


def test_render_starts_without_jax() -> None:
    code = (
        "import sys, stacks.jax_stack.__main__, stacks.jax_stack.render_leg; "
        "print([m for m in ('jax', 'torch', 'transformers', 'jinja2') if m in sys.modules])"
    )
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    found = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True
    )
    assert found.stdout.strip() == "[]"
