"""Products with weights of few bits, which are unpacked at import, and rows of tables of few bits,
which are unpacked as they are read."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tunefleet.compiler.frontends.onnx_operators.node import Node, Rule, constant, relax, shape_of

op = relax.op

#: What four bits stand for, by `quant_type`: floats of 4 bits, and NF4, whose values are as likely
#: as each other among normal numbers (Dettmers et al., QLoRA, 2023).
_FP4 = np.array([0, 1 / 192, 2 / 3, 1, 1 / 3, 1 / 2, 1 / 6, 1 / 4], "float32")
_CODES = {
    0: np.concatenate([_FP4, -_FP4]),
    1: np.array([
        -1.0, -0.6961928009986877, -0.5250730514526367, -0.39491748809814453,
        -0.28444138169288635, -0.18477343022823334, -0.09105003625154495, 0.0,
        0.07958029955625534, 0.16093020141124725, 0.24611230194568634, 0.33791524171829224,
        0.44070982933044434, 0.5626170039176941, 0.7229568362236023, 1.0,
    ], "float32"),
}  # fmt: skip


def _matmul(node: Node) -> Any:
    attrs = node.attrs
    bits, block = int(attrs["bits"]), int(attrs["block_size"])
    rows, width = int(attrs["N"]), int(attrs["K"])
    if bits not in (2, 4, 8) or node.has(4):
        raise NotImplementedError("MatMulNBits with reordered groups or other than 2, 4 or 8 bits")
    blocks = math.ceil(width / block)
    weights = unpacked_weights(
        node.known(1).reshape(rows, -1),
        node.known(2).reshape(rows, blocks),
        node.constant(3),
        bits,
        block,
    )[:, :width]
    product = op.matmul(node.inputs[0], constant(weights.T, node.dtype(0)))
    return product + node.inputs[5] if node.has(5) else product


def unpacked_weights(
    packed: NDArray[np.uint8],
    scales: NDArray[Any],
    points: NDArray[Any] | None,
    bits: int,
    block: int,
) -> NDArray[np.float32]:
    """Floats (rows, numbers) of bytes (rows, numbers * bits / 8), whose blocks have a scale (rows,
    blocks) each, and a zero point, packed (bytes) or as numbers; without it half of the range."""
    rows, blocks = scales.shape
    numbers = _unpacked(packed, bits)
    # The last block may be shorter.
    numbers = np.pad(numbers, ((0, 0), (0, max(blocks * block - numbers.shape[1], 0))))
    if points is None:
        zeros: Any = 2 ** (bits - 1)
    elif points.dtype == np.uint8:
        zeros = _unpacked(points.reshape(rows, -1), bits)[:, :blocks, None]
    else:
        zeros = points.reshape(rows, blocks, 1)
    moved = numbers[:, : blocks * block].reshape(rows, blocks, block) - np.asarray(zeros, "float32")
    scaled: NDArray[np.float32] = moved * scales[:, :, None].astype("float32")
    return scaled.reshape(rows, -1)


def _unpacked(packed: NDArray[np.uint8], bits: int) -> NDArray[np.uint8]:
    """Small numbers, the first in the lowest bits."""
    shifts = np.arange(0, 8, bits, dtype="uint8")
    small: NDArray[np.uint8] = (packed[..., None] >> shifts) & np.uint8(2**bits - 1)
    return small.reshape(packed.shape[0], -1)


def _matmul_bnb4(node: Node) -> Any:
    """Weights of 4 bits that number 16 values (bitsandbytes): the first in the highest bits, blocks
    of the whole matrix one after the other."""
    attrs = node.attrs
    rows, width, block = int(attrs["N"]), int(attrs["K"]), int(attrs["block_size"])
    if not attrs.get("transB", 1):
        raise NotImplementedError("MatMulBnb4 with weights that are not transposed")
    packed = node.known(1).ravel()
    numbers = np.stack([packed >> 4, packed & 15], axis=1).ravel()[: rows * width]
    scales = np.repeat(node.known(2).ravel().astype("float32"), block)[: rows * width]
    weights = (_CODES[int(attrs["quant_type"])][numbers] * scales).reshape(rows, width)
    return op.matmul(node.inputs[0], constant(weights.T, node.dtype(0)))


def _gather(node: Node) -> Any:
    """Rows of a table, whose numbers are unpacked and scaled after they are taken: the table stays
    as small as it is."""
    attrs = node.attrs
    bits, block = int(attrs.get("bits", 4)), int(attrs.get("block_size", 128))
    rank = len(node.shape(0))
    axes = int(attrs.get("gather_axis", 0)) % rank, int(attrs.get("quantize_axis", 1)) % rank
    if node.dtype(0) != "uint8" or bits not in (2, 4, 8) or axes != (0, rank - 1):
        raise NotImplementedError("GatherBlockQuantized but of rows of 2, 4 or 8 bits in bytes")
    indices = node.inputs[1]

    def taken(table: Any) -> Any:
        return node.emit(op.take(table, indices, axis=0, mode="wrap"))

    scales = taken(node.inputs[2])
    *rows, blocks = shape_of(scales)
    numbers = _bits_of(node, taken(node.inputs[0]), bits)
    width = shape_of(numbers)[-1]

    def of_numbers(of_blocks: Any) -> Any:
        return _cut(op.repeat(op.astype(of_blocks, "float32"), block, len(rows)), width)

    zeros = constant(2 ** (bits - 1), "float32")
    if node.has(3):
        zeros = of_numbers(_cut(_bits_of(node, taken(node.inputs[3]), bits), blocks))
    moved = op.subtract(op.astype(numbers, "float32"), zeros)
    return op.astype(op.multiply(moved, of_numbers(scales)), node.dtype(2))


def _cut(expr: Any, width: int) -> Any:
    """As many numbers of the last axis."""
    return op.strided_slice(expr, [-1], [0], [width])


def _bits_of(node: Node, expr: Any, bits: int) -> Any:
    """The small numbers of bytes side by side, the first in the lowest bits."""
    if bits == 8:
        return expr
    *rows, width = shape_of(expr)
    shifts = constant(np.arange(0, 8, bits), "uint8")
    small = op.bitwise_and(
        op.right_shift(op.expand_dims(expr, -1), shifts), constant(2**bits - 1, "uint8")
    )
    return node.emit(op.reshape(small, (*rows, width * 8 // bits)))


RULES: dict[tuple[str, str], Rule] = {
    ("com.microsoft", "GatherBlockQuantized"): _gather,
    ("com.microsoft", "MatMulBnb4"): _matmul_bnb4,
    ("com.microsoft", "MatMulNBits"): _matmul,
}
