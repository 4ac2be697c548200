"""Compute definitions for operators that TVM's own leave slow."""

from __future__ import annotations

from typing import Any

from tunefleet.compiler.toolchain import load_tvm

tvm = load_tvm()
te, topi = tvm.te, tvm.topi


def legalize() -> Any:
    """The LegalizeOps pass with the definitions of this module."""
    return tvm.relax.transform.LegalizeOps({"relax.nn.conv2d_transpose": _conv2d_transpose})


def _conv2d_transpose(builder: Any, call: Any) -> Any:
    """NHWC; TVM's multiplies by the zeros between the pixels, 4 times the work at stride 2."""
    attrs = call.attrs
    strides, padding = _ints(attrs.strides), _ints(attrs.padding)
    data, weight = call.args
    height, width = _ints(call.ty.shape.values)[1:3]
    regular = (
        str(attrs.kernel_layout) == "HWIO"
        and int(attrs.groups) == 1
        and set(_ints(attrs.dilation)) == {1}
        and height % strides[0] == width % strides[1] == 0
    )
    if not regular:
        return builder.call_te(_by_dilation(attrs), data, weight, primfunc_name_hint="deconv2d")
    # Depends on the weight alone: folded once, not computed at each inference.
    phases = builder.emit_te(_phases, weight, strides, padding[:2], primfunc_name_hint="phases")
    return builder.call_te(
        _by_phase, data, phases, (height, width), padding[:2], primfunc_name_hint="deconv2d"
    )


def _ints(values: Any) -> list[int]:
    return [int(v) for v in values]


def _by_dilation(attrs: Any) -> Any:
    """TVM's definition between transposes."""
    strides, padding, dilation = map(_ints, (attrs.strides, attrs.padding, attrs.dilation))
    layout = str(attrs.kernel_layout)

    def compute(data: Any, weight: Any) -> Any:
        kernel = topi.transpose(weight, [layout.index(axis) for axis in "IOHW"])
        kernel = topi.nn.dilate(kernel, [1, 1, *dilation], name="kernel_dilate")
        output = topi.nn.group_conv2d_transpose_nchw(
            topi.transpose(data, [0, 3, 1, 2]),
            kernel,
            strides,
            padding,
            data.dtype,
            _ints(attrs.output_padding),
            int(attrs.groups),
        )
        return topi.transpose(output, [0, 2, 3, 1])

    return compute


def _phases(weight: Any, strides: list[int], padding: list[int]) -> Any:
    """HWIO -> (row phase, column phase, taps, taps, I, O): the taps that meet a pixel.

    Output row h = stride * q + a takes the kernel's rows (a + padding) % stride + stride * r.
    """
    rows, columns, inputs, outputs = (int(extent) for extent in weight.shape)

    def tap(a: Any, b: Any, r: Any, c: Any, i: Any, o: Any) -> Any:
        row = (a + padding[0]) % strides[0] + strides[0] * r
        column = (b + padding[1]) % strides[1] + strides[1] * c
        inside = tvm.tirx.all(row < rows, column < columns)
        return tvm.tirx.if_then_else(inside, weight[row, column, i, o], 0.0)

    taps = (-(-rows // strides[0]), -(-columns // strides[1]))
    return te.compute((*strides, *taps, inputs, outputs), tap, name="phases")


def _by_phase(data: Any, phases: Any, size: tuple[int, int], padding: list[int]) -> Any:
    """Each phase of the output is a convolution of the input with its own taps."""
    batch, _, _, inputs = (int(extent) for extent in data.shape)
    *strides, rows, columns, _, outputs = (int(extent) for extent in phases.shape)
    counts = [extent // stride for extent, stride in zip(size, strides, strict=True)]
    # The rows q + (a + padding) // stride - r that are looked at, from the first to the last.
    after = [
        count + (stride - 1 + pad) // stride - int(extent)
        for count, stride, pad, extent in zip(
            counts, strides, padding, data.shape[1:3], strict=True
        )
    ]
    before = [rows - 1, columns - 1]
    padded = topi.nn.pad(data, [0, *before, 0], [0, *(max(0, a) for a in after), 0], name="padded")
    r, c = te.reduce_axis((0, rows), "r"), te.reduce_axis((0, columns), "c")
    i = te.reduce_axis((0, inputs), "i")

    def pixel(n: Any, p: Any, a: Any, q: Any, b: Any, o: Any) -> Any:
        row = p + (a + padding[0]) // strides[0] + before[0] - r
        column = q + (b + padding[1]) // strides[1] + before[1] - c
        return te.sum(padded[n, row, column, i] * phases[a, b, r, c, i, o], axis=[r, c, i])

    shape = (batch, counts[0], strides[0], counts[1], strides[1], outputs)
    split = te.compute(shape, pixel, name="deconv2d")
    return topi.reshape(split, (batch, *size, outputs))
