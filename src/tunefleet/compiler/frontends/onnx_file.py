"""Reads an ONNX file, its weights apart: whatever looks at the graph need not carry them."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx.external_data_helper import ExternalDataInfo, uses_external_data

from tunefleet.compiler.frontends.imported import check_operators
from tunefleet.compiler.frontends.onnx_few_bits import pack, widen
from tunefleet.compiler.frontends.onnx_versions import MOST_VERSION, STANDARD_NAMES, restamp
from tunefleet.compiler.frontends.spec import shown
from tunefleet.core.network import TensorSpec
from tunefleet.errors import InputError, raise_mistake

Array = np.ndarray[Any, Any]

STANDARD = ""
#: A tensor larger than this is a weight, which nobody needs to see to tell what a graph computes.
#: Integers and booleans are larger: indices, and masks that are cut to the length of a sequence.
_MOST_BYTES = 64 << 10
_MOST_BYTES_OF_INTEGERS = 1 << 20
_FLOATS = frozenset(
    {
        onnx.TensorProto.FLOAT,
        onnx.TensorProto.FLOAT16,
        onnx.TensorProto.BFLOAT16,
        onnx.TensorProto.DOUBLE,
    }
)


@dataclass(frozen=True)
class OnnxWeights:
    """The large tensors of a file by name, read when they are asked for."""

    folder: Path
    tensors: Mapping[str, onnx.TensorProto]

    def __contains__(self, name: object) -> bool:
        return name in self.tensors

    def array(self, name: str) -> Array:
        return array_of(self.tensors[name], self.folder)

    def value_info(self, name: str) -> onnx.ValueInfoProto:
        tensor = self.tensors[name]
        return onnx.helper.make_tensor_value_info(name, tensor.data_type, list(tensor.dims))


@dataclass(frozen=True)
class OnnxFile:
    """A graph without functions and without large tensors: those are inputs of it at the end,
    by the names that `weights` has. `restamped` is what was said of versions that are too new
    (`onnx_versions.restamp`)."""

    path: Path
    model: onnx.ModelProto
    weights: OnnxWeights
    restamped: str | None = None

    @property
    def inputs(self) -> list[onnx.ValueInfoProto]:
        """The inputs that are not weights."""
        return [value for value in self.model.graph.input if value.name not in self.weights]


def read_file(path: Path) -> OnnxFile:
    """Reads a file; raises InputError for one that is damaged or not complete."""
    what = shown(path)
    try:
        whole = onnx.load(path, load_external_data=False)
    except Exception as exc:
        raise_mistake(exc)
        raise InputError(
            f"{what} is not a readable ONNX file ({type(exc).__name__})",
            cure="export or copy it again",
        ) from exc
    if not whole.graph.node and not whole.graph.output:
        raise InputError(f"{what} holds no graph", cure="export or copy it again")
    if not whole.graph.output:
        raise InputError(f"{what}: the graph has no outputs", cure="export it again")
    for opset in whole.opset_import:
        if not 0 < opset.version <= MOST_VERSION:
            raise InputError(
                f"{what} is of opset {opset.version}, which there is not", cure="export it again"
            )
    _check_names(whole.graph, what)
    _check_types(whole.graph, what)
    _check_external(whole.graph, path.parent, what)
    note = restamp(whole)
    pack(whole.graph, list(all_nodes(whole.graph)), path.parent)
    widen(whole.graph, all_nodes(whole.graph), path.parent)
    return replace(_split(whole, path), restamped=note)


def _check_names(graph: onnx.GraphProto, what: str) -> None:
    """protobuf gives what is no text as bytes, or fails where it is read."""
    named = [*graph.input, *graph.output, *graph.value_info, *graph.initializer]
    names = [graph.name, *(each.name for each in named)]
    for node in all_nodes(graph):
        names += [node.name, node.op_type, node.domain, *node.input, *node.output]
    if not all(isinstance(name, str) for name in names):
        raise InputError(f"{what} has names that are not UTF-8", cure="export or copy it again")


def _check_types(graph: onnx.GraphProto, what: str) -> None:
    known = set(onnx.TensorProto.DataType.values())
    values = [*graph.input, *graph.output, *graph.value_info]
    kinds = [value.type.tensor_type.elem_type for value in values]
    kinds += [tensor.data_type for tensor in _tensors(graph)]
    for kind in kinds:
        if kind not in known:
            raise InputError(
                f"{what} holds numbers of type {kind}, which there is not", cure="export it again"
            )


def array_of(tensor: onnx.TensorProto, folder: Path) -> Array:
    """The values of a tensor, without a copy where the format allows it (then read-only)."""
    dtype = np.dtype(onnx.helper.tensor_dtype_to_np_dtype(tensor.data_type))
    shape = tuple(tensor.dims)
    plain = dtype.kind in "biufc" and dtype.itemsize * 8 == _bits(tensor.data_type)
    if uses_external_data(tensor):
        info = ExternalDataInfo(tensor)
        if plain and 0 not in shape:
            offset = int(info.offset or 0)
            # Copied where somebody writes, which nobody does: DLPack has no read-only arrays.
            mapped = np.memmap(folder / info.location, dtype, "c", offset, shape or (1,))
            return mapped.reshape(shape)
        return np.asarray(onnx.numpy_helper.to_array(tensor, str(folder)))
    if plain and tensor.HasField("raw_data"):
        return np.frombuffer(tensor.raw_data, dtype).reshape(shape)
    return np.asarray(onnx.numpy_helper.to_array(tensor))


def _bits(kind: int) -> int:
    name = onnx.TensorProto.DataType.Name(kind)
    return 4 if name.endswith("INT4") else 8 * onnx.helper.tensor_dtype_to_np_dtype(kind).itemsize


def free_zeros(graph: onnx.GraphProto, inputs: Iterable[TensorSpec]) -> bool:
    """Frees extents of inputs that are zero in the file and not in `inputs`; whether there are
    any. Those of outputs go with them."""
    shapes = {spec.name: spec.shape for spec in inputs}
    zeros = [
        dim
        for value in graph.input
        for dim, extent in zip(
            value.type.tensor_type.shape.dim, shapes.get(value.name, ()), strict=False
        )
        if dim.HasField("dim_value") and dim.dim_value == 0 and extent
    ]
    for dim in zeros:
        dim.ClearField("dim_value")
    if zeros:
        for value in graph.output:
            value.type.tensor_type.ClearField("shape")
    return bool(zeros)


def graphs_of(node: onnx.NodeProto) -> Iterator[onnx.GraphProto]:
    """The branches or the body of a node."""
    for attribute in node.attribute:
        if attribute.type == onnx.AttributeProto.GRAPH:
            yield attribute.g
        elif attribute.type == onnx.AttributeProto.GRAPHS:
            yield from attribute.graphs


def captured(graph: onnx.GraphProto) -> list[str]:
    """The tensors that a branch or body takes from the graphs around it."""
    own = {value.name for value in graph.input} | {t.name for t in graph.initializer}
    own |= {name for node in graph.node for name in node.output}
    names = [name for node in graph.node for name in used(node)]
    names += [value.name for value in graph.output]
    return [name for name in dict.fromkeys(names) if name and name not in own]


def used(node: onnx.NodeProto) -> list[str]:
    """Every tensor that a node reads, those of its branches and bodies included."""
    names = [name for name in node.input if name]
    for graph in graphs_of(node):
        names += captured(graph)
    return list(dict.fromkeys(names))


def domain_of(node: Any) -> str:
    """The domain of a node, "" for the standard one."""
    return STANDARD if node.domain in STANDARD_NAMES else str(node.domain)


def opsets_of(model: onnx.ModelProto) -> dict[str, int]:
    return {domain_of(opset): opset.version for opset in model.opset_import}


def all_nodes(graph: onnx.GraphProto | onnx.FunctionProto) -> Iterator[onnx.NodeProto]:
    """Every node, those of branches and bodies included."""
    for node in graph.node:
        yield node
        for inner in graphs_of(node):
            yield from all_nodes(inner)


def _tensors(graph: onnx.GraphProto) -> Iterator[onnx.TensorProto]:
    yield from graph.initializer
    for node in graph.node:
        for attribute in node.attribute:
            if attribute.type == onnx.AttributeProto.TENSOR:
                yield attribute.t
        for inner in graphs_of(node):
            yield from _tensors(inner)


def _check_external(graph: onnx.GraphProto, folder: Path, what: str) -> None:
    """Weights in other files must be there, and below the folder of the network."""
    for tensor in _tensors(graph):
        if not uses_external_data(tensor):
            continue
        try:
            info = ExternalDataInfo(tensor)
        except ValueError as exc:
            raise InputError(
                f"{what}: where weight {tensor.name} lies is no place: {exc}",
                cure="export it again",
            ) from exc
        path = folder / info.location
        inside = os.path.realpath(path).startswith(os.path.realpath(folder) + os.sep)
        end = int(info.offset or 0) + int(info.length or 0)
        if not inside or not path.is_file() or path.stat().st_size < end:
            raise InputError(
                f"{what} keeps its weights in another file, which is missing, cut short or unsafe: "
                f"{shown(info.location)}",
                cure="copy that file beside it, under the name it was exported with",
            )


def _is_weight(tensor: onnx.TensorProto) -> bool:
    if tensor.data_type == onnx.TensorProto.STRING:
        return False
    size = int(np.prod(tensor.dims, dtype=np.int64)) * _bits(tensor.data_type) // 8
    floats = tensor.data_type in _FLOATS
    return size > (_MOST_BYTES if floats else _MOST_BYTES_OF_INTEGERS)


def _split(whole: onnx.ModelProto, path: Path) -> OnnxFile:
    weights: dict[str, onnx.TensorProto] = {}
    kept = []
    for tensor in whole.graph.initializer:
        if _is_weight(tensor):
            weights[tensor.name] = tensor
        else:
            kept.append(tensor)
    model = _shell(whole)
    graph = model.graph
    graph.node.extend(_without_constants(whole.graph, weights))
    graph.initializer.extend(kept)
    graph.sparse_initializer.extend(whole.graph.sparse_initializer)
    initial = {t.name for t in whole.graph.initializer}
    # An initializer that is an input as well has a default, which is what gets compiled.
    graph.input.extend(value for value in whole.graph.input if value.name not in initial)
    graph.output.extend(whole.graph.output)
    for tensor in _tensors(graph):
        if uses_external_data(tensor):
            onnx.external_data_helper.load_external_data_for_tensor(tensor, str(path.parent))
            tensor.ClearField("external_data")
            tensor.data_location = onnx.TensorProto.DEFAULT
    large = OnnxWeights(path.parent, weights)
    graph.input.extend(large.value_info(name) for name in weights)
    return OnnxFile(path, _inlined(model, whole, shown(path)), large)


def _shell(whole: onnx.ModelProto) -> onnx.ModelProto:
    """The model without its graph and functions."""
    model = onnx.ModelProto(ir_version=max(whole.ir_version, 4), opset_import=whole.opset_import)
    if not model.opset_import:
        model.opset_import.append(onnx.helper.make_opsetid(STANDARD, 1))
    model.metadata_props.extend(whole.metadata_props)
    model.graph.name = whole.graph.name or "graph"
    return model


def _without_constants(
    graph: onnx.GraphProto, weights: dict[str, onnx.TensorProto]
) -> Iterator[onnx.NodeProto]:
    """The nodes, less those that are weights; these go to `weights`."""
    for node in graph.node:
        if node.op_type == "Constant" and not domain_of(node):
            value = next((a for a in node.attribute if a.name == "value"), None)
            if value is not None and _is_weight(value.t):
                weights[node.output[0]] = value.t
                continue
        yield node


def _inlined(model: onnx.ModelProto, whole: onnx.ModelProto, what: str) -> onnx.ModelProto:
    if not whole.functions:
        return model
    from onnx import inliner

    check_operators(_written_out(model.graph, whole.functions, what), what)
    model.functions.extend(whole.functions)
    return inliner.inline_local_functions(model)


def _written_out(graph: onnx.GraphProto, functions: Iterable[onnx.FunctionProto], what: str) -> int:
    """How many nodes a graph has once its functions are written out: a few that call each other
    may be billions."""
    called = {
        (f.domain, f.name): Counter((n.domain, n.op_type) for n in all_nodes(f)) for f in functions
    }
    sizes: dict[tuple[str, str], int] = {}
    try:
        for key in TopologicalSorter(called).static_order():
            calls = called.get(key)
            sizes[key] = 1 if calls is None else sum(sizes[k] * n for k, n in calls.items())
    except CycleError as exc:
        name = exc.args[1][0][1]
        raise InputError(
            f"{what} is not valid ONNX: function {name} calls itself", cure="export it again"
        ) from exc
    return sum(sizes.get((n.domain, n.op_type), 1) for n in all_nodes(graph))
