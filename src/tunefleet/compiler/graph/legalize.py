"""Compute definitions for operators that TVM's own leave slow, or that it has none for."""

from __future__ import annotations

import math
from functools import partial
from typing import Any

from tunefleet.compiler.graph import ordering, scans, statistics, winograd
from tunefleet.compiler.graph.folding import ints
from tunefleet.compiler.graph.loops import for_target, sum_type, with_roots
from tunefleet.compiler.graph.scattering import scatter_elements
from tunefleet.compiler.graph.softmax import softmax
from tunefleet.compiler.toolchain import load_tvm
from tunefleet.compiler.toolchain.bfloat16 import BFLOAT16, rounded, widened
from tunefleet.compiler.toolchain.programs import FUSABLE

tvm = load_tvm()
relax, te, topi = tvm.relax, tvm.te, tvm.topi

#: Tensors that one program concatenates.
_JOINED_AT_ONCE = 64


def legalize(*, fewer_products: bool = False) -> Any:
    """The LegalizeOps pass with definitions of ours; with `fewer_products`, convolutions for which
    that pays are Winograd's."""
    definitions = {
        "relax.argsort": ordering.argsort,
        "relax.astype": _cast,
        "relax.concat": _concat,
        "relax.cumprod": scans.cumprod,
        "relax.cumsum": scans.cumsum,
        "relax.divide": partial(_divided, "divide"),
        "relax.equal": partial(_compared, "equal"),
        "relax.floor_divide": partial(_divided, "floor_divide"),
        "relax.floor_mod": partial(_divided, "floor_mod"),
        "relax.max": _max,
        "relax.maximum": partial(_of_two, "maximum"),
        "relax.min": _min,
        "relax.minimum": partial(_of_two, "minimum"),
        "relax.mod": partial(_divided, "mod"),
        "relax.nn.conv2d_transpose": _conv2d_transpose,
        "relax.nn.group_norm": statistics.group_norm,
        "relax.nn.instance_norm": statistics.instance_norm,
        "relax.nn.layer_norm": statistics.layer_norm,
        "relax.nn.softmax": softmax,
        "relax.not_equal": partial(_compared, "not_equal"),
        "relax.scatter_elements": scatter_elements,
        "relax.sort": ordering.sort,
        "relax.std": statistics.deviation,
        "relax.topk": ordering.topk,
        "relax.variance": statistics.variance,
    }
    if fewer_products:
        definitions["relax.nn.conv2d"] = _conv2d_winograd
    passes = [tvm.relax.transform.LegalizeOps(definitions), for_target(), with_roots()]
    return tvm.transform.Sequential(passes)


def _cast(builder: Any, call: Any) -> Any:
    """A cast to bfloat16 and back rounds: TVM computes bfloat16 in float32, and would leave out
    both. What lies between them is in float32 here."""
    (x,), dtype = call.args, str(call.attrs.dtype)
    if str(x.ty.dtype) != "float32" or dtype not in ("float32", BFLOAT16):
        return tvm.ir.Op.get("relax.astype").get_attr("FLegalize")(builder, call)
    return builder.call_te(_rounded, x, primfunc_name_hint="round") if dtype == BFLOAT16 else x


def _concat(builder: Any, call: Any) -> Any:
    """Many tensors in groups: TVM's definition nests a condition for each of them, and takes a time
    that grows with their square (0.5 s for 300, a crash for 3,000)."""
    joined = call.args[0]
    while len(joined.ty.fields) > _JOINED_AT_ONCE:
        fields = _fields(builder, joined)
        starts = range(0, len(fields), _JOINED_AT_ONCE)
        groups = [relax.Tuple(fields[start : start + _JOINED_AT_ONCE]) for start in starts]
        parts = [builder.emit(_joined(builder, group, call)) for group in groups]
        joined = builder.normalize(relax.Tuple(parts))
    return _joined(builder, joined, call)


def _joined(builder: Any, fields: Any, call: Any) -> Any:
    call = relax.Call(call.op, [fields], call.attrs, call.ty_args)
    return tvm.ir.Op.get("relax.concat").get_attr("FLegalize")(builder, builder.normalize(call))


def _fields(builder: Any, joined: Any) -> list[Any]:
    """The tensors of a tuple."""
    while isinstance(joined, relax.Var):
        binding = builder.lookup_binding(joined)
        if not isinstance(binding, relax.Tuple | relax.Var):
            break
        joined = binding
    if isinstance(joined, relax.Tuple):
        return list(joined.fields)
    return [builder.emit(relax.TupleGetItem(joined, i)) for i in range(len(joined.ty.fields))]


def _rounded(x: Any) -> Any:
    def compute(*place: Any) -> Any:
        return widened(rounded(x(*place)), BFLOAT16, "float32")

    return te.compute(x.shape, compute, name="rounded")


def _compared(name: str, builder: Any, call: Any) -> Any:
    """TVM compares truths as if they were floats, which LLVM refuses; to TVM and its LLVM code a
    number that is none does not differ from others."""
    left, right = call.args
    dtype = str(left.ty.dtype)

    def of_truths(left: Any, right: Any) -> Any:
        differs = topi.logical_xor(left, right)
        return differs if name == "not_equal" else topi.logical_not(differs)

    def differing(left: Any, right: Any) -> Any:
        unknown = (topi.isnan(x.astype(sum_type(dtype))) for x in (left, right))
        return topi.logical_or(topi.not_equal(left, right), topi.logical_or(*unknown))

    if dtype == "bool":
        return builder.call_te(of_truths, left, right, primfunc_name_hint=name)
    if name == "not_equal" and dtype.startswith("float"):
        return builder.call_te(differing, left, right, primfunc_name_hint=name)
    return tvm.ir.Op.get(f"relax.{name}").get_attr("FLegalize")(builder, call)


def _divided(name: str, builder: Any, call: Any) -> Any:
    """An integer divided by zero is itself: the processor would end the process, also where a
    candidate is measured with numbers that nobody chose."""
    left, right = call.args
    if "int" not in str(left.ty.dtype) or isinstance(right, tvm.ir.GenericConst):
        return tvm.ir.Op.get(f"relax.{name}").get_attr("FLegalize")(builder, call)

    def compute(left: Any, right: Any) -> Any:
        def divisor(*place: Any) -> Any:
            number = right(*place)
            one = tvm.tirx.const(1, right.dtype)
            return tvm.tirx.Select(number == 0, one, number)

        return getattr(topi, name)(left, te.compute(right.shape, divisor, name="divisor"))

    return builder.call_te(compute, left, right, primfunc_name_hint=name)


def _of_two(name: str, builder: Any, call: Any) -> Any:
    """Of two tensors; what is not a number where either has it. With one constant number it is that
    by the order of the operands (`toolchain/unknowns.py`)."""
    left, right = call.args
    constant = any(
        isinstance(each, tvm.ir.GenericConst) and not each.value.shape for each in (left, right)
    )
    if constant or not str(left.ty.dtype).startswith("float"):
        return tvm.ir.Op.get(f"relax.{name}").get_attr("FLegalize")(builder, call)

    def compute(left: Any, right: Any) -> Any:
        return topi.where(topi.isnan(left), left, getattr(topi, name)(left, right))

    return builder.call_te(compute, left, right, primfunc_name_hint=name)


def _max(builder: Any, call: Any) -> Any:
    return _extreme(builder, call, "max", tvm.tirx.max, -math.inf)


def _min(builder: Any, call: Any) -> Any:
    return _extreme(builder, call, "min", tvm.tirx.min, math.inf)


def _extreme(builder: Any, call: Any, name: str, combine: Any, start: float) -> Any:
    """A reduction that starts from infinity: from its largest number, as TVM does, the smallest of
    nothing but infinities would be that."""
    (x,), attrs = call.args, call.attrs
    if not str(x.ty.dtype).startswith("float"):
        return builder.call_te(
            getattr(topi, name), x, attrs.axis, attrs.keepdims, primfunc_name_hint=name
        )
    shape = ints(x.ty.shape.values)
    axes = range(len(shape)) if attrs.axis is None else [a % len(shape) for a in ints(attrs.axis)]
    reducer = te.comm_reducer(
        lambda a, b: combine(a, b), lambda dtype: tvm.tirx.const(start, dtype), name
    )

    def compute(x: Any) -> Any:
        reduced = {axis: te.reduce_axis((0, shape[axis]), f"k{axis}") for axis in sorted(set(axes))}
        kept = [axis for axis in range(len(shape)) if attrs.keepdims or axis not in reduced]

        def element(*place: Any) -> Any:
            at = dict(zip(kept, place, strict=True)) | reduced
            element = x[tuple(at[axis] for axis in range(len(shape)))]
            return reducer(element, axis=list(reduced.values()))

        after = [1 if axis in reduced else shape[axis] for axis in kept]
        return te.compute(after, element, name=f"x_{name}")

    return builder.call_te(compute, x, primfunc_name_hint=name)


def _conv2d_winograd(builder: Any, call: Any) -> Any:
    if not winograd.pays(call):
        return tvm.ir.Op.get("relax.nn.conv2d").get_attr("FLegalize")(builder, call)
    data, weight = call.args
    return builder.call_te(
        winograd.convolution,
        data,
        relax.const(winograd.transformed(weight.value.numpy())),
        ints(call.attrs.padding),
        primfunc_name_hint="conv2d",
        # What follows is fused into it, as into any convolution.
        primfunc_attrs={"op_pattern": FUSABLE},
    )


def _conv2d_transpose(builder: Any, call: Any) -> Any:
    """By phases where it can be: TVM's definition multiplies by the zeros between the pixels,
    four times the work at stride 2."""
    data, weight = call.args
    if not _has_phases(call):
        return builder.call_te(_by_dilation(call), data, weight, primfunc_name_hint="deconv2d")
    strides, padding = ints(call.attrs.strides), ints(call.attrs.padding)[:2]
    size = tuple(ints(call.ty.shape.values)[1:3])
    # Depends on the weight alone: folded once, not computed at each inference.
    phases = builder.emit_te(_phases, weight, strides, padding, primfunc_name_hint="phases")
    return builder.call_te(_by_phase, data, phases, size, padding, primfunc_name_hint="deconv2d")


def _has_phases(call: Any) -> bool:
    attrs = call.attrs
    if (str(attrs.data_layout), str(attrs.kernel_layout)) != ("NHWC", "HWIO"):
        return False
    size, strides = ints(call.ty.shape.values)[1:3], ints(attrs.strides)
    return (
        int(attrs.groups) == 1
        and set(ints(attrs.dilation)) == {1}
        and str(call.ty.dtype) == str(call.args[0].ty.dtype)
        and all(extent % stride == 0 for extent, stride in zip(size, strides, strict=True))
    )


def _by_dilation(call: Any) -> Any:
    """TVM's definition, between transposes."""
    attrs, dtype = call.attrs, str(call.ty.dtype)
    strides, padding, dilation = map(ints, (attrs.strides, attrs.padding, attrs.dilation))
    layout, kernel_layout = str(attrs.data_layout), str(attrs.kernel_layout)

    def compute(data: Any, weight: Any) -> Any:
        kernel = topi.transpose(weight, [kernel_layout.index(axis) for axis in "IOHW"])
        kernel = topi.nn.dilate(kernel, [1, 1, *dilation], name="kernel_dilate")
        output = topi.nn.group_conv2d_transpose_nchw(
            topi.transpose(data, [layout.index(axis) for axis in "NCHW"]),
            kernel,
            strides,
            padding,
            dtype,
            ints(attrs.output_padding),
            int(attrs.groups),
        )
        return topi.transpose(output, ["NCHW".index(axis) for axis in layout])

    return compute


def _phases(weight: Any, strides: list[int], padding: list[int]) -> Any:
    """HWIO -> (row phase, column phase, taps, taps, I, O): the taps that meet a pixel.

    Output row h = stride * q + a takes the kernel's rows (a + padding) % stride + stride * r.
    """
    rows, columns, inputs, outputs = ints(weight.shape)
    zero = tvm.tirx.const(0, weight.dtype)

    def tap(a: Any, b: Any, r: Any, c: Any, i: Any, o: Any) -> Any:
        row = (a + padding[0]) % strides[0] + strides[0] * r
        column = (b + padding[1]) % strides[1] + strides[1] * c
        inside = tvm.tirx.all(row < rows, column < columns)
        return tvm.tirx.if_then_else(inside, weight[row, column, i, o], zero)

    taps = (-(-rows // strides[0]), -(-columns // strides[1]))
    return te.compute((*strides, *taps, inputs, outputs), tap, name="phases")


def _by_phase(data: Any, phases: Any, size: tuple[int, int], padding: list[int]) -> Any:
    """Each phase of the output is a convolution of the input with its own taps."""
    batch, *extents, inputs = ints(data.shape)
    *strides, rows, columns, _, outputs = ints(phases.shape)
    counts = [extent // stride for extent, stride in zip(size, strides, strict=True)]
    # The rows q + (a + padding) // stride - r that are looked at, from the first to the last.
    after = [
        count + (stride - 1 + pad) // stride - extent
        for count, stride, pad, extent in zip(counts, strides, padding, extents, strict=True)
    ]
    before = [rows - 1, columns - 1]
    padded = topi.nn.pad(data, [0, *before, 0], [0, *(max(0, a) for a in after), 0], name="padded")
    r, c = te.reduce_axis((0, rows), "r"), te.reduce_axis((0, columns), "c")
    i = te.reduce_axis((0, inputs), "i")

    def pixel(n: Any, p: Any, a: Any, q: Any, b: Any, o: Any) -> Any:
        row = p + _later(a, padding[0], strides[0]) + before[0] - r
        column = q + _later(b, padding[1], strides[1]) + before[1] - c
        return te.sum(padded[n, row, column, i] * phases[a, b, r, c, i, o], axis=[r, c, i])

    shape = (batch, counts[0], strides[0], counts[1], strides[1], outputs)
    split = te.compute(shape, pixel, name="deconv2d")
    return topi.reshape(split, (batch, *size, outputs))


def _later(phase: Any, padding: int, stride: int) -> Any:
    """`(phase + padding) // stride` without a division: of loops over phases TVM takes the region
    that such an index reads to be the same for each, and computes too little of the data."""
    whole, more = divmod(padding, stride)
    if stride == 2:
        return whole + phase * more
    return whole + tvm.tirx.max(0, tvm.tirx.min(1, phase + (more + 1 - stride)))
