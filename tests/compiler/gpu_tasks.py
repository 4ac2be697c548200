"""Small tasks of each kind of operator for a GPU, in shapes that threads do not divide too."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from tests.compiler.onnx_nodes import convert, model, random

from tunefleet.compiler.frontends.relax_ import tidy
from tunefleet.compiler.graph.pipeline import prepare
from tunefleet.compiler.graph.tasks import extract_tasks
from tunefleet.compiler.toolchain.host import to_tvm

#: What only moves numbers, as layouts change.
_MOVES = ("transpose", "layout_transform")
_AXIS = np.array([1], "int64")


def _weights(*shape: int) -> Any:
    return random(*shape, seed=1, scale=0.3)


def _conv(x: Sequence[int], w: Sequence[int], **attrs: Any) -> Any:
    return "Conv", [random(*x), _weights(*w)], attrs


def _transposed(x: Sequence[int], w: Sequence[int], **attrs: Any) -> Any:
    return "ConvTranspose", [random(*x), _weights(*w)], attrs


_AROUND = [1] * 4
#: By a name, an ONNX operator, its inputs (all but the first are weights) and its attributes.
_NODES: dict[str, tuple[str, list[Any], dict[str, Any]]] = {
    "matmul": ("MatMul", [random(32, 64), _weights(64, 48)], {}),
    "matmul_odd": ("MatMul", [random(31, 40), _weights(40, 30)], {}),
    "matvec": ("MatMul", [random(1, 77), _weights(77, 33)], {}),
    "gemm": ("Gemm", [random(17, 13), _weights(29, 13), _weights(29)], {"transB": 1}),
    "batched": ("MatMul", [random(2, 3, 31, 5), _weights(2, 3, 5, 7)], {}),
    "conv": _conv((1, 16, 8, 8), (32, 16, 1, 3), pads=[0, 1, 0, 1]),
    "winograd": _conv((1, 16, 14, 14), (16, 16, 3, 3), pads=_AROUND),
    "conv_odd": _conv((1, 17, 7, 7), (3, 17, 3, 3), pads=_AROUND),
    "conv_stride": _conv((2, 3, 15, 15), (17, 3, 3, 3), strides=[2, 2], pads=_AROUND),
    "conv_dilated": _conv((1, 4, 11, 9), (6, 4, 3, 3), dilations=[2, 2]),
    "conv_from_one": _conv((1, 1, 7, 7), (17, 1, 5, 5)),
    "conv_to_one": _conv((1, 17, 7, 7), (1, 17, 3, 3), pads=_AROUND),
    "conv_point": _conv((1, 24, 7, 7), (17, 24, 1, 1)),
    "conv_groups": _conv((1, 12, 9, 9), (18, 4, 3, 3), group=3, pads=_AROUND),
    "depthwise": _conv((1, 17, 7, 7), (17, 1, 3, 3), group=17, pads=_AROUND),
    "depthwise_stride": _conv((1, 32, 14, 14), (32, 1, 5, 5), group=32, strides=[2, 2]),
    "conv1d": _conv((2, 5, 31), (7, 5, 3), pads=[1, 1], strides=[2]),
    "conv3d": _conv((1, 3, 5, 6, 7), (4, 3, 3, 3, 3), pads=[1] * 6),
    "transposed": _transposed((1, 5, 7, 7), (5, 3, 3, 3), strides=[2, 2], pads=_AROUND),
    "transposed1d": _transposed((1, 4, 13), (4, 6, 4), strides=[2]),
    "transposed_groups": _transposed((1, 4, 6, 6), (4, 3, 3, 3), group=2),
    "max_pool": (
        "MaxPool", [random(1, 17, 15, 15)],
        {"kernel_shape": [3, 3], "strides": [2, 2], "pads": _AROUND},
    ),
    "average_pool": (
        "AveragePool", [random(1, 3, 7, 7)], {"kernel_shape": [3, 3], "pads": _AROUND}
    ),
    "global_average": ("GlobalAveragePool", [random(2, 64, 14, 14)], {}),
    "softmax": ("Softmax", [random(31, 77)], {"axis": -1}),
    "softmax_between": ("Softmax", [random(3, 17, 5)], {"axis": 1}),
    "layer_norm": ("LayerNormalization", [random(7, 31), _weights(31), _weights(31)], {"axis": -1}),
    "instance_norm": ("InstanceNormalization", [random(2, 3, 7, 9), _weights(3), _weights(3)], {}),
    "sum": ("ReduceSum", [random(3, 300), _AXIS], {}),
    "sum_of_all": ("ReduceSum", [random(17, 31)], {}),
    "max": ("ReduceMax", [random(5, 63), _AXIS], {}),
    "product": ("ReduceProd", [random(5, 33), _AXIS], {}),
    "argmax": ("ArgMax", [random(9, 100)], {"axis": 1}),
    "erf": ("Erf", [random(1, 3, 17)], {}),
    "transpose": ("Transpose", [random(17, 31, 3)], {"perm": [2, 0, 1]}),
    "concat": ("Concat", [random(3, 5), _weights(7, 5)], {"axis": 0}),
}  # fmt: skip
NAMES = list(_NODES)


def programs_of(name: str, target: Any) -> list[str]:
    """The tasks of a network of one operator, but those that change a layout for it."""
    operator, inputs, attrs = _NODES[name]
    network = convert(model(operator, inputs, ["y"], set(range(1, len(inputs))), **attrs))
    tasks = [w.task for w in extract_tasks(prepare(tidy(network), to_tvm(target)), target)]
    own = [task for task in tasks if task.operator not in _MOVES]
    return [task.program for task in own or tasks]
