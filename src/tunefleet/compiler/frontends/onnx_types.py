"""What is known of the tensors of a prepared graph."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

import onnx

from tunefleet.compiler.frontends.examples import NUMPY_DTYPES
from tunefleet.compiler.frontends.onnx_file import OnnxWeights
from tunefleet.core.network import UNKNOWN


@dataclass(frozen=True, slots=True)
class ValueType:
    """Type of a value. `dtype` is None for what is no tensor of NumPy (text, sequences, bfloat16),
    `shape` is None where not even its rank is known; extents that depend on values are `UNKNOWN`.
    """

    dtype: str | None
    shape: tuple[int, ...] | None

    @property
    def static(self) -> bool:
        """Whether it is a tensor of a shape that is known."""
        return self.dtype is not None and self.shape is not None and UNKNOWN not in self.shape

    @property
    def size(self) -> int:
        """How many elements it has; 0 where that is not known."""
        return prod(self.shape) if self.shape is not None and UNKNOWN not in self.shape else 0

    def __str__(self) -> str:
        if self.shape is None:
            return f"{self.dtype or 'no tensor'}[...]"
        return f"{self.dtype}[{', '.join('?' if e < 0 else str(e) for e in self.shape)}]"


#: Of a tensor that the graph says nothing about.
NOTHING_KNOWN = ValueType(None, None)


def types_of(model: onnx.ModelProto, weights: OnnxWeights) -> dict[str, ValueType]:
    """The types of the values of a graph by name, as far as they are known."""
    graph = model.graph
    types = {
        value.name: _type(value.type)
        # An input that is an output too has the shape that was chosen for the input.
        for values in (graph.value_info, graph.output, graph.input)
        for value in values
        if _is_declared(value.type)
    }
    tensors = {t.name: t for t in graph.initializer}
    for name, tensor in {**tensors, **weights.tensors}.items():
        types[name] = ValueType(_dtype(tensor.data_type), tuple(tensor.dims))
    for sparse in graph.sparse_initializer:
        types[sparse.values.name] = ValueType(_dtype(sparse.values.data_type), tuple(sparse.dims))
    return types


def _is_declared(declared: onnx.TypeProto) -> bool:
    """Whether it says anything; an output may not."""
    kind = declared.WhichOneof("value")
    return kind is not None and (kind != "tensor_type" or bool(declared.tensor_type.elem_type))


def _type(declared: onnx.TypeProto) -> ValueType:
    tensor = declared.tensor_type
    if not declared.HasField("tensor_type"):
        return NOTHING_KNOWN
    shape = None
    if tensor.HasField("shape"):
        dims = tensor.shape.dim
        shape = tuple(d.dim_value if d.HasField("dim_value") else UNKNOWN for d in dims)
    return ValueType(_dtype(tensor.elem_type), shape)


def _dtype(kind: int) -> str | None:
    if kind == onnx.TensorProto.STRING:
        return None
    name = str(onnx.helper.tensor_dtype_to_np_dtype(kind).name)
    return name if name in NUMPY_DTYPES else None
