"""The task and the device of a program as 32 numbers: the context of schema `tilings/1`.

    0-4     kind of device (GPU), operator: convolution, matrix product, reduction, other
    5-9     log2 of FLOPs, bytes read, bytes written, FLOPs per byte; number of arguments
    10-21   log2 of the last four extents of the output, of the first and of the second argument
    22-31   log2 of the device: peak GFLOP/s in fp32 of the units used, bandwidth in GB/s, units
            used, clock, vector bits, L1, L2, L3, shared memory of a block (KiB), units in all

What is not known is 0. A log2 is of 1 + x.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

COLUMNS = 32

Shape = Sequence[int]

_CONVOLUTIONS = ("conv", "depthwise", "winograd")
_PRODUCTS = ("matmul", "dense", "batch_matmul", "linear")
_REDUCTIONS = ("mean", "sum", "max_pool", "avg_pool", "softmax", "norm", "pool", "max", "argmax")
OPERATOR_CLASSES = ("convolution", "product", "reduction", "other")


@dataclass(frozen=True, slots=True)
class TaskContext:
    """`shapes` are the argument shapes, output last; `operator` is a name, or "" if unknown."""

    shapes: tuple[tuple[int, ...], ...] = ()
    flops: float = 0.0
    operator: str = ""
    bytes_per_element: int = 4


def numbers(task: TaskContext, device: Sequence[float]) -> NDArray[np.float32]:
    """(32,) numbers of a task on a device (`device_numbers`)."""
    row = np.zeros(COLUMNS, np.float32)
    row[1:5] = _operator(task.operator)
    sizes = [math.prod(shape) * task.bytes_per_element for shape in task.shapes]
    read, written = sum(sizes[:-1]), (sizes[-1] if sizes else 0)
    moved = read + written
    row[5:9] = [
        _log(task.flops),
        _log(read),
        _log(written),
        _log(task.flops / moved if moved else 0),
    ]
    row[9] = len(task.shapes)
    for start, shape in zip((10, 14, 18), _output_and_inputs(task.shapes), strict=False):
        for place, extent in enumerate(reversed(shape[-4:])):
            row[start + place] = _log(extent)
    row[0] = device[0]
    row[22:32] = device[1:11]
    return row


def device_numbers(
    *,
    gpu: bool = False,
    peak_gflops: float | None = None,
    bandwidth_gb_s: float | None = None,
    used_units: float | None = None,
    clock_ghz: float | None = None,
    vector_bits: float | None = None,
    l1_kib: float | None = None,
    l2_kib: float | None = None,
    l3_kib: float | None = None,
    shared_kib: float | None = None,
    units: float | None = None,
) -> tuple[float, ...]:
    """The device features of a cost model; None is unknown."""
    known = (peak_gflops, bandwidth_gb_s, used_units, clock_ghz, vector_bits, l1_kib, l2_kib,
             l3_kib, shared_kib, units)  # fmt: skip
    return (float(gpu), *(_log(value or 0.0) for value in known))


def _output_and_inputs(shapes: Sequence[Shape]) -> list[Shape]:
    return [shapes[-1], *shapes[:-1][:2]] if shapes else []


def operator_class(name: str) -> str:
    """One of `OPERATOR_CLASSES`, or "" without a name."""
    if not name:
        return ""
    classes = (_CONVOLUTIONS, _PRODUCTS, _REDUCTIONS)
    matches = [any(part in name for part in parts) for parts in classes]
    return OPERATOR_CLASSES[matches.index(True) if any(matches) else 3]


def _operator(name: str) -> list[float]:
    """One-hot of the operator classes; all zero without a name."""
    own = operator_class(name)
    return [float(each == own) for each in OPERATOR_CLASSES]


def _log(value: float) -> float:
    return math.log2(1.0 + max(0.0, value))
