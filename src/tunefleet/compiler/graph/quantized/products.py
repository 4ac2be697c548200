"""Products of quantised tensors: 8-bit integers multiplied, summed in int32.

With zero points a and b the sum of (x - a)(w - b) is that of xw, less a times the sums of w, less b
times the sums of x, plus their product. All but the first is constant where the weights are and b
is 0, and b can be made 0 for nearly all weights. It is exact for less than 2^16 terms.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np

from tunefleet.compiler.graph.constants import constant, value_of
from tunefleet.compiler.graph.folding import ints
from tunefleet.compiler.graph.quantized.affine import (
    EIGHT_BITS,
    Affine,
    Array,
    CallWriter,
    is_zero,
    parameter,
    relax,
    spread,
)

op = relax.op

#: Terms of a sum of products of 8 bits that int32 holds whatever they are.
_MOST_TERMS = 1 << 16


def matmul(writer: CallWriter, left: Affine, right: Affine, *, unsigned: bool) -> Affine | None:
    """The product of two tensors as sums in int32; None where it is not one of 8-bit integers.

    Of `right`, a scale by columns is allowed. `unsigned`: the left side is to be uint8, else int8;
    the right side is int8 in any case, as instructions for such products have it.
    """
    if len(left.shape) < 2 or len(right.shape) < 2 or left.scale.ndim:
        return None
    if not {left.dtype, right.dtype} <= EIGHT_BITS or left.shape[-1] > _MOST_TERMS:
        return None
    if any(extent != 1 for extent in right.scale.shape[:-1]):
        return None
    left = writer.with_sign(left, "uint8" if unsigned else "int8")
    right = _signed_weight(writer, right)
    sums = writer.emit(op.matmul(left.q, right.q, "int32"))
    if not is_zero(left.zero):
        of_columns = _summed(writer, right.q, -2)
        sums = _less(writer, sums, left.zero, of_columns)
    if not is_zero(right.zero):
        of_rows = _summed(writer, left.q, -1)
        sums = _less(writer, sums, right.zero, of_rows)
    if not is_zero(left.zero) and not is_zero(right.zero):
        sums = _with_both(writer, sums, left.zero, right.zero, left.shape[-1])
    scale, factor = left.scale * right.scale, writer.factor(left, right)
    scale = spread(scale, int(sums.ty.ndim), -1)
    return Affine(sums, scale, np.zeros((), "int32"), factor=factor)


def _signed_weight(writer: CallWriter, weight: Affine, *, wide: bool = False) -> Affine:
    """The weight as int8, around 0 where it fits there, or, if it may be `wide`, as int16 around 0:
    no instruction takes the weights of a depthwise convolution as bytes."""
    values = value_of(weight.q)
    if values is None or not isinstance(weight.zero, np.ndarray):
        return writer.with_sign(weight, "int8")
    centered = values.astype("int32") - weight.zero
    no_zero = np.zeros((), "int32")
    if centered.min() >= -128 and centered.max() <= 127:
        q = writer.builder.normalize(constant(centered.astype("int8")))
        return replace(weight, q=q, zero=no_zero, offset=0)
    if wide:
        q = writer.builder.normalize(constant(centered.astype("int16")))
        return replace(weight, q=q, zero=no_zero, offset=0)
    if weight.dtype == "int8":
        return weight
    q = writer.builder.normalize(constant((values.astype("int32") - 128).astype("int8")))
    return replace(weight, q=q, zero=weight.zero - np.int32(128), offset=0)


def _summed(writer: CallWriter, q: Any, axis: int) -> Any:
    """Sums along an axis, which stays with the extent 1."""
    values = value_of(q)
    if values is not None:
        known = constant(values.sum(axis, dtype="int32", keepdims=True))
        return writer.builder.normalize(known)
    wide = writer.as_type(q, "int32")
    return writer.emit(op.sum(wide, [axis % len(q.ty.shape.values)], keepdims=True))


def _less(writer: CallWriter, sums: Any, zero: Any, others: Any) -> Any:
    """`sums` less a zero point times the sums of the other side."""
    inline = value_of(others) is not None or not isinstance(zero, np.ndarray)
    by = writer.zero(zero) if inline else parameter(zero, others, "int32")
    product = writer.emit(op.multiply(others, by))
    values = value_of(product)
    if values is not None:
        return writer.emit(op.add(sums, constant(-values)))
    return writer.emit(op.subtract(sums, product))


def _with_both(writer: CallWriter, sums: Any, left: Any, right: Any, terms: Any) -> Any:
    """`sums` and the product of both zero points, so many times (a number or int32 that
    broadcast)."""
    both = writer.emit(op.multiply(writer.zero(left), writer.zero(right)))
    both = writer.emit(op.multiply(both, constant(np.asarray(terms, "int32"))))
    values = value_of(both)
    return writer.emit(op.add(sums, both if values is None else parameter(values, sums, "int32")))


def convolution(
    writer: CallWriter, call: Any, data: Affine, weight: Affine, *, unsigned: bool
) -> Affine | None:
    """A 2D convolution (NCHW, OIHW, constant weight) as sums in int32; None where it is not one of
    8-bit integers. Of the weight, a scale and a zero point by output channels are allowed."""
    values = value_of(weight.q)
    if values is None or data.scale.ndim or not _is_convolution(call, data, weight):
        return None
    data = writer.with_sign(data, "uint8" if unsigned else "int8")
    weight = _signed_weight(writer, weight, wide=_is_depthwise(call, weight))
    kernel, padding = value_of(weight.q), ints(call.attrs.padding)
    assert kernel is not None
    if any(padding) and not is_zero(data.zero) and isinstance(data.zero, np.ndarray):
        # What is beyond the border is the number 0, which is the zero point.
        data, padding = data.with_q(_padded(writer, data, padding)), [0, 0, 0, 0]
    if not is_zero(weight.zero) and int(call.attrs.groups) != 1:
        return None
    sums = _convolved(writer, call, data.q, weight.q, padding)
    if not is_zero(data.zero):
        met = constant(_met(call, kernel, data.shape, padding))
        sums = _less(writer, sums, data.zero, writer.builder.normalize(met))
    if not is_zero(weight.zero):
        zero, ones = by_channels(weight.zero), np.ones((1, *kernel.shape[1:]), "int8")
        one = writer.builder.normalize(constant(ones))
        of_pixels = _convolved(writer, call, data.q, one, padding)
        sums = _less(writer, sums, zero, of_pixels)
        if not is_zero(data.zero):
            terms = _met(call, ones, data.shape, padding)
            sums = _with_both(writer, sums, data.zero, zero, terms)
    scale, factor = by_channels(data.scale * weight.scale), writer.factor(data, weight)
    return Affine(sums, scale, np.zeros((), "int32"), factor=factor)


def _is_depthwise(call: Any, weight: Affine) -> bool:
    return int(call.attrs.groups) == weight.shape[0] > 1


def by_channels(values: Array) -> Array:
    """Numbers of the output channels of an OIHW weight, as they broadcast to NCHW."""
    return values.reshape(1, -1, 1, 1) if values.size > 1 else values.reshape(())


def _is_convolution(call: Any, data: Affine, weight: Affine) -> bool:
    layouts = (str(call.attrs.data_layout), str(call.attrs.kernel_layout))
    outputs, *others = weight.shape
    return (
        layouts == ("NCHW", "OIHW")
        and {data.dtype, weight.dtype} <= EIGHT_BITS
        and math.prod(others) <= _MOST_TERMS
        and isinstance(weight.zero, np.ndarray)
        and all(values.shape in ((), (outputs, 1, 1, 1)) for values in (weight.scale, weight.zero))
    )


def _padded(writer: CallWriter, data: Affine, padding: list[int]) -> Any:
    """The integers of NCHW with their zero point around them, padded as NHWC: TVM converts no
    layout through a pad, and the transposes cancel those that it puts around the convolution."""
    top, left, bottom, right = padding
    widths = [0, 0, top, bottom, left, right, 0, 0]
    turned = writer.emit(op.permute_dims(data.q, [0, 2, 3, 1]))
    padded = writer.emit(op.nn.pad(turned, widths, "constant", float(data.zero)))
    return writer.emit(op.permute_dims(padded, [0, 3, 1, 2]))


def _convolved(writer: CallWriter, call: Any, data: Any, weight: Any, padding: list[int]) -> Any:
    sums = op.nn.conv2d(
        data,
        weight,
        strides=ints(call.attrs.strides),
        padding=padding,
        dilation=ints(call.attrs.dilation),
        groups=int(call.attrs.groups),
        data_layout="NCHW",
        kernel_layout="OIHW",
        out_dtype="int32",
    )
    return writer.emit(sums)


def _met(call: Any, kernel: Array, shape: list[int], padding: list[int]) -> Array:
    """Sums of the weights of each output channel, [1, O, 1, 1] where there is no padding, else of
    those that meet a pixel inside, [1, O, H, W], in int32."""
    if not any(padding):
        sums: Array = kernel.sum((1, 2, 3), dtype="int32")
        return sums.reshape(1, -1, 1, 1)
    top, left, bottom, right = padding
    sides = zip(
        shape[2:],
        kernel.shape[2:],
        ints(call.attrs.strides),
        ints(call.attrs.dilation),
        ((top, bottom), (left, right)),
        strict=True,
    )
    rows, columns = (_inside(*side) for side in sides)
    of_taps = kernel.sum(1, dtype="int32")
    met = np.einsum("yr,xc,orc->oyx", rows, columns, of_taps)
    return np.ascontiguousarray(met[None], dtype="int32")


def _inside(extent: int, taps: int, stride: int, dilation: int, padding: tuple[int, int]) -> Array:
    """[outputs, taps]: 1 where a tap of the kernel meets a pixel inside, along one side."""
    outputs = (extent + sum(padding) - (taps - 1) * dilation - 1) // stride + 1
    place = np.arange(outputs)[:, None] * stride + np.arange(taps) * dilation - padding[0]
    inside: Array = (place >= 0) & (place < extent)
    return inside.astype("int32")
