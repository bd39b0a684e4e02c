"""Devices and compilers that are not there are bad input; settings take effect (S-19, S-26)."""

import os

import pytest
import torch

from stacks.torch_stack.config import load_config
from stacks.torch_stack.errors import BadInput
from stacks.torch_stack.runtime import prepare_process, prepare_torch

from .conftest import Run


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA device")
def test_a_device_that_is_not_there_is_bad_input(small_run: Run) -> None:
    path = small_run(runtime__device="cuda")
    with pytest.raises(BadInput, match='runtime.device = "cuda", but PyTorch finds no CUDA'):
        prepare_torch(load_config(path, path.parent))


def test_a_compiler_that_is_not_there_is_bad_input(
    small_run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = small_run(runtime__compile=True)
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.delenv("CXX", raising=False)
    with pytest.raises(BadInput, match=r"no C\+\+ compiler"):
        prepare_torch(load_config(path, path.parent))


def test_precision_and_threads_take_effect(small_run: Run) -> None:
    default, threads = torch.get_default_dtype(), torch.get_num_threads()
    try:
        path = small_run(runtime__threads=2)
        assert prepare_torch(load_config(path, path.parent)).type == "cpu"
        assert torch.get_num_threads() == 2
        assert torch.get_default_dtype() == torch.float64
        assert torch.get_float32_matmul_precision() == "highest"
        assert not torch.backends.cuda.matmul.allow_tf32
    finally:
        torch.set_default_dtype(default)
        torch.set_num_threads(threads)


def test_the_process_stays_off_the_network(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HF_HUB_OFFLINE", "TOKENIZERS_PARALLELISM", "RAYON_NUM_THREADS"):
        monkeypatch.setenv(name, "?")
    monkeypatch.setenv("CUBLAS_WORKSPACE_CONFIG", "?")
    prepare_process(3)
    assert os.environ["HF_HUB_OFFLINE"] == "1"
    assert os.environ["TOKENIZERS_PARALLELISM"] == "true"
    assert os.environ["RAYON_NUM_THREADS"] == "3"
