"""What a conversion is given, and what it returns."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tunefleet.compiler.toolchain import load_tvm

tvm = load_tvm()
relax = tvm.relax


@dataclass(frozen=True, slots=True)
class Node:
    """One ONNX node with its inputs already converted.

    `inputs` are Relax expressions, None for optional ones that are left out (those after the last
    one given are not there at all: use `input`). `attrs` are Python values: numbers, `str`, lists,
    NumPy arrays for tensors, GraphProto for graphs. `opset` is the version of the node's domain.
    `outputs` are the names of its outputs, "" for those that nobody wants.
    """

    operator: str
    domain: str
    name: str
    inputs: tuple[Any, ...]
    attrs: dict[str, Any]
    outputs: tuple[str, ...]
    opset: int
    builder: Any

    def input(self, index: int) -> Any:
        """The input's expression, or None where it is left out."""
        return self.inputs[index] if index < len(self.inputs) else None

    def has(self, index: int) -> bool:
        """Whether the input is given."""
        return self.input(index) is not None

    def wants(self, index: int) -> bool:
        """Whether the output has a name."""
        return index < len(self.outputs) and bool(self.outputs[index])

    def constant(self, index: int) -> NDArray[Any] | None:
        """The input's value, None where it is left out; NotImplementedError if it is computed."""
        expr = self.input(index)
        if expr is None:
            return None
        value = constant_value(expr)
        if value is None:
            raise NotImplementedError(f"{self.operator} with input {index} that is not constant")
        return value

    def known(self, index: int) -> NDArray[Any]:
        """The value of an input; NotImplementedError if it is computed or left out."""
        value = self.constant(index)
        if value is None:
            raise NotImplementedError(f"{self.operator} without input {index}")
        return value

    def shape(self, index: int) -> tuple[int, ...]:
        """The input's extents."""
        return shape_of(self.inputs[index])

    def dtype(self, index: int) -> str:
        """The input's data type."""
        return dtype_of(self.inputs[index])

    def emit(self, expr: Any) -> Any:
        """Binds `expr` to a variable, so that it is computed once."""
        return self.builder.emit(expr)

    def typed(self, expr: Any) -> Any:
        """`expr` with its type known, to be asked for its shape; still part of what uses it."""
        return self.builder.normalize(expr)


#: Returns one expression for each output, or the only one; None for an output nobody wants. Returns
#: NotImplemented where TVM's own conversion of this form is right. Raises NotImplementedError for a
#: form that neither converts.
Rule = Callable[[Node], Any | Sequence[Any]]


def constant_value(expr: Any) -> NDArray[Any] | None:
    """What a constant or a static shape holds, None for anything else."""
    if isinstance(expr, tvm.ir.GenericConst):
        value: NDArray[Any] = expr.value.numpy()
        return value
    if isinstance(expr, relax.ShapeExpr):
        return np.array(_extents(expr.values), "int64")
    return None


def shape_of(expr: Any) -> tuple[int, ...]:
    """The extents of a tensor; NotImplementedError where they are not known."""
    if not isinstance(expr.ty, relax.TensorType) or not isinstance(expr.ty.shape, relax.ShapeExpr):
        raise NotImplementedError("a tensor whose shape is not known")
    return tuple(_extents(expr.ty.shape.values))


def _extents(values: Sequence[Any]) -> list[int]:
    if not all(isinstance(value, int | tvm.tirx.IntImm) for value in values):
        raise NotImplementedError("a shape that is not static")
    return [int(value) for value in values]


def dtype_of(expr: Any) -> str:
    """The data type of a tensor, such as float32."""
    if not isinstance(expr.ty, relax.TensorType):
        raise NotImplementedError("a value that is not a tensor")
    return str(expr.ty.dtype)


def constant(value: Any, dtype: str) -> Any:
    """A constant of the graph."""
    array = np.asarray(value, dtype)
    return relax.const(np.ascontiguousarray(array).reshape(array.shape), dtype)
