from __future__ import annotations

import numpy as np
import pytest

from tunefleet.costmodel import _tensors

ARRAYS: dict[str, np.ndarray] = {
    "w": np.arange(6, dtype=np.float32).reshape(2, 3),
    "n": np.array([1, 2], np.int64),
}


def test_arrays_and_header_come_back() -> None:
    arrays, header = _tensors.loads(_tensors.dumps(ARRAYS, {"format": "a/1", "k": "v"}), "a/1")
    assert header == {"format": "a/1", "k": "v"}
    assert arrays.keys() == ARRAYS.keys()
    for name, array in ARRAYS.items():
        np.testing.assert_array_equal(array, arrays[name], strict=True)


def test_an_array_that_is_not_contiguous_keeps_its_values() -> None:
    turned = ARRAYS["w"].T
    arrays, _ = _tensors.loads(_tensors.dumps({"w": turned}, {"format": "a/1"}), "a/1")
    np.testing.assert_array_equal(turned, arrays["w"])


def test_the_same_arrays_are_the_same_bytes() -> None:
    header = {"format": "a/1", "b": "1", "c": "2"}
    assert len({_tensors.dumps(ARRAYS, header) for _ in range(5)}) == 1


@pytest.mark.parametrize("data", [b"", b"\x80\x04pickle", b"PK\x03\x04" * 9, b"\xff" * 64])
def test_foreign_bytes_are_refused(data: bytes) -> None:
    with pytest.raises(ValueError, match="not a safetensors file"):
        _tensors.loads(data, "a/1")


def test_a_file_that_breaks_off_is_refused() -> None:
    data = _tensors.dumps(ARRAYS, {"format": "a/1"})
    with pytest.raises(ValueError, match="not a safetensors file"):
        _tensors.loads(data[:-1], "a/1")


def test_another_format_is_refused() -> None:
    data = _tensors.dumps(ARRAYS, {"format": "a/1"})
    with pytest.raises(ValueError, match="not a a/2 file: its format is 'a/1'"):
        _tensors.loads(data, "a/2")


def test_a_header_needs_a_format() -> None:
    with pytest.raises(ValueError, match="without a format"):
        _tensors.dumps(ARRAYS, {})
