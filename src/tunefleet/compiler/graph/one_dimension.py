"""Convolutions along one axis as convolutions of images that are one pixel high.

What is known of images then holds for them too: layouts, scales and pads that are folded into
weights, products of integers, tiles, the phases of transposed convolutions. What stands between
two of them is written of such images as well, so that nothing separates them. TensorFlow writes
its own layers in this way, with the extra axis taken out for each bias and rectifier: there it
stays.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tvm_ffi

from tunefleet.compiler.graph.constants import constant, value_of
from tunefleet.compiler.graph.folding import ints
from tunefleet.compiler.graph.rewriting import bindings_of, op_name, rewritten
from tunefleet.compiler.toolchain import load_tvm

tvm = load_tvm()
relax = tvm.relax
op = relax.op

_CONVOLUTIONS = frozenset({"relax.nn.conv1d", "relax.nn.conv1d_transpose"})
_IMAGES = frozenset({"relax.nn.conv2d", "relax.nn.conv2d_transpose"})

#: Where images that are one pixel high have that axis: NCW becomes NCHW.
_HEIGHT = 2

#: What computes each element from those in the same place, whatever the rank.
_ELEMENTWISE = frozenset(
    f"relax.{name}"
    for name in (
        "abs", "add", "astype", "ceil", "clip", "cos", "divide", "erf", "exp", "floor", "greater",
        "greater_equal", "less", "less_equal", "log", "maximum", "minimum", "multiply", "negative",
        "nn.gelu", "nn.gelu_tanh", "nn.leakyrelu", "nn.relu", "nn.relu6", "nn.silu", "nn.softplus",
        "power", "round", "rsqrt", "sigmoid", "sign", "sin", "sqrt", "square", "subtract", "tanh",
        "where",
    )
)  # fmt: skip


def with_images(mod: Any) -> Any:
    """`mod` (Relax, one function `main`) with convolutions of images alone; as it is where it has
    none along one axis."""
    bindings = bindings_of(mod["main"])
    if bindings is None:
        return mod
    names = {op_name(binding.value) for binding in bindings}
    if not names & _CONVOLUTIONS and not (names & _IMAGES and "relax.squeeze" in names):
        return mod
    rewrite = _Rewrite()
    made = rewritten(mod, rewrite.builder, bindings, rewrite.visit, rewrite.plain)
    return relax.transform.DeadCodeElimination()(made)


def _rank(expr: Any) -> int:
    is_tensor = isinstance(expr, relax.Expr) and isinstance(expr.ty, relax.TensorType)
    return int(expr.ty.ndim) if is_tensor else -1


class _Rewrite:
    """What each variable of the old function is in the new one: an expression, an image (the same
    with one more axis, of extent 1), or both; a tuple of them."""

    def __init__(self) -> None:
        self.builder = relax.BlockBuilder()
        self._plain: dict[Any, Any] = {}
        self._images: dict[Any, tuple[Any, int]] = {}
        self._tuples: dict[Any, tuple[Any, int]] = {}
        self._calls: dict[Any, Any] = {}

    def visit(self, var: Any, value: Any) -> None:
        self._calls[var] = value
        name = op_name(value)
        if isinstance(value, relax.TupleGetItem) and value.tuple_value in self._tuples:
            fields, axis = self._tuples[value.tuple_value]
            field = self.builder.emit(relax.TupleGetItem(fields, int(value.index)))
            if _rank(value) == 3:
                self._images[var] = (field, axis)
            else:  # what a normalisation knows of channels
                self._plain[var] = field
            return
        made = _RULES[name](self, value) if name in _RULES else None
        if made is None:
            plain = self.plain(value)
            is_known = isinstance(plain, (relax.Var, tvm.ir.GenericConst, relax.Tuple))
            self._plain[var] = plain if is_known else self.builder.emit(plain)
            return
        image, added = made
        if added is None:
            self._plain[var] = image
        elif isinstance(value.ty, relax.TupleType):
            self._tuples[var] = (image, added)
        else:
            self._images[var] = (image, added)

    def plain(self, expr: Any) -> Any:
        """An expression of the new function, of the rank that it had."""
        if isinstance(expr, relax.Var):
            if expr not in self._plain:
                self._plain[expr] = self._without_height(expr)
            return self._plain[expr]
        if isinstance(expr, relax.Tuple):
            return relax.Tuple([self.plain(field) for field in expr.fields])
        if isinstance(expr, relax.TupleGetItem):
            return relax.TupleGetItem(self.plain(expr.tuple_value), int(expr.index))
        if isinstance(expr, relax.Call):
            args = [self.plain(arg) for arg in expr.args]
            return relax.Call(expr.op, args, expr.attrs, expr.ty_args)
        return expr

    def _without_height(self, var: Any) -> Any:
        emit = self.builder.emit
        if var in self._images:
            image, axis = self._images[var]
            return emit(op.squeeze(image, [axis]))
        if var in self._tuples:
            fields, axis = self._tuples[var]
            each = [emit(relax.TupleGetItem(fields, index)) for index in range(len(var.ty.fields))]
            old = zip(each, var.ty.fields, strict=True)
            return relax.Tuple([
                emit(op.squeeze(field, [axis])) if ty.ndim == 3 else field for field, ty in old
            ])  # fmt: skip
        return var

    def image_of(self, expr: Any) -> tuple[Any, int] | None:
        """What a tensor is as an image already, and which axis is more there."""
        return self._images.get(expr) if isinstance(expr, relax.Var) else None

    def raised(self, expr: Any, axis: int) -> Any:
        """An operand of rank 3 as an image with the additional axis at `axis`."""
        known = self.image_of(expr)
        if known is not None and known[1] == axis:
            return known[0]
        value = value_of(expr)
        if value is not None:
            return constant(value.reshape(_inserted(list(value.shape), axis, 1)))
        call: Any = self._calls.get(expr) if known is None else None
        name = op_name(call)
        if name == "relax.permute_dims" and call.attrs.axes is not None:
            # Beside the transposition that a layout needs, which it may join.
            flat = self.builder.emit(op.expand_dims(self.plain(call.args[0]), [3]))
            axes = _inserted(ints(call.attrs.axes), axis, 3)
            image = self.builder.emit(op.permute_dims(flat, axes))
        elif name in ("relax.dequantize", "relax.astype", "relax.subtract"):
            # Such as weights in integers, which stay constants in this way.
            image = self.builder.emit(_quantization(self, call, axis))
        else:
            image = self.builder.emit(op.expand_dims(self.plain(expr), [axis]))
        if isinstance(expr, relax.Var) and known is None:
            self._images[expr] = (image, axis)
        return image

    def spread(self, expr: Any, axis: int) -> Any:
        """An operand of any rank up to 3 as it is spread over images."""
        rank = _rank(expr)
        if rank == 3:
            return self.raised(expr, axis)
        at = axis - (3 - rank)
        if rank < 0 or at <= 0:
            return self.plain(expr)
        value = value_of(expr)
        if value is not None:
            return constant(value.reshape(_inserted(list(value.shape), at, 1)))
        return self.builder.emit(op.expand_dims(self.plain(expr), [at]))

    def is_of_image(self, expr: Any) -> bool:
        """Whether this is a convolution of images, or its transposition."""
        call: Any = self._calls.get(expr) if isinstance(expr, relax.Var) else None
        if op_name(call) == "relax.permute_dims":
            return self.is_of_image(call.args[0])
        return op_name(call) in _IMAGES


#: An expression of the new function and which axis is more in it; None for none.
Made = tuple[Any, int | None]


def _inserted(values: list[int], at: int, value: int) -> list[int]:
    return [*values[:at], value, *values[at:]]


def _at(axis: int, added: int, rank: int = 3) -> int:
    """Where an axis of a tensor is in its image."""
    axis %= rank
    return axis + (axis >= added)


def _convolution(rewrite: _Rewrite, call: Any) -> Made | None:
    name, attrs = op_name(call), call.attrs
    is_transposed = name == "relax.nn.conv1d_transpose"
    layouts = (str(attrs.data_layout), str(attrs.kernel_layout), str(attrs.out_layout))
    if layouts != ("NCW", "IOW" if is_transposed else "OIW", "NCW"):
        return None
    data, weight = (rewrite.raised(arg, _HEIGHT) for arg in call.args)
    before, after = ints(attrs.padding)
    options = {
        "strides": [1, *ints(attrs.strides)],
        "padding": [0, before, 0, after],
        "dilation": [1, *ints(attrs.dilation)],
        "groups": int(attrs.groups),
        "out_dtype": attrs.out_dtype,
    }
    if is_transposed:
        options["output_padding"] = [0, *ints(attrs.output_padding)]
        image = op.nn.conv2d_transpose(data, weight, **options)
    else:
        image = op.nn.conv2d(data, weight, **options)
    return rewrite.builder.emit(image), _HEIGHT


def _elementwise(rewrite: _Rewrite, call: Any) -> Made | None:
    images = [rewrite.image_of(arg) for arg in call.args]
    axis = next((image[1] for image in images if image is not None), None)
    if axis is None or _rank(call) != 3:
        return None
    args = [rewrite.spread(arg, axis) for arg in call.args]
    return rewrite.builder.emit(relax.Call(call.op, args, call.attrs, call.ty_args)), axis


def _squeeze(rewrite: _Rewrite, call: Any) -> Made | None:
    source, axes = call.args[0], call.attrs.axis
    if _rank(source) != 4 or axes is None or len(axes) != 1 or not rewrite.is_of_image(source):
        return None
    return rewrite.plain(source), int(axes[0]) % 4


def _expand_dims(rewrite: _Rewrite, call: Any) -> Made | None:
    image, axes = rewrite.image_of(call.args[0]), ints(call.attrs.axis)
    if image is None or [axis % 4 for axis in axes] != [image[1]]:
        return None
    return image[0], None


def _permute_dims(rewrite: _Rewrite, call: Any) -> Made | None:
    image = rewrite.image_of(call.args[0])
    if image is None or call.attrs.axes is None:
        return None
    axes = [_at(axis, image[1]) for axis in ints(call.attrs.axes)]
    turned = rewrite.builder.emit(op.permute_dims(image[0], [*axes, image[1]]))
    return rewrite.builder.emit(op.squeeze(turned, [3])), None


def _quantization(rewrite: _Rewrite, call: Any, axis: int) -> Any:
    args = [rewrite.spread(arg, axis) for arg in call.args]
    if op_name(call) != "relax.dequantize" and op_name(call) != "relax.quantize":
        return relax.Call(call.op, args, call.attrs, call.ty_args)
    make = op.quantize if op_name(call) == "relax.quantize" else op.dequantize
    of = [args[0], *(rewrite.plain(arg) for arg in call.args[1:])]
    return make(*of, _at(int(call.attrs.axis), axis), str(call.ty.dtype))


def _quantized(rewrite: _Rewrite, call: Any) -> Made | None:
    image = rewrite.image_of(call.args[0])
    if image is None:
        return None
    return rewrite.builder.emit(_quantization(rewrite, call, image[1])), image[1]


def _batch_norm(rewrite: _Rewrite, call: Any) -> Made | None:
    image, attrs = rewrite.image_of(call.args[0]), call.attrs
    if image is None:
        return None
    normed = op.nn.batch_norm(
        image[0],
        *(rewrite.plain(arg) for arg in call.args[1:]),
        axis=_at(int(attrs.axis), image[1]),
        epsilon=float(attrs.epsilon),
        center=bool(attrs.center),
        scale=bool(attrs.scale),
        momentum=float(attrs.momentum),
        training=bool(attrs.training),
    )
    return rewrite.builder.emit(normed), image[1]


def _concat(rewrite: _Rewrite, call: Any) -> Made | None:
    fields = call.args[0].fields if isinstance(call.args[0], relax.Tuple) else []
    images = [rewrite.image_of(field) for field in fields]
    axis = next((image[1] for image in images if image is not None), None)
    if axis is None:
        return None
    parts = [rewrite.raised(field, axis) for field in fields]
    return rewrite.builder.emit(op.concat(parts, _at(int(call.attrs.axis), axis))), axis


def _split(rewrite: _Rewrite, call: Any) -> Made | None:
    image, sections = rewrite.image_of(call.args[0]), call.attrs.indices_or_sections
    if image is None:
        return None
    by = ints(sections) if isinstance(sections, tvm_ffi.Array) else int(sections)
    parts = op.split(image[0], by, _at(int(call.attrs.axis), image[1]))
    return rewrite.builder.emit(parts), image[1]


def _strided_slice(rewrite: _Rewrite, call: Any) -> Made | None:
    image = rewrite.image_of(call.args[0])
    if image is None:
        return None
    axes, *bounds = (ints(values) for values in call.args[1:])
    cut = op.strided_slice(image[0], [_at(axis, image[1]) for axis in axes], *bounds)
    return rewrite.builder.emit(cut), image[1]


def _pad(rewrite: _Rewrite, call: Any) -> Made | None:
    image, attrs = rewrite.image_of(call.args[0]), call.attrs
    if image is None or str(attrs.pad_mode) != "constant":
        return None
    at = 2 * image[1]
    widths = ints(attrs.pad_width)
    padded = op.nn.pad(
        image[0], [*widths[:at], 0, 0, *widths[at:]], "constant", float(attrs.pad_value)
    )
    return rewrite.builder.emit(padded), image[1]


def _pool(rewrite: _Rewrite, call: Any) -> Made | None:
    image, attrs = rewrite.image_of(call.args[0]), call.attrs
    if image is None or (image[1], str(attrs.layout)) != (_HEIGHT, "NCW"):
        return None
    before, after = ints(attrs.padding)
    of = op.nn.max_pool2d if op_name(call) == "relax.nn.max_pool1d" else op.nn.avg_pool2d
    pooled = of(
        image[0],
        pool_size=[1, *ints(attrs.pool_size)],
        strides=[1, *ints(attrs.strides)],
        padding=[0, before, 0, after],
        dilation=[1, *ints(attrs.dilation)],
        ceil_mode=bool(attrs.ceil_mode),
        count_include_pad=bool(attrs.count_include_pad),
    )
    return rewrite.builder.emit(pooled), _HEIGHT


def _reduction(rewrite: _Rewrite, call: Any) -> Made | None:
    image, attrs = rewrite.image_of(call.args[0]), call.attrs
    if image is None or attrs.axis is None:
        return None
    axes = [_at(axis, image[1]) for axis in ints(attrs.axis)]
    if bool(attrs.keepdims):
        return rewrite.builder.emit(_REDUCTIONS[op_name(call)](image[0], axes, True)), image[1]
    # The additional axis has one element, and goes with those that are reduced.
    reduced = _REDUCTIONS[op_name(call)](image[0], sorted([*axes, image[1]]))
    return rewrite.builder.emit(reduced), None


_REDUCTIONS = {
    "relax.max": op.max,
    "relax.mean": op.mean,
    "relax.min": op.min,
    "relax.sum": op.sum,
}

_RULES: dict[str, Callable[[_Rewrite, Any], Made | None]] = {
    **dict.fromkeys(_CONVOLUTIONS, _convolution),
    **dict.fromkeys(_ELEMENTWISE, _elementwise),
    **dict.fromkeys(("relax.quantize", "relax.dequantize"), _quantized),
    **dict.fromkeys(("relax.nn.max_pool1d", "relax.nn.avg_pool1d"), _pool),
    **dict.fromkeys(_REDUCTIONS, _reduction),
    "relax.concat": _concat,
    "relax.expand_dims": _expand_dims,
    "relax.nn.batch_norm": _batch_norm,
    "relax.nn.pad": _pad,
    "relax.permute_dims": _permute_dims,
    "relax.split": _split,
    "relax.squeeze": _squeeze,
    "relax.strided_slice": _strided_slice,
}
