"""Windows, Mel weights and Fourier transforms, as constants and products with constants."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tunefleet.compiler.frontends.fourier import MOST_NUMBERS, transform_matrix
from tunefleet.compiler.frontends.onnx_operators.node import (
    Node,
    Rule,
    constant,
    dtype_of,
    relax,
)

op = relax.op

_DTYPES = {1: "float32", 6: "int32", 7: "int64", 10: "float16", 11: "float64"}


def _dtype(node: Node) -> str:
    number = node.attrs.get("output_datatype", 1)
    if number not in _DTYPES:
        raise NotImplementedError(f"{node.operator} of data type {number}")
    return _DTYPES[number]


def _number(node: Node, index: int, default: float | None = None) -> Any:
    value = node.constant(index)
    if value is None or not value.size:
        return default
    return value.reshape(-1)[0].item()


def _window(*terms: float) -> Rule:
    """A sum of cosines with alternating signs."""

    def convert(node: Node) -> Any:
        size = int(_number(node, 0))
        period = size if node.attrs.get("periodic", 1) else size - 1
        angle = 2 * math.pi * np.arange(size) / max(period, 1)
        values = sum((-1) ** k * a * np.cos(k * angle) for k, a in enumerate(terms))
        return constant(values, _dtype(node))

    return convert


def _mel(node: Node) -> Any:
    bins, length, rate = (int(_number(node, i)) for i in range(3))
    limits = np.array([_number(node, 3), _number(node, 4)])
    low, high = 2595 * np.log10(1 + limits / 700)
    centers = low + np.arange(bins + 2) * (high - low) / (bins + 2)
    places = np.floor((length + 1) * 700 * (10 ** (centers / 2595) - 1) / rate).astype("int64")
    weights = np.zeros((length // 2 + 1, bins))
    for i, (left, center, right) in enumerate(zip(places, places[1:], places[2:], strict=False)):
        if center == left:
            weights[center, i] = 1
        else:
            weights[left : center + 1, i] = np.arange(center - left + 1) / (center - left)
        if right > center:
            falling = np.arange(right - center, 0, -1) / (right - center)
            weights[center:right, i] = falling
    return constant(weights, _dtype(node))


def _dft(node: Node) -> Any:
    shape, x = node.shape(0), node.inputs[0]
    rank = len(shape)
    axis = node.attrs.get("axis", 1) if node.opset < 20 else _number(node, 2, -2)
    axis, parts = int(axis) % rank, shape[-1]
    inverse, onesided = node.attrs.get("inverse", 0), node.attrs.get("onesided", 0)
    count = shape[axis]
    default = 2 * (count - 1) if inverse and onesided else count
    length = int(_number(node, 1, default))
    if count * parts * 2 * length > MOST_NUMBERS:
        raise NotImplementedError(f"DFT of length {length}")

    def transform(rows: NDArray[Any]) -> NDArray[Any]:
        if inverse and onesided:
            return np.fft.irfft(rows, length)
        if inverse:
            return np.fft.ifft(rows, length)
        image = np.fft.fft(rows, length)
        return image[:, : length // 2 + 1] if onesided else image

    matrix = transform_matrix(transform, count, parts)
    order = [*(i for i in range(rank - 1) if i != axis), axis, rank - 1]
    lead = [shape[i] for i in order[:-2]]
    flat = op.reshape(op.permute_dims(x, order), (*lead, count * parts))
    image = op.matmul(node.emit(flat), constant(matrix, dtype_of(x)))
    outputs = 1 if inverse and onesided else 2
    image = op.reshape(node.emit(image), (*lead, matrix.shape[1] // outputs, outputs))
    return op.permute_dims(image, [order.index(i) for i in range(rank)])


def _stft(node: Node) -> Any:
    """A convolution whose filters are the windowed transform."""
    shape, x = node.shape(0), node.inputs[0]
    parts = shape[2] if len(shape) == 3 else 1
    step, window = int(_number(node, 1)), node.constant(2)
    length = int(_number(node, 3, None if window is None else window.size) or 0)
    if not length:
        raise NotImplementedError("STFT without the length of its frames")
    onesided = node.attrs.get("onesided", 1)
    if onesided and parts == 2:
        raise NotImplementedError("one-sided STFT of complex numbers")
    if length * parts * 2 * length > MOST_NUMBERS:
        raise NotImplementedError(f"STFT of frames of {length}")
    shape_of_window = np.ones(length) if window is None else window

    def transform(rows: NDArray[Any]) -> NDArray[Any]:
        image = np.fft.fft(rows * shape_of_window)
        return image[:, : length // 2 + 1] if onesided else image

    matrix = transform_matrix(transform, length, parts)
    filters = matrix.reshape(length, parts, -1).transpose(2, 1, 0)
    channels = op.permute_dims(op.reshape(x, (shape[0], shape[1], parts)), [0, 2, 1])
    frames = op.nn.conv1d(node.emit(channels), constant(filters, dtype_of(x)), step)
    rows = node.emit(op.permute_dims(frames, [0, 2, 1]))
    count = (shape[1] - length) // step + 1
    return op.reshape(rows, (shape[0], count, filters.shape[0] // 2, 2))


RULES: dict[tuple[str, str], Rule] = {
    ("", "BlackmanWindow"): _window(0.42, 0.5, 0.08),
    ("", "DFT"): _dft,
    ("", "HammingWindow"): _window(25 / 46, 21 / 46),
    ("", "HannWindow"): _window(0.5, 0.5),
    ("", "MelWeightMatrix"): _mel,
    ("", "STFT"): _stft,
}
