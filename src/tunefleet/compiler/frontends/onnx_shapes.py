"""The inputs of an ONNX file, what is known of their shapes, and how a file gets fixed ones."""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence

import onnx

from tunefleet.compiler.frontends.examples import NUMPY_DTYPES
from tunefleet.compiler.frontends.free import FixedInputs, FreeInput, fixed_inputs
from tunefleet.compiler.frontends.onnx_file import OnnxFile, graphs_of
from tunefleet.compiler.frontends.spec import shown
from tunefleet.core.network import TensorSpec
from tunefleet.core.printing import quoted
from tunefleet.core.shapes import ShapeRequest
from tunefleet.errors import InputError, OptionsNeededError


def fix_shapes(file: OnnxFile, request: ShapeRequest) -> FixedInputs:
    """Static shapes for every input; raises InputError where the user has to say one."""
    what = shown(file.path)
    free = [_free(value, file, request, what) for value in file.inputs]
    return fixed_inputs(free, request, what, _defaults(file, free))


def with_shapes(file: OnnxFile, specs: Sequence[TensorSpec]) -> onnx.ModelProto:
    """The graph with these inputs; what the file says of other shapes is gone, since an exporter
    may have written down those of its example."""
    model = onnx.ModelProto()
    model.CopyFrom(file.model)
    shapes = {spec.name: spec.shape for spec in specs}
    for value in model.graph.input:
        if value.name in shapes:
            tensor = value.type.tensor_type
            tensor.ClearField("shape")
            tensor.shape.dim.extend(
                onnx.TensorShapeProto.Dimension(dim_value=extent) for extent in shapes[value.name]
            )
    _forget_shapes(model.graph)
    return model


def _forget_shapes(graph: onnx.GraphProto) -> None:
    graph.ClearField("value_info")
    for value in graph.output:
        if value.type.HasField("tensor_type"):
            value.type.tensor_type.ClearField("shape")
    for node in graph.node:
        for inner in graphs_of(node):
            _forget_shapes(inner)


def _free(
    value: onnx.ValueInfoProto, file: OnnxFile, request: ShapeRequest, what: str
) -> FreeInput:
    tensor = value.type.tensor_type
    if not value.type.HasField("tensor_type") or not tensor.elem_type:
        raise InputError(
            f"{what}: input {value.name} is not a tensor",
            cure="export a network that takes tensors only",
        )
    dtype = _dtype(value, what)
    if tensor.HasField("shape"):
        return FreeInput(value.name, tuple(_extent(dim) for dim in tensor.shape.dim), dtype)
    given = request.shape_of(value.name)
    rank = len(given) if given is not None else _rank(value.name, file)
    if rank is None:
        raise OptionsNeededError(
            f"{what}: input {value.name} has no shape, not even a number of dimensions",
            cure=f"say what it is: --shape {quoted(value.name)}=1,...",
        )
    return FreeInput(value.name, (None,) * rank, dtype)


#: What exporters write for a dimension that has no name; two of them are not the same one.
_NO_NAMES = frozenset({"", "?", "-1", "None", "unk", "unknown"})


def _extent(dim: onnx.TensorShapeProto.Dimension) -> int | str | None:
    # Exporters write 0 and -1 for what they do not know.
    if dim.dim_value > 0:
        return int(dim.dim_value)
    return None if dim.dim_param in _NO_NAMES else str(dim.dim_param)


def _dtype(value: onnx.ValueInfoProto, what: str) -> str:
    kind = value.type.tensor_type.elem_type
    dtype = onnx.helper.tensor_dtype_to_np_dtype(kind)
    if dtype.name not in NUMPY_DTYPES:
        said = "text" if kind == onnx.TensorProto.STRING else dtype
        raise InputError(
            f"{what}: input {value.name} holds {said}, which cannot be fed from NumPy",
            cure="export it with float32, float16 or integer inputs",
        )
    return str(dtype.name)


#: Operators whose first input has as many dimensions as their second.
_AS_ITS_WEIGHT = frozenset({"Conv", "ConvTranspose", "ConvInteger"})
_MATRICES = frozenset({"Gemm"})


def _rank(name: str, file: OnnxFile) -> int | None:
    """The number of dimensions of an input, from what reads it."""
    graph = file.model.graph
    ranks = {tensor.name: len(tensor.dims) for tensor in graph.initializer}
    ranks |= {weight: len(tensor.dims) for weight, tensor in file.weights.tensors.items()}
    for node in graph.node:
        if not node.input or node.input[0] != name:
            continue
        if node.op_type in _MATRICES:
            return 2
        if node.op_type in _AS_ITS_WEIGHT and node.input[1] in ranks:
            return ranks[node.input[1]]
    return None


def _defaults(file: OnnxFile, inputs: Sequence[FreeInput]) -> Mapping[str, int]:
    """Values that the file itself has for free dimensions: the size of images that it notes."""
    notes = {note.key: note.value for note in file.model.metadata_props}
    images = [spec for spec in inputs if len(spec.extents) == 4]
    size = _image_size(notes.get("imgsz", ""))
    if size is None or len(images) != 1:
        return {}
    return {
        images[0].dim(axis): extent
        for axis, extent in zip((2, 3), size, strict=True)
        if not isinstance(images[0].extents[axis], int)
    }


def _image_size(text: str) -> tuple[int, int] | None:
    """Height and width from a note such as ``[640, 640]``."""
    try:
        value = ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return None
    if isinstance(value, list | tuple) and len(value) == 2 and all(type(e) is int for e in value):
        return value[0], value[1]
    return None
