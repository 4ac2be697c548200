"""ONNX files."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from tunefleet.compiler.frontends.examples import NUMPY_DTYPES, seeded_inputs
from tunefleet.compiler.frontends.imported import ImportedNetwork, ImportRequest
from tunefleet.compiler.frontends.spec import (
    ONNX_SUFFIX,
    listed,
    network_digest,
    network_name,
    shown,
    source_path,
)
from tunefleet.compiler.quiet import forget_frames, quiet
from tunefleet.core.network import NetworkInfo, TensorSpec
from tunefleet.errors import InputError, SetupError

if TYPE_CHECKING:
    import onnx
    import tvm

_STANDARD_DOMAINS = frozenset({"", "ai.onnx"})


class OnnxFrontend:
    """Reads ``.onnx`` files."""

    name = "onnx"

    def accepts(self, spec: str) -> bool:
        return spec.lower().endswith(ONNX_SUFFIX)

    def load(self, spec: str, request: ImportRequest) -> ImportedNetwork:
        path = source_path(spec)
        what = shown(path)
        _require(what)
        with quiet():
            model = _read(path, what)
            inputs = _inputs(model.graph, what)
            _check_domains(model.graph, what)
            mod = _convert(model, what)
            from tunefleet.compiler.frontends.relax_ import output_specs

            names = [output.name for output in model.graph.output]
            info = NetworkInfo(
                network_name(path),
                self.name,
                network_digest(path),
                inputs,
                output_specs(mod, names, what),
            )
        return ImportedNetwork(info, mod, OnnxReference(path, inputs), seeded_inputs(inputs))


class OnnxReference:
    """Runs an ONNX file in ONNX Runtime; a session is made for each number of threads."""

    framework = "ONNX Runtime"

    def __init__(self, path: Path, inputs: Sequence[TensorSpec]) -> None:
        self._path = path
        self._names = [spec.name for spec in inputs]
        self._sessions: dict[int, Any] = {}

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_sessions": {}}

    def __call__(self, inputs: Sequence[np.ndarray], threads: int = 1) -> list[np.ndarray]:
        session = self._sessions.get(threads) or self._session(threads)
        feed = dict(zip(self._names, inputs, strict=True))
        return [np.asarray(output) for output in session.run(None, feed)]

    def bound(self, inputs: Sequence[np.ndarray], threads: int) -> Callable[[], object]:
        session = self._sessions.get(threads) or self._session(threads)
        feed = dict(zip(self._names, inputs, strict=True))
        return lambda: session.run(None, feed)

    def _session(self, threads: int) -> Any:
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = threads
        options.inter_op_num_threads = 1
        options.log_severity_level = 4
        try:
            session = onnxruntime.InferenceSession(
                str(self._path), options, providers=["CPUExecutionProvider"]
            )
        except Exception as exc:
            raise InputError(
                f"{shown(self._path)}: ONNX Runtime cannot run it: {str(exc)[:120]}",
                cure="export the network again, with a lower opset if need be",
            ) from exc
        self._sessions[threads] = session
        return session


def _require(what: str) -> None:
    missing = [p for p in ("onnx", "onnxruntime") if importlib.util.find_spec(p) is None]
    if missing:
        raise SetupError(
            f"{what} needs {' and '.join(missing)}, not installed here",
            cure="pip install tunefleet[onnx]",
        )


def _read(path: Path, what: str) -> onnx.ModelProto:
    import onnx
    from onnx import inliner

    try:
        model = onnx.load(path)
    except (FileNotFoundError, onnx.checker.ValidationError) as exc:
        raise InputError(
            f"{what} keeps its weights in another file, which is missing or unsafe",
            cure="copy that file beside it, under the name it was exported with",
        ) from exc
    except Exception as exc:
        raise InputError(
            f"{what} is not a readable ONNX file ({type(exc).__name__})",
            cure="export or copy it again",
        ) from exc
    if not model.graph.node:
        raise InputError(f"{what} holds no graph", cure="export or copy it again")
    if not model.graph.output:
        raise InputError(f"{what}: the graph has no outputs", cure="export it again")
    return inliner.inline_local_functions(model) if model.functions else model


def _inputs(graph: onnx.GraphProto, what: str) -> tuple[TensorSpec, ...]:
    weights = {tensor.name for tensor in graph.initializer}
    return tuple(_input(value, what) for value in graph.input if value.name not in weights)


def _input(value: onnx.ValueInfoProto, what: str) -> TensorSpec:
    tensor = value.type.tensor_type
    if not value.type.HasField("tensor_type") or not tensor.elem_type:
        raise InputError(
            f"{what}: input {value.name} is not a tensor",
            cure="export a network that takes tensors only",
        )
    if not tensor.HasField("shape"):
        raise InputError(
            f"{what}: input {value.name} has no shape",
            cure=f"fix it: {_FIX_SHAPE} {value.name} --input_shape 1,... IN OUT",
        )
    for axis, dim in enumerate(tensor.shape.dim):
        if dim.dim_param:
            raise InputError(
                f"{what}: input {value.name} has the dynamic dimension {dim.dim_param}",
                cure=f"fix it: {_FIX} --dim_param {dim.dim_param} --dim_value 1 IN OUT",
            )
        if dim.dim_value <= 0:
            raise InputError(
                f"{what}: dimension {axis} of input {value.name} is not known",
                cure=f"fix it: {_FIX_SHAPE} {value.name} --input_shape 1,... IN OUT",
            )
    shape = tuple(dim.dim_value for dim in tensor.shape.dim)
    return TensorSpec(value.name, shape, _dtype(value, what))


_FIX = "python -m onnxruntime.tools.make_dynamic_shape_fixed"
_FIX_SHAPE = f"{_FIX} --input_name"


def _dtype(value: onnx.ValueInfoProto, what: str) -> str:
    import onnx

    dtype = onnx.helper.tensor_dtype_to_np_dtype(value.type.tensor_type.elem_type)
    if dtype.name not in NUMPY_DTYPES:
        raise InputError(
            f"{what}: input {value.name} holds {dtype}, which cannot be fed from NumPy",
            cure="export it with float32, float16 or integer inputs",
        )
    return dtype.name


def _nodes(graph: onnx.GraphProto) -> Iterator[onnx.NodeProto]:
    """Every node, those of branches and loop bodies included."""
    for node in graph.node:
        yield node
        for attribute in node.attribute:
            for body in (attribute.g, *attribute.graphs):
                yield from _nodes(body)


def _check_domains(graph: onnx.GraphProto, what: str) -> None:
    custom = sorted(
        {f"{n.domain}.{n.op_type}" for n in _nodes(graph) if n.domain not in _STANDARD_DOMAINS}
    )
    if custom:
        raise InputError(
            f"{what} uses operators outside the ONNX standard: {listed(custom)}",
            cure="export it with standard operators only",
        )


def _check_operators(graph: onnx.GraphProto, what: str) -> None:
    from tunefleet.compiler.frontends.onnx_graph import known_operators

    missing = sorted({node.op_type for node in _nodes(graph)} - known_operators())
    if missing:
        raise InputError(
            f"{what}: TVM has no conversion for the ONNX operator{'s' * (len(missing) > 1)} "
            f"{listed(missing)}",
            cure="replace them in the network and export it again",
        )


def _convert(model: onnx.ModelProto, what: str) -> tvm.IRModule:
    from tunefleet.compiler.frontends.onnx_graph import convert
    from tunefleet.compiler.frontends.relax_ import cannot_import, tidy

    _check_operators(model.graph, what)
    try:
        return tidy(convert(model))
    except Exception as exc:
        forget_frames(exc)
        _check_valid(model, what)
        raise cannot_import(what, exc) from exc


def _check_valid(model: onnx.ModelProto, what: str) -> None:
    """Blames the file, where ONNX's own checker does."""
    import onnx

    try:
        onnx.checker.check_model(model)
    except onnx.checker.ValidationError as exc:
        raise InputError(
            f"{what} is not valid ONNX: {str(exc).splitlines()[0][:120]}",
            cure="export it again",
        ) from exc
    except Exception:
        # Beyond 2 GB the checker itself gives up, which says nothing of the file.
        return
