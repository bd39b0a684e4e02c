"""Where and how the numeric library runs: device, threads, precision, compiler (S-19, S-26)."""

import os
import shutil

import torch

from stacks.torch_stack.config import Config, Runtime
from stacks.torch_stack.errors import BadInput
from stacks.torch_stack.precision import PRECISIONS


def prepare_process(threads: int) -> None:
    """Environment that libraries read when they start: no network, `threads` threads."""
    os.environ["HF_HUB_OFFLINE"] = "1"
    os.environ["TOKENIZERS_PARALLELISM"] = "true" if threads > 1 else "false"
    os.environ["RAYON_NUM_THREADS"] = str(threads)
    os.environ["CUBLAS_WORKSPACE_CONFIG"] = ":4096:8"  # deterministic matrix products on CUDA


def prepare_torch(config: Config) -> torch.device:
    """Set PyTorch up for the run and return its device; raises `BadInput` if it is not there."""
    runtime = config.runtime
    device = _device(runtime)
    torch.set_num_threads(runtime.threads)
    # Also scalars that PyTorch makes on its own, as AdamW's increment, keep the precision (S-19)
    precision = PRECISIONS[config.train.precision]
    torch.set_default_dtype(precision.wide)
    torch.set_float32_matmul_precision("highest")  # no TF32, no bfloat16
    torch.backends.cuda.matmul.allow_tf32 = False
    torch.backends.cudnn.allow_tf32 = False
    torch.backends.cuda.matmul.allow_bf16_reduced_precision_reduction = False
    if device.type == "cuda":
        torch.backends.cudnn.benchmark = False
        torch.use_deterministic_algorithms(True)
    if runtime.compile and device.type == "cpu":
        _demand_compiler()
    if runtime.compile and precision.is_rounded:
        from torch._inductor import config as inductor

        # A fused kernel would leave out the roundings in between, which S-19 demands
        inductor.emulate_precision_casts = True
    return device


def _device(runtime: Runtime) -> torch.device:
    if runtime.device == "cuda" and not torch.cuda.is_available():
        raise BadInput(
            'S-26: runtime.device = "cuda", but PyTorch finds no CUDA device here; '
            'set it to "cpu" or run where there is one'
        )
    return torch.device(runtime.device)


def _demand_compiler() -> None:
    """torch.compile writes C++ for the CPU and needs something to compile it with."""
    choices = [os.environ["CXX"]] if "CXX" in os.environ else ["g++", "clang++"]
    if not any(shutil.which(name) for name in choices):
        raise BadInput(
            f"S-26: runtime.compile = true, but there is no C++ compiler ({' or '.join(choices)}) "
            "on the PATH; install one or set it to false"
        )
