from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from tunefleet.artifacts.tensors import ALIGNMENT, aligned, array_of, numpy_type, tensor_of

pytestmark = pytest.mark.tvm


@pytest.mark.parametrize("name", ["bfloat16", "float8_e4m3fn", "float16", "bool", "int64"])
@pytest.mark.parametrize("shape", [(2, 3), (), (0, 3)])
def test_a_tensor_has_the_values_of_its_array(name: str, shape: tuple[int, ...]) -> None:
    assert ml_dtypes.bfloat16  # NumPy knows its types by name from here on
    array = np.arange(np.prod(shape, dtype=int)).reshape(shape).astype(numpy_type(name))
    found = array_of(tensor_of(array))
    assert (found.shape, found.dtype) == (array.shape, array.dtype)
    np.testing.assert_array_equal(found.astype("float64"), array.astype("float64"))


@pytest.mark.parametrize("name", ["bfloat16", "float32"])
def test_values_are_in_the_memory_of_their_tensor(name: str) -> None:
    tensor = tensor_of(np.zeros((2, 3), numpy_type(name)))
    assert array_of(tensor).ctypes.data == tensor.data_ptr()


@pytest.mark.parametrize("shape", [(3, 5), (), (0, 3)])
def test_memory_begins_where_kernels_read_whole_vectors(shape: tuple[int, ...]) -> None:
    found = [aligned(shape, np.dtype("float32")) for _ in range(8)]
    assert {array.shape for array in found} == {shape}
    assert {array.ctypes.data % ALIGNMENT for array in found if array.size} <= {0}
