"""Forms of operators that TVM converts wrongly or refuses; the others are left to TVM."""

from __future__ import annotations

from typing import Any

import numpy as np
from onnx import helper

from tunefleet.compiler.frontends.onnx_operators.delegate import by_tvm
from tunefleet.compiler.frontends.onnx_operators.node import (
    Node,
    Rule,
    constant,
    constant_value,
    relax,
)

op = relax.op


def _literal(node: Node) -> Any:
    """TVM reads tensors only."""
    if "value" in node.attrs:
        return NotImplemented
    kinds = {"value_float": "float32", "value_floats": "float32", "value_int": "int64"}
    kinds["value_ints"] = "int64"
    for name, value in node.attrs.items():
        if name in kinds:
            return constant(value, kinds[name])
    raise NotImplementedError("Constant of texts or of a sparse tensor")


def _dropout(node: Node) -> Any:
    """TVM gives the data for the mask."""
    training = node.constant(2)
    if training is not None and training.any():
        raise NotImplementedError("Dropout that trains")
    x = node.inputs[0]
    return [x, constant(np.ones(node.shape(0)), "bool") if node.wants(1) else None]


def _is_inf(node: Node) -> Any:
    """TVM ignores which sign is looked for."""
    x = node.inputs[0]
    positive, negative = (node.attrs.get(f"detect_{s}", 1) for s in ("positive", "negative"))
    if positive and negative:
        return NotImplemented
    if not positive and not negative:
        return constant(np.zeros(node.shape(0)), "bool")
    return op.equal(x, constant(np.inf if positive else -np.inf, node.dtype(0)))


def _mod(node: Node) -> Any:
    """The remainder of floats with the sign of the divisor. TVM's is not a number where the divisor
    is infinite."""
    dtype = node.dtype(0)
    if node.attrs.get("fmod", 0) or not dtype.startswith("float"):
        return NotImplemented
    zero, divisor = relax.const(0, dtype), node.inputs[1]
    rest = node.emit(op.mod(node.inputs[0], divisor))
    wrong = op.logical_xor(op.less(rest, zero), op.less(divisor, zero))
    turned = op.logical_and(op.not_equal(rest, zero), wrong)
    return op.where(turned, op.add(rest, divisor), rest)


def _pow(node: Node) -> Any:
    """TVM takes powers of floats by floats of the same type only."""
    dtypes = node.dtype(0), node.dtype(1)
    if dtypes[0] == dtypes[1] and dtypes[0].startswith("float"):
        return NotImplemented
    through = dtypes[0] if dtypes[0].startswith("float") else "float64"
    # Bound, so that a constant exponent stays one.
    base, exponent = (
        x if dtype == through else node.emit(op.astype(x, through))
        for x, dtype in zip(node.inputs, dtypes, strict=True)
    )
    power = op.power(base, exponent)
    return power if dtypes[0] == through else op.astype(power, dtypes[0])


def _mean(node: Node) -> Any:
    """TVM counts means of integers in another type."""
    if "int" in node.dtype(0):
        raise NotImplementedError(f"ReduceMean of {node.dtype(0)}")
    return _reduced(node)


def _bit_shift(node: Node) -> Any:
    """TVM leaves a shift by more bits than there are to the processor, which shifts by the rest."""
    x, distance = node.inputs[:2]
    bits = int(node.dtype(0).removeprefix("uint").removeprefix("int"))
    known = constant_value(distance)
    if known is not None and (known < bits).all():
        return NotImplemented
    shift = op.left_shift if node.attrs["direction"] == "LEFT" else op.right_shift
    shifted = node.emit(shift(x, distance))
    inside = op.less(distance, constant(bits, node.dtype(1)))
    return op.where(inside, shifted, constant(0, node.dtype(0)))


def _prelu(node: Node) -> Any:
    """Before opset 7 slopes were those of channels; TVM looks for them along the last axis."""
    slope, shape = node.shape(1), node.shape(0)
    if len(slope) != 1 or len(shape) < 3 or slope[0] in (1, shape[-1]):
        return NotImplemented
    channels = node.emit(op.reshape(node.inputs[1], (*slope, *[1] * (len(shape) - 2))))
    return by_tvm(node, "PRelu", [node.inputs[0], channels], {})


def _cumulative_product(node: Node) -> Any:
    axis = int(_constant(node, 1).reshape(-1)[0]) % len(node.shape(0))
    backward, exclusive = bool(node.attrs.get("reverse", 0)), bool(node.attrs.get("exclusive", 0))
    x = node.inputs[0]
    if backward:
        x = node.emit(op.flip(x, axis))
    product = node.emit(op.cumprod(x, axis, exclusive=exclusive))
    return op.flip(product, axis) if backward else product


def _of_all(function: Any) -> Rule:
    """TVM joins the inputs first, which takes equal ranks, and ends in a crash for 3,000 of them.
    Here they are combined by pairs."""

    def convert(node: Node) -> Any:
        left = list(node.inputs)
        while len(left) > 1:
            pairs = zip(left[::2], left[1::2], strict=False)
            combined = [node.emit(function(*pair)) for pair in pairs]
            left = combined + left[2 * len(combined) :]
        return left[0]

    return convert


def _mean_of_all(node: Node) -> Any:
    total = _of_all(op.add)(node)
    return op.divide(total, relax.const(len(node.inputs), node.dtype(0)))


def _old_slice(node: Node) -> Any:
    """Before opset 10 the bounds are attributes, which TVM does not read."""
    if node.opset >= 10:
        return NotImplemented
    starts, ends = node.attrs["starts"], node.attrs["ends"]
    axes = node.attrs.get("axes") or list(range(len(starts)))
    bounds = [constant(values, "int64") for values in (starts, ends, axes)]
    return by_tvm(node, "Slice", [node.inputs[0], *bounds], {})


def _eye_like(node: Node) -> Any:
    number = node.attrs.get("dtype")
    dtype = node.dtype(0) if number is None else helper.tensor_dtype_to_np_dtype(number).name
    rows, columns = node.shape(0)
    return constant(np.eye(rows, columns, int(node.attrs.get("k", 0))), dtype)


def _reduced(node: Node) -> Any:
    """TVM gives whatever memory holds for a reduction of nothing, and has no limits of booleans."""
    if 0 in node.shape(0):
        raise NotImplementedError(f"{node.operator} of an empty tensor")
    if node.dtype(0) != "bool":
        return NotImplemented
    inputs = [node.emit(op.astype(node.inputs[0], "uint8")), *node.inputs[1:]]
    return op.astype(by_tvm(node, node.operator, inputs, node.attrs), "bool")


def _roi_align(node: Node) -> Any:
    """TVM takes the maximum of interpolated values, ONNX that of the weighted corners; TVM moves
    regions by half a pixel of the image, not of the features."""
    if node.attrs.get("mode", "avg") != "avg":
        raise NotImplementedError("RoiAlign with mode max")
    place = "half_pixel" if node.opset >= 16 else "output_half_pixel"
    place = node.attrs.get("coordinate_transformation_mode", place)
    scale = float(node.attrs.get("spatial_scale", 1.0))
    if place != "half_pixel" or scale == 1.0:
        return NotImplemented
    moved = node.emit(node.inputs[1] + constant(0.5 - 0.5 / scale, node.dtype(1)))
    return by_tvm(node, "RoiAlign", [node.inputs[0], moved, node.inputs[2]], node.attrs)


def _sign(node: Node) -> Any:
    """TVM makes 0 of NaN, which ONNX Runtime keeps but for float16, and none of unsigned numbers,
    since it wants -1."""
    x, dtype = node.inputs[0], node.dtype(0)
    one = constant(1, dtype)
    if dtype.startswith("uint"):
        return op.minimum(x, one)
    if dtype not in ("float32", "float64"):
        return NotImplemented
    zero = constant(0, dtype)
    # What is neither above nor below zero is zero, or not a number.
    other = node.emit(op.where(op.less(x, zero), constant(-1, dtype), x))
    return op.where(op.greater(x, zero), one, other)


def _space_to_depth(node: Node) -> Any:
    """TVM ignores the mode."""
    if node.attrs.get("mode", "DCR") == "DCR":
        return NotImplemented
    batch, channels, rows, columns = node.shape(0)
    size = int(node.attrs["blocksize"])
    cut = (batch, channels, rows // size, size, columns // size, size)
    parts = op.permute_dims(op.reshape(node.inputs[0], cut), [0, 1, 3, 5, 2, 4])
    return op.reshape(parts, (batch, channels * size * size, rows // size, columns // size))


def _split(node: Node) -> Any:
    sizes = node.attrs.get("split") if node.opset < 13 else node.constant(1)
    if sizes is not None and not np.all(sizes):
        raise NotImplementedError("Split into empty tensors")
    return NotImplemented


def _top_k(node: Node) -> Any:
    """What is not sorted comes in an order of ONNX Runtime's own."""
    if not node.attrs.get("sorted", 1):
        raise NotImplementedError("TopK in no order")
    count = node.attrs["k"] if node.opset < 10 else int(_constant(node, 1).reshape(-1)[0])
    axis, largest = int(node.attrs.get("axis", -1)), bool(node.attrs.get("largest", 1))
    if not count:
        raise NotImplementedError("TopK of no elements")
    both = node.emit(op.topk(node.inputs[0], count, axis, "both", largest, "int64"))
    return [node.emit(relax.TupleGetItem(both, i)) for i in range(2)]


def _one_hot(node: Node) -> Any:
    """TVM wants constant values, and gives nothing for indices from the end."""
    depth = int(_constant(node, 1).reshape(-1)[0])
    rank = len(node.shape(0))
    axis = int(node.attrs.get("axis", -1)) % (rank + 1)
    indices = node.emit(op.astype(node.inputs[0], "int64"))
    below = op.less(indices, constant(0, "int64"))
    indices = op.where(below, indices + constant(depth, "int64"), indices)
    places = np.arange(depth).reshape([-1 if i == axis else 1 for i in range(rank + 1)])
    hot = op.equal(node.emit(op.expand_dims(indices, axis)), constant(places, "int64"))
    off, on = (node.emit(op.strided_slice(node.inputs[2], [0], [i], [i + 1])) for i in range(2))
    return op.where(hot, on, off)


def _constant(node: Node, index: int) -> Any:
    value = node.constant(index)
    if value is None:
        raise NotImplementedError(f"{node.operator} without input {index}")
    return value


def _center_crop_pad(node: Node) -> Any:
    x, shape = node.inputs[0], node.shape(0)
    axes = [int(a) % len(shape) for a in node.attrs.get("axes") or range(len(shape))]
    starts, ends, widths = [], [], [0] * (2 * len(shape))
    for axis, wanted in zip(axes, _constant(node, 1).tolist(), strict=True):
        missing = wanted - shape[axis]
        start = max(-missing, 0) // 2
        starts.append(start)
        ends.append(start + min(wanted, shape[axis]))
        before = max(missing, 0) // 2
        widths[2 * axis : 2 * axis + 2] = [before, max(missing, 0) - before]
    x = node.emit(op.strided_slice(x, axes, starts, ends))
    return op.nn.pad(x, widths, "constant", 0.0) if any(widths) else x


def _reverse_sequence(node: Node) -> Any:
    lengths = _constant(node, 1)
    time, batch = node.attrs.get("time_axis", 0), node.attrs.get("batch_axis", 1)
    shape = node.shape(0)
    steps = np.arange(shape[time])
    flipped = np.where(steps < lengths[:, None], lengths[:, None] - 1 - steps, steps)
    sequences = np.arange(shape[batch])[:, None]
    # Rows of the first two axes, whichever of them is time.
    if batch == 0:
        rows = sequences * shape[time] + flipped
    else:
        rows = (flipped * shape[batch] + sequences).T
    flat = op.reshape(node.inputs[0], (shape[0] * shape[1], *shape[2:]))
    taken = op.take(node.emit(flat), constant(rows.reshape(-1), "int64"), 0, mode="clip")
    return op.reshape(taken, shape)


def _same(node: Node) -> Any:
    """An operator of ONNX Runtime that the standard has too."""
    return by_tvm(node, node.operator, node.inputs, node.attrs)


def _range(node: Node) -> Any:
    start, limit, delta = (_constant(node, i) for i in range(3))
    return constant(np.arange(start.item(), limit.item(), delta.item()), node.dtype(0))


_REDUCTIONS = [
    "ReduceL1",
    "ReduceL2",
    "ReduceLogSum",
    "ReduceLogSumExp",
    "ReduceMax",
    "ReduceMean",
    "ReduceMin",
    "ReduceProd",
    "ReduceSum",
    "ReduceSumSquare",
]

RULES: dict[tuple[str, str], Rule] = {
    ("", "BitShift"): _bit_shift,
    ("", "CenterCropPad"): _center_crop_pad,
    ("", "Constant"): _literal,
    ("", "CumProd"): _cumulative_product,
    ("", "Dropout"): _dropout,
    ("", "EyeLike"): _eye_like,
    ("", "IsInf"): _is_inf,
    ("", "Max"): _of_all(op.maximum),
    ("", "Mean"): _mean_of_all,
    ("", "Min"): _of_all(op.minimum),
    ("", "Mod"): _mod,
    ("", "OneHot"): _one_hot,
    ("", "Pow"): _pow,
    ("", "PRelu"): _prelu,
    ("", "ReverseSequence"): _reverse_sequence,
    ("", "RoiAlign"): _roi_align,
    ("", "Sign"): _sign,
    ("", "SpaceToDepth"): _space_to_depth,
    ("", "Slice"): _old_slice,
    ("", "Split"): _split,
    ("", "Sum"): _of_all(op.add),
    ("", "TopK"): _top_k,
    ("com.microsoft", "GatherND"): _same,
    ("com.microsoft", "Range"): _range,
    ("com.microsoft", "Trilu"): _same,
    **{("", operator): _reduced for operator in _REDUCTIONS},
    ("", "ReduceMean"): _mean,
}

#: Operators that stay in ONNX Runtime, with the reason.
UNSOUND: dict[tuple[str, str], str] = {
    ("", "NonMaxSuppression"): "TVM gives a fixed number of rows and drops overlaps at the limit",
    ("", "Unique"): "the number of its outputs depends on the data",
    ("", "NonZero"): "the number of its outputs depends on the data",
    ("", "Compress"): "the number of its outputs depends on the data",
}
