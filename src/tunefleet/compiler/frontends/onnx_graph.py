"""Imports an ONNX graph with TVM's converters, but into operators that can be optimised.

Some of TVM's converters emit compute definitions where Relax has an operator (Clip, Pad), which
no later pass sees through, and look up static shapes at run time (Gather). The builder that they
write to corrects both.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray

from tunefleet.compiler.frontends.onnx_operators import OPERATORS, Node, Rule
from tunefleet.compiler.toolchain import load_tvm

tvm = load_tvm()
relax = tvm.relax

from tvm.relax.frontend.onnx import onnx_frontend  # noqa: E402  (TVM is loaded our way first)


def convert(model: Any) -> Any:
    """A Relax module from a model with static shapes; raises what TVM raises."""
    importer = _Importer({o.domain.removeprefix("ai.onnx"): o.version for o in model.opset_import})
    return importer.from_onnx(model.graph, importer.opsets[""])


def known_operators() -> frozenset[str]:
    """The operators of the ONNX standard that can be converted."""
    built_in = {"Constant", "If"}
    ours = {operator for domain, operator in OPERATORS if not domain}
    # The table is private to TVM, which otherwise names what it misses one level at a time.
    theirs = {name for name, rule in onnx_frontend._get_convert_map().items() if rule}
    return frozenset(built_in | ours | theirs)


class _Importer(onnx_frontend.ONNXGraphImporter):
    """TVM's importer with conversions of ours before its own."""

    def __init__(self, opsets: dict[str, int]) -> None:
        super().__init__(shape_dict={}, dtype_dict=None)
        self.opsets = opsets
        self.bb = _Builder()

    def _check_for_unsupported_ops(self, graph: Any) -> None:
        pass  # the frontend has looked

    def _construct_nodes(self, graph: Any) -> None:
        for node in graph.node:
            rule = OPERATORS.get((node.domain.removeprefix("ai.onnx"), node.op_type))
            if rule is None or not self._bind(node, rule):
                super()._construct_nodes(onnx.GraphProto(node=[node]))

    def _bind(self, node: Any, rule: Rule) -> bool:
        """Converts `node` by a rule of ours, unless the rule leaves it to TVM's own."""
        domain = node.domain.removeprefix("ai.onnx")
        results = rule(
            Node(
                operator=node.op_type,
                domain=domain,
                name=node.name,
                inputs=tuple(self._nodes[name] if name else None for name in node.input),
                attrs={a.name: _attribute(a) for a in node.attribute},
                outputs=tuple(node.output),
                opset=self.opsets.get(domain, 1),
                builder=self.bb,
            )
        )
        if results is NotImplemented:
            return False
        if not isinstance(results, tuple | list):
            results = (results,)
        for name, expr in zip(node.output, results, strict=False):
            if name and expr is not None:
                self._nodes[name] = self.bb.normalize(expr)
        return True


def _attribute(attribute: Any) -> Any:
    """The Python value of an attribute: text as str, tensors as arrays, graphs as they are."""
    value = onnx.helper.get_attribute_value(attribute)
    if isinstance(value, bytes):
        return value.decode()
    if isinstance(value, onnx.TensorProto):
        return onnx.numpy_helper.to_array(value)
    if attribute.type == onnx.AttributeProto.STRINGS:
        return [text.decode() for text in value]
    return list(value) if isinstance(value, Sequence) and not isinstance(value, str) else value


class _Builder(relax.BlockBuilder):  # type: ignore[name-defined]
    """Writes operators for compute definitions, and the values of calls on constants."""

    def emit_te(self, func: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        rule = _OPERATORS.get(func)
        if rule is None:
            return super().emit_te(func, *args, **kwargs)
        return self.emit(rule(*args, **kwargs))

    def emit(self, expr: Any, name_hint: str = "") -> Any:
        folded = _folded(expr)
        return super().emit(expr, name_hint) if folded is None else folded

    def normalize(self, expr: Any) -> Any:
        folded = _folded(expr)
        return super().normalize(expr) if folded is None else folded


def _operand(x: Any, like: Any) -> Any:
    return relax.const(x, str(like.ty.dtype)) if isinstance(x, int | float) else x


def _pad(data: Any, before: list[int], after: list[int], value: Any = 0.0) -> Any:
    widths = [int(width) for pair in zip(before, after, strict=True) for width in pair]
    return relax.op.nn.pad(data, widths, "constant", float(value))


_OPERATORS: dict[Any, Callable[..., Any]] = {
    tvm.topi.maximum: lambda a, b: relax.op.maximum(a, _operand(b, a)),
    tvm.topi.minimum: lambda a, b: relax.op.minimum(a, _operand(b, a)),
    tvm.topi.nn.pad: _pad,
}


def _gather(call: Any, data: NDArray[Any], indices: NDArray[Any]) -> NDArray[Any]:
    return np.take_along_axis(data, indices, int(call.attrs.axis))


def _take(call: Any, data: NDArray[Any], indices: NDArray[Any]) -> NDArray[Any]:
    return np.asarray(np.take(data, indices, int(call.attrs.axis)))


_FOLDS: dict[str, Callable[..., NDArray[Any]]] = {
    "relax.add": lambda call, a, b: np.add(a, b),
    "relax.astype": lambda call, x: x.astype(str(call.attrs.dtype)),
    "relax.gather_elements": _gather,
    "relax.isnan": lambda call, x: np.isnan(x),
    "relax.less": lambda call, a, b: np.less(a, b),
    "relax.take": _take,
    "relax.where": lambda call, condition, a, b: np.where(condition, a, b),
}


def _folded(expr: Any) -> Any:
    value = _value(expr)
    return None if value is None or isinstance(expr, tvm.ir.GenericConst) else _constant(value)


def _constant(value: NDArray[Any]) -> Any:
    return relax.const(np.ascontiguousarray(value).reshape(value.shape), str(value.dtype))


def _value(expr: Any) -> NDArray[Any] | None:
    """What `expr` evaluates to, where that is known."""
    if isinstance(expr, tvm.ir.GenericConst):
        value: NDArray[Any] = expr.value.numpy()
        return value
    if not isinstance(expr, relax.Call) or not isinstance(expr.op, tvm.ir.Op):
        return None
    if expr.op.name == "relax.shape_to_tensor":
        return _shape(expr.args[0])
    if expr.op.name not in _FOLDS:
        return None
    values = [_value(arg) for arg in expr.args]
    if any(value is None for value in values):
        return None
    return _FOLDS[expr.op.name](expr, *values)


def _shape(expr: Any) -> NDArray[Any] | None:
    if isinstance(expr, relax.Call) and expr.op.name == "relax.shape_of":
        expr = expr.args[0].ty.shape
    if not isinstance(expr, relax.ShapeExpr):
        return None
    extents = list(expr.values)
    if not all(isinstance(extent, int | tvm.tirx.IntImm) for extent in extents):
        return None
    return np.array([int(extent) for extent in extents], "int64")
