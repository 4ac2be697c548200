"""TensorFlow SavedModels, by way of TensorFlow's own converter to TFLite."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from tunefleet.compiler.frontends.examples import NUMPY_DTYPES
from tunefleet.compiler.frontends.free import FreeInput, fixed_inputs
from tunefleet.compiler.frontends.imported import ImportedNetwork, ImportRequest
from tunefleet.compiler.frontends.keras_ import prefer_torch
from tunefleet.compiler.frontends.spec import (
    SAVED_MODEL_FILE,
    is_saved_model,
    is_zoo,
    listed,
    network_digest,
    network_name,
    shown,
    source_path,
)
from tunefleet.compiler.frontends.tflite_ import Names, import_tflite, require_tflite
from tunefleet.compiler.toolchain.quiet import quiet
from tunefleet.core.shapes import ShapeRequest
from tunefleet.errors import InputError, raise_mistake
from tunefleet.system.packages import require

_SIGNATURE = "serving_default"
#: Operators that reach outside the network: files, and Python of the process.
_UNSAFE = frozenset(
    {"EagerPyFunc", "MatchingFiles", "PyFunc", "PyFuncStateless", "ReadFile", "WriteFile"}
)


class SavedModelFrontend:
    """Reads folders that hold a ``saved_model.pb``, in its signature for serving."""

    name = "savedmodel"

    def accepts(self, spec: str) -> bool:
        return not is_zoo(spec) and is_saved_model(spec)

    def load(self, spec: str, request: ImportRequest) -> ImportedNetwork:
        path = source_path(spec)
        what = shown(path)
        with quiet():
            prefer_torch(what)
            _require(what)
            frozen = _freeze(path, what)
            free = [
                FreeInput(name, tuple(extents), frozen.dtypes[name].name)
                for name, extents in frozen.free_shapes.items()
            ]
            fixed = fixed_inputs(free, request.shapes, what)
            shapes = {spec.name: spec.shape for spec in fixed.specs}
            imported = import_tflite(
                _to_tflite(frozen, shapes, what),
                what=what,
                name=network_name(path),
                source=self.name,
                digest=network_digest(path),
                shapes=ShapeRequest(),
                names=Names(list(frozen.inputs), list(frozen.outputs)),
                reference=lambda extents: SavedModelReference(path.absolute(), frozen),
            )
            return replace(imported, notes=fixed.notes)


@dataclass(frozen=True)
class _Frozen:
    """A signature as a graph without variables.

    `inputs` and `outputs` are the names of its tensors by the names that the signature gives them.
    """

    graph: Any
    inputs: Mapping[str, str]
    outputs: Mapping[str, str]
    free_shapes: Mapping[str, Sequence[int | None]]
    dtypes: Mapping[str, Any]


class SavedModelReference:
    """Runs the signature in TensorFlow; a session is made for each number of threads.

    TensorFlow shares the threads of a process: the first session's number holds for all of them.
    """

    framework = "TensorFlow"

    def __init__(self, path: Path, frozen: _Frozen | None = None) -> None:
        self._path = path
        self._frozen = frozen
        self._sessions: dict[int, Any] = {}

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_sessions": {}, "_frozen": None}

    def describe(self) -> dict[str, Any]:
        return {"kind": "saved_model", "path": str(self._path)}

    @classmethod
    def of(cls, value: Mapping[str, Any]) -> SavedModelReference:
        return cls(Path(value["path"]))

    def bound(self, inputs: Sequence[np.ndarray], threads: int) -> Callable[[], object]:
        return lambda: self(inputs, threads)

    def __call__(self, inputs: Sequence[np.ndarray], threads: int = 1) -> list[np.ndarray]:
        if threads not in self._sessions:
            self._sessions[threads] = self._session(threads)
        frozen = self._opened()
        feed = dict(zip(frozen.inputs.values(), inputs, strict=True))
        outputs = list(frozen.outputs.values())
        return [np.asarray(o) for o in self._sessions[threads].run(outputs, feed)]

    def _opened(self) -> _Frozen:
        if self._frozen is None:
            with quiet():
                self._frozen = _freeze(self._path, shown(self._path))
        return self._frozen

    def _session(self, threads: int) -> Any:
        import tensorflow as tf

        graph = tf.Graph()
        with graph.as_default():
            tf.import_graph_def(self._opened().graph, name="")
        return tf.compat.v1.Session(graph=graph, config=_config(threads))


def _require(what: str) -> None:
    require(what, ("tensorflow",), "pip install tunefleet[tensorflow]")
    require_tflite(what, "tensorflow")


def _config(threads: int) -> Any:
    import tensorflow as tf

    return tf.compat.v1.ConfigProto(
        intra_op_parallelism_threads=threads,
        inter_op_parallelism_threads=1,
        device_count={"GPU": 0},
    )


def _freeze(path: Path, what: str) -> _Frozen:
    """The graph alone is read: the Python objects of Keras or others are not made again."""
    import tensorflow as tf

    signature = _signature(path, what)
    v1 = tf.compat.v1
    dtypes = {name: _dtype(tensor, name, what) for name, tensor in signature.inputs.items()}
    outputs = {name: tensor.name for name, tensor in sorted(signature.outputs.items())}
    inputs = {name: tensor.name for name, tensor in sorted(signature.inputs.items())}
    try:
        with v1.Session(graph=tf.Graph(), config=_config(1)) as session:
            v1.saved_model.load(session, ["serve"], str(path))
            graph = v1.graph_util.convert_variables_to_constants(
                session,
                session.graph.as_graph_def(),
                [name.split(":")[0] for name in outputs.values()],
            )
    except (OSError, ValueError, RuntimeError, tf.errors.OpError) as exc:
        raise InputError(
            f"{what} cannot be loaded: {' '.join(str(exc).split())[:120]}",
            cure="save or copy the model again, with its variables",
        ) from exc
    shapes = {name: _extents(signature.inputs[name], name, what) for name in inputs}
    return _Frozen(graph, inputs, outputs, shapes, dtypes)


def _signature(path: Path, what: str) -> Any:
    """The signature for serving; raises InputError for what is not safe to load, too."""
    from google.protobuf.message import DecodeError
    from tensorflow.core.protobuf import saved_model_pb2

    try:
        saved = saved_model_pb2.SavedModel.FromString((path / SAVED_MODEL_FILE).read_bytes())
    except DecodeError as exc:
        raise InputError(
            f"{what} is not a readable SavedModel", cure="save or copy the model again"
        ) from exc
    metas = [meta for meta in saved.meta_graphs if "serve" in meta.meta_info_def.tags]
    signatures = metas[0].signature_def if metas else {}
    if _SIGNATURE not in signatures:
        raise InputError(
            f"{what} has no signature {_SIGNATURE}",
            cure="save it with tf.saved_model.save(..., signatures=...) or model.export(...)",
        )
    unsafe = sorted({n.op for n in _nodes(metas[0].graph_def)} & _UNSAFE)
    if unsafe:
        raise InputError(
            f"{what} reads or writes files, or calls Python, as it runs: {listed(unsafe)}",
            cure="save the network without these operations",
        )
    return signatures[_SIGNATURE]


def _nodes(graph: Any) -> Iterator[Any]:
    yield from graph.node
    for function in graph.library.function:
        yield from function.node_def


def _dtype(tensor: Any, name: str, what: str) -> Any:
    import tensorflow as tf

    dtype = tf.as_dtype(tensor.dtype)
    if dtype.name not in NUMPY_DTYPES:
        raise InputError(
            f"{what}: input {name} holds {dtype.name}, which is not a number",
            cure="save a signature that starts from numbers",
        )
    return dtype


def _extents(tensor: Any, name: str, what: str) -> list[int | None]:
    if tensor.tensor_shape.unknown_rank:
        raise InputError(
            f"{what}: input {name} has no shape", cure="save the model with a shape for it"
        )
    return [int(dim.size) if dim.size >= 0 else None for dim in tensor.tensor_shape.dim]


def _to_tflite(frozen: _Frozen, shapes: Mapping[str, tuple[int, ...]], what: str) -> bytes:
    import tensorflow as tf

    v1 = tf.compat.v1

    def network(*tensors: Any) -> list[Any]:
        given = dict(zip(frozen.inputs.values(), tensors, strict=True))
        fetched = list(frozen.outputs.values())
        made: list[Any] = tf.import_graph_def(
            frozen.graph, input_map=given, return_elements=fetched, name=""
        )
        return made

    specs = [tf.TensorSpec(shapes[n], frozen.dtypes[n], f"input{i}") for i, n in enumerate(shapes)]
    try:
        function = v1.wrap_function(network, specs)
        content: bytes = tf.lite.TFLiteConverter.from_concrete_functions([function]).convert()
    except Exception as exc:
        raise_mistake(exc)
        raise InputError(
            f"{what}: TensorFlow cannot convert it to TFLite: {' '.join(str(exc).split())[:160]}",
            cure="leave such operations out of the signature, and save it again",
        ) from exc
    return content
