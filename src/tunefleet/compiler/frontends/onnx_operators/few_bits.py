"""Products with weights of few bits, which are unpacked at import."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tunefleet.compiler.frontends.onnx_operators.node import Node, Rule, constant, relax

op = relax.op


def _matmul(node: Node) -> Any:
    attrs = node.attrs
    bits, block = int(attrs["bits"]), int(attrs["block_size"])
    rows, width = int(attrs["N"]), int(attrs["K"])
    if bits not in (2, 4, 8) or node.has(4):
        raise NotImplementedError("MatMulNBits with reordered groups or other than 2, 4 or 8 bits")
    blocks = math.ceil(width / block)
    numbers = _unpacked(node.known(1).reshape(rows, -1), bits).reshape(rows, blocks, block)
    points = node.constant(3)
    if points is None:
        zeros: Any = 2 ** (bits - 1)
    elif points.dtype == np.uint8:
        zeros = _unpacked(points.reshape(rows, -1), bits)[:, :blocks, None]
    else:
        zeros = points.reshape(rows, blocks, 1)
    scales = node.known(2).reshape(rows, blocks, 1).astype("float32")
    weights = ((numbers - np.asarray(zeros, "float32")) * scales).reshape(rows, -1)[:, :width]
    product = op.matmul(node.inputs[0], constant(weights.T, node.dtype(0)))
    return product + node.inputs[5] if node.has(5) else product


def _unpacked(packed: NDArray[np.uint8], bits: int) -> NDArray[np.uint8]:
    """Small numbers, the first in the lowest bits."""
    shifts = np.arange(0, 8, bits, dtype="uint8")
    small: NDArray[np.uint8] = (packed[..., None] >> shifts) & np.uint8(2**bits - 1)
    return small.reshape(packed.shape[0], -1)


RULES: dict[tuple[str, str], Rule] = {("com.microsoft", "MatMulNBits"): _matmul}
