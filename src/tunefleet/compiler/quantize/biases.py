"""Bias correction: removes the mean error that rounded weights cause in each output.

Weights are rounded once for all inputs. The mean error of an output is the sum of the rounding
errors of its weights, each times the mean of its input, measured in the float network.
Source: Nagel et al., Data-Free Quantization Through Weight Equalization and Bias Correction, ICCV
2019, section 4.2; with samples, as in NNCF.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import numpy_helper

from tunefleet.compiler.quantize.calibration import SampleInputs
from tunefleet.compiler.quantize.losses import watched

Floats = NDArray[np.float64]

_DATA, _WEIGHT, _BIAS = range(3)
#: Suffix by ONNX Runtime's quantiser of a network output before rounding.
_UNROUNDED = "_QuantizeLinear_Input"


def correct(
    source: Path, quantized: Path, target: Path, samples: Sequence[SampleInputs], apart: bool
) -> bool:
    """Writes the network `quantized`, derived from `source`, to `target` with corrected convolution
    biases; `apart`: with external weights. False if there is no bias to correct."""
    model, floats = onnx.load(quantized), onnx.load(source)
    weights = {tensor.name: tensor for tensor in floats.graph.initializer}
    exact = {
        node.output[0]: node
        for node in floats.graph.node
        if node.op_type == "Conv" and node.input[_WEIGHT] in weights
    }
    pairs = [
        (node, exact[name])
        for node in model.graph.node
        for name in [node.output[0].removesuffix(_UNROUNDED)]
        if node.op_type == "Conv" and len(node.input) > _BIAS and name in exact
    ]
    if not pairs:
        return False
    integers = _Integers(model.graph)
    means = _means(source, sorted({node.input[_DATA] for _, node in pairs}), samples)
    for node, of_floats in pairs:
        rounded = integers.floats(node.input[_WEIGHT])
        if rounded is not None:
            lost = numpy_helper.to_array(weights[of_floats.input[_WEIGHT]]) - rounded
            shift = _mean_sum(lost, means[of_floats.input[_DATA]])
            integers.add(node.input[_BIAS], shift)
    onnx.save(model, target, save_as_external_data=apart, location=f"{target.name}.data")
    return True


def _mean_sum(weights: Floats, means: Floats) -> Floats:
    """The sum of weights (outputs, channels of a group, ...) times the channel means of inputs."""
    by_channel = weights.reshape(*weights.shape[:2], -1).sum(axis=2)
    # Outputs of a group read only the channels of that group.
    groups = means.reshape(-1, by_channel.shape[1])
    each = by_channel.reshape(len(groups), -1, by_channel.shape[1])
    return np.asarray(np.einsum("goi,gi->go", each, groups).reshape(-1), np.float64)


class _Integers:
    """The quantised weights of a network, which are dequantised where they are read."""

    def __init__(self, graph: onnx.GraphProto) -> None:
        self._tensors = {tensor.name: tensor for tensor in graph.initializer}
        self._nodes = {
            node.output[0]: node for node in graph.node if node.op_type == "DequantizeLinear"
        }

    def floats(self, name: str) -> Floats | None:
        """The dequantised weight of a name, None if it is computed otherwise."""
        node = self._nodes.get(name)
        parts = [self._tensors.get(given) for given in node.input] if node is not None else []
        if node is None or None in parts:
            return None
        values, scale, *zero = (numpy_helper.to_array(part).astype("float64") for part in parts)
        axis = next((a.i for a in node.attribute if a.name == "axis"), 1)
        for point in zero:
            values = values - _along(point, values, axis)
        return np.asarray(values * _along(scale, values, axis), np.float64)

    def add(self, name: str, shift: Floats) -> None:
        """Adds floats to the weight of a name, rounded to its scale."""
        node = self._nodes.get(name)
        if node is None or node.input[0] not in self._tensors:
            return
        tensor, scale = (self._tensors[given] for given in node.input[:2])
        values = numpy_helper.to_array(tensor)
        steps = np.rint(shift / numpy_helper.to_array(scale).astype("float64"))
        limits = np.iinfo(values.dtype)
        moved = (values + steps).clip(limits.min, limits.max).astype(values.dtype)
        tensor.CopyFrom(numpy_helper.from_array(moved, tensor.name))


def _along(numbers: Floats, values: Floats, axis: int) -> Floats:
    if numbers.size == 1:
        return numbers.reshape(())
    return numbers.reshape([-1 if i == axis else 1 for i in range(values.ndim)])


def _means(
    source: Path, names: Sequence[str], samples: Sequence[SampleInputs]
) -> dict[str, Floats]:
    """The mean of each channel of activations over all samples and positions."""
    sums: dict[str, Floats] = {}
    for values in watched(source, names, samples):
        for name, value in values.items():
            places = tuple(axis for axis in range(value.ndim) if axis != 1)
            sums[name] = sums.get(name, 0.0) + value.mean(axis=places, dtype="float64")
    return {name: total / len(samples) for name, total in sums.items()}
