"""Threads, devices and signals of a leg (S-19, S-26). Imported before jax, and imports it late.

XLA sizes the one pool of its CPU client (threads named `tf_XLAEigen`) from NPROC when the client
starts; newer versions read PJRT_NPROC. Flags such as --xla_cpu_multi_thread_eigen do not limit it.
"""

import os
import signal
from dataclasses import dataclass
from typing import Any

from .errors import BadInput, Interrupted

THREAD_VARIABLES = ("NPROC", "PJRT_NPROC", "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS")


def limit_threads(num_threads: int) -> None:
    """Sets how many threads the numeric libraries may use, before they have started."""
    for name in THREAD_VARIABLES:
        os.environ[name] = str(num_threads)


def start_jax(device: str) -> str:
    """Switches on float64, picks the device and returns its kind.

    Raises:
        BadInput: the device is not there.
    """
    if device == "cuda":  # the same bits on every run (S-19)
        os.environ["XLA_FLAGS"] = (
            f"{os.environ.get('XLA_FLAGS', '')} --xla_gpu_deterministic_ops=true".strip()
        )
    import jax

    settings = {
        "jax_enable_x64": True,  # before the first array: float64 everywhere, or nowhere
        "jax_default_matmul_precision": "highest",  # no TF32
        "jax_platforms": device,
    }
    for name, value in settings.items():
        jax.config.update(name, value)  # type: ignore[no-untyped-call]
    try:
        return str(jax.devices(device)[0].device_kind)
    except (RuntimeError, AssertionError) as error:  # AssertionError: no plug-in for the device
        raise BadInput(
            f"runtime.device is {device} and JAX finds no such device on this machine (S-26); "
            "set runtime.device to cpu, or install JAX for the accelerator"
        ) from error


@dataclass(kw_only=True)
class StopSignal:
    """Remembers SIGINT and SIGTERM until the leg can stop cleanly."""

    name: str | None = None

    def listen(self) -> None:
        """Takes over both signals of this process."""
        signal.signal(signal.SIGINT, self._remember)
        signal.signal(signal.SIGTERM, self._remember)

    def _remember(self, number: int, frame: Any) -> None:
        self.name = signal.Signals(number).name

    def raise_if_set(self) -> None:
        """Ends a leg that has no step to save yet."""
        if self.name:
            raise Interrupted(
                f"{self.name} stopped the leg before its first step; run it again with --resume"
            )
