import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.reference import tensorfile
from tests.reference.errors import RefusedError

TENSOR = np.array([[1.0, -2.5, 0.375], [0.0, -0.0, 3.0e4]])


@pytest.mark.parametrize("dtype", ["F64", "F32", "F16", "BF16"])
def test_what_is_written_is_read(dtype: str) -> None:
    exact = TENSOR if dtype != "BF16" else np.array([[1.0, -2.5], [0.375, -0.0]])
    data = tensorfile.write({"a": exact, "b": exact[:1]}, {"a": dtype, "b": dtype})
    held = tensorfile.read(data, "file")
    np.testing.assert_array_equal(held["a"], exact)
    np.testing.assert_array_equal(held["b"], exact[:1])
    assert np.signbit(held["a"].reshape(-1)[-1]) == np.signbit(exact.reshape(-1)[-1])


@pytest.mark.parametrize(
    ("value", "rounded"),
    [
        (1 + 2**-8, 1.0),  # halfway between 1 and 1 + 2^-7: to even
        (1 + 3 * 2**-8, 1 + 2**-6),  # halfway: to even, upwards
        (1 + 2**-8 + 2**-20, 1 + 2**-7),
        (-1 - 2**-8, -1.0),
    ],
)
def test_bfloat16_rounds_to_nearest_even(value: float, rounded: float) -> None:
    data = tensorfile.write({"a": np.array([value])}, {"a": "BF16"})
    assert tensorfile.read(data, "file")["a"][0] == rounded


@given(st.integers(min_value=0, max_value=200))
def test_any_shorter_file_is_refused(length: int) -> None:
    data = tensorfile.write({"a": TENSOR}, {"a": "F64"})
    with pytest.raises(RefusedError):
        tensorfile.read(data[: min(length, len(data) - 1)], "file")


def test_the_safetensors_library_reads_the_file() -> None:
    numpy_reader = pytest.importorskip("safetensors.numpy")
    held = numpy_reader.load(tensorfile.write({"a": TENSOR}, {"a": "F32"}))
    np.testing.assert_array_equal(held["a"], TENSOR.astype(np.float32))
