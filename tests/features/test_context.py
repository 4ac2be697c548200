from __future__ import annotations

import math

import numpy as np
import pytest

from tunefleet.features.context import COLUMNS, TaskContext, device_numbers, numbers

CONV = TaskContext(((1, 56, 56, 64), (3, 3, 64, 128), (1, 54, 54, 128)), 4e8, "conv2d_nhwc")


def log(*values: float) -> list[float]:
    return [math.log2(1 + value) for value in values]


def test_the_layout_is_what_it_was() -> None:
    """Whoever changes the layout changes the version of `tilings`: saved models name it."""
    device = device_numbers(
        gpu=True, peak_gflops=1, bandwidth_gb_s=2, used_units=3, clock_ghz=4, vector_bits=5,
        l1_kib=6, l2_kib=7, l3_kib=8, shared_kib=9, units=10,
    )  # fmt: skip
    read, written = 4 * (56 * 56 * 64 + 9 * 64 * 128), 4 * 54 * 54 * 128
    expected = [
        1, 1, 0, 0, 0,
        *log(4e8, read, written, 4e8 / (read + written)), 3,
        *log(128, 54, 54, 1), *log(64, 56, 56, 1), *log(128, 64, 3, 3),
        *log(*range(1, 11)),
    ]  # fmt: skip
    assert COLUMNS == 32
    np.testing.assert_allclose(numbers(CONV, device), expected, rtol=1e-6)


def test_what_is_not_known_is_zero() -> None:
    np.testing.assert_array_equal(np.zeros(COLUMNS), numbers(TaskContext(), device_numbers()))


@pytest.mark.parametrize(
    ("operator", "place"),
    [("conv2d_nchw", 1), ("depthwise_conv2d", 1), ("winograd", 1), ("batch_matmul", 2),
     ("dense", 2), ("softmax", 3), ("max_pool2d", 3), ("relu", 4)],
)  # fmt: skip
def test_an_operator_is_of_one_class(operator: str, place: int) -> None:
    found = numbers(TaskContext(operator=operator), device_numbers())[1:5]
    assert (found.argmax() + 1, found.sum()) == (place, 1.0)


def test_a_task_of_one_argument_has_an_output_only() -> None:
    found = numbers(TaskContext(((8, 16),)), device_numbers())
    np.testing.assert_allclose(found[10:22], [*log(16, 8), *[0] * 10], rtol=1e-6)
    assert found[6] == 0.0


def test_of_many_dimensions_the_last_four_count() -> None:
    found = numbers(TaskContext(((9, 1, 2, 3, 4),)), device_numbers())
    np.testing.assert_allclose(found[10:14], log(4, 3, 2, 1), rtol=1e-6)


def test_elements_have_a_size() -> None:
    half = TaskContext(CONV.shapes, CONV.flops, CONV.operator, bytes_per_element=2)
    full, small = (numbers(task, device_numbers()) for task in (CONV, half))
    np.testing.assert_allclose(full[6:8] - small[6:8], 1.0, atol=1e-3)


def test_an_empty_argument_moves_nothing() -> None:
    assert np.isfinite(numbers(TaskContext(((0, 4), (0, 4)), 3.0), device_numbers())).all()
