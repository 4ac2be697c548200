"""TFLite files."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from tunefleet.compiler.frontends.examples import NUMPY_DTYPES, seeded_inputs
from tunefleet.compiler.frontends.free import FreeInput, fixed_inputs
from tunefleet.compiler.frontends.imported import ImportedNetwork, ImportRequest, Reference
from tunefleet.compiler.frontends.spec import (
    TFLITE_SUFFIX,
    listed,
    network_digest,
    network_name,
    shown,
    source_path,
)
from tunefleet.compiler.toolchain.quiet import forget_frames, quiet
from tunefleet.core.network import NetworkInfo
from tunefleet.core.shapes import ShapeRequest
from tunefleet.errors import InputError, raise_mistake
from tunefleet.system.packages import require

if TYPE_CHECKING:
    import tvm


class TFLiteFrontend:
    """Reads ``.tflite`` files of one graph, in floating point."""

    name = "tflite"

    def accepts(self, spec: str) -> bool:
        return spec.lower().endswith(TFLITE_SUFFIX)

    def load(self, spec: str, request: ImportRequest) -> ImportedNetwork:
        path = source_path(spec)
        what = shown(path)
        require_tflite(what)
        with quiet():
            return import_tflite(
                path.read_bytes(),
                what=what,
                name=network_name(path),
                source=self.name,
                digest=network_digest(path),
                shapes=request.shapes,
                reference=partial(TFLiteReference, path.absolute()),
            )


class TFLiteReference:
    """Runs a TFLite model in LiteRT; an interpreter is made for each number of threads."""

    framework = "LiteRT"

    def __init__(self, path: Path, shapes: Sequence[tuple[int, ...]]) -> None:
        self._path = path
        self._shapes = list(shapes)
        self._interpreters: dict[int, Any] = {}

    def describe(self) -> dict[str, Any]:
        shapes = [list(shape) for shape in self._shapes]
        return {"kind": "tflite", "path": str(self._path), "shapes": shapes}

    @classmethod
    def of(cls, value: Mapping[str, Any]) -> TFLiteReference:
        return cls(Path(value["path"]), [tuple(shape) for shape in value["shapes"]])

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_interpreters": {}}

    def bound(self, inputs: Sequence[np.ndarray], threads: int) -> Callable[[], object]:
        self(inputs, threads)
        run: Callable[[], object] = self._interpreters[threads].invoke
        return run

    def __call__(self, inputs: Sequence[np.ndarray], threads: int = 1) -> list[np.ndarray]:
        if threads not in self._interpreters:
            self._interpreters[threads] = _interpreter(
                self._path.read_bytes(), self._shapes, shown(self._path), threads=threads
            )
        interpreter = self._interpreters[threads]
        _run(interpreter, inputs, shown(self._path))
        return [interpreter.get_tensor(d["index"]) for d in interpreter.get_output_details()]


@dataclass(frozen=True)
class Names:
    """What inputs and outputs are called, in the order of the graph."""

    inputs: list[str]
    outputs: list[str]


def require_tflite(what: str, extra: str = "tflite") -> None:
    """Raises SetupError, naming the extra to install, when a package is missing or unusable."""
    require(what, ("ai_edge_litert", "tflite"), f"pip install tunefleet[{extra}]")


def import_tflite(
    content: bytes,
    *,
    what: str,
    name: str,
    source: str,
    digest: str,
    shapes: ShapeRequest,
    names: Names | None = None,
    reference: Callable[[list[tuple[int, ...]]], Reference],
) -> ImportedNetwork:
    """Converts a TFLite model; raises InputError.

    `shapes` are by the names of inputs: `names`, else those of the model's signature, where it has
    one. `reference` makes what runs the source framework, for the shapes of the inputs.
    """
    model = _parse(content, what)
    names = names or _names(model, what)
    _check_operators(model, what)
    interpreter = _interpreter(content, [], what, threads=1)
    details = interpreter.get_input_details()
    free = [
        FreeInput(n, tuple(_extents(d)), _dtype(n, d, what))
        for n, d in zip(names.inputs, details, strict=True)
    ]
    fixed = fixed_inputs(free, shapes, what)
    inputs = fixed.specs
    extents = [spec.shape for spec in inputs]
    examples = seeded_inputs(inputs)
    mod = _convert(content, model, extents, examples, what)
    from tunefleet.compiler.frontends.relax_ import output_specs

    info = NetworkInfo(name, source, digest, inputs, output_specs(mod, names.outputs, what))
    return ImportedNetwork(info, mod, reference(extents), examples, notes=fixed.notes, drawn=True)


def _interpreter(
    content: bytes,
    shapes: Sequence[tuple[int, ...]],
    what: str,
    *,
    threads: int,
    keep_all: bool = False,
) -> Any:
    """LiteRT with inputs of these shapes (as in the file where there are none).

    `keep_all` keeps every tensor readable after a run, with LiteRT's own kernels.
    """
    from ai_edge_litert.interpreter import Interpreter, OpResolverType

    kernels = OpResolverType.BUILTIN_WITHOUT_DEFAULT_DELEGATES if keep_all else OpResolverType.AUTO
    try:
        interpreter = Interpreter(
            model_content=content,
            num_threads=threads,
            experimental_preserve_all_tensors=keep_all,
            experimental_op_resolver_type=kernels,
        )
    except ValueError as exc:
        raise InputError(
            f"{what} is not a readable TFLite file: {str(exc)[:120]}",
            cure="convert or copy it again",
        ) from exc
    try:
        for detail, shape in zip(interpreter.get_input_details(), shapes, strict=False):
            interpreter.resize_tensor_input(detail["index"], shape)
        if shapes:
            interpreter.allocate_tensors()
    except (RuntimeError, ValueError) as exc:
        raise _cannot_run(what, exc) from exc
    return interpreter


def _run(interpreter: Any, inputs: Sequence[np.ndarray], what: str) -> None:
    try:
        for detail, array in zip(interpreter.get_input_details(), inputs, strict=True):
            interpreter.set_tensor(detail["index"], array)
        interpreter.invoke()
    except RuntimeError as exc:
        raise _cannot_run(what, exc) from exc


def _cannot_run(what: str, exc: Exception) -> InputError:
    return InputError(
        f"{what}: LiteRT cannot run it: {' '.join(str(exc).split())[:120]}",
        cure="convert the network again, or give other input shapes",
    )


def _parse(content: bytes, what: str) -> Any:
    """The file as objects, after LiteRT has verified that it is one."""
    from ai_edge_litert import schema_py_generated as schema

    _interpreter(content, [], what, threads=1)
    return schema.ModelT.InitFromPackedBuf(content, 0)


def _names(model: Any, what: str) -> Names:
    """What the signature calls inputs and outputs, else the names of their tensors."""
    graph = model.subgraphs[0]
    signature = next((s for s in model.signatureDefs or () if s.subgraphIndex == 0), None)
    inputs = _renamed(graph, graph.inputs, signature.inputs if signature else ())
    outputs = _renamed(graph, graph.outputs, signature.outputs if signature else ())
    if not outputs or len({*inputs}) < len(inputs):
        raise InputError(
            f"{what}: its inputs have no names of their own, or it has no outputs",
            cure="convert the network again",
        )
    return Names(inputs, outputs)


def _renamed(graph: Any, tensors: Sequence[int], signature: Any) -> list[str]:
    called = {entry.tensorIndex: entry.name for entry in signature or ()}
    names = [called.get(index, graph.tensors[index].name) for index in tensors]
    return [name.decode() if isinstance(name, bytes) else str(name) for name in names]


def _check_operators(model: Any, what: str) -> None:
    """Raises InputError for operators that neither LiteRT nor TVM has."""
    from tunefleet.compiler.frontends.tflite_graph import operator_name

    used = {operator_name(model, o) for graph in model.subgraphs for o in graph.operators}
    custom = sorted(name for name in used if name.startswith("CUSTOM"))
    if custom:
        raise InputError(
            f"{what} uses operators that are not TFLite's own: {listed(custom)}",
            cure="convert the network with the builtin operators only",
        )


def _extents(detail: Any) -> list[int | None]:
    """The shape of an input, with None for free extents."""
    signature = detail["shape_signature"]
    shape = signature if len(signature) else detail["shape"]
    return [int(extent) if extent > 0 else None for extent in shape]


def _dtype(name: str, detail: Any, what: str) -> str:
    dtype = str(np.dtype(detail["dtype"]).name)
    if dtype not in NUMPY_DTYPES:
        raise InputError(
            f"{what}: input {name} holds {dtype}, which is not a number",
            cure="convert the network from its first tensor of numbers on",
        )
    return dtype


def _convert(
    content: bytes,
    model: Any,
    shapes: Sequence[tuple[int, ...]],
    examples: Sequence[np.ndarray],
    what: str,
) -> tvm.IRModule:
    from tunefleet.compiler.frontends.relax_ import cannot_import, tidy
    from tunefleet.compiler.frontends.tflite_graph import check_float, convert, specialise

    interpreter = _interpreter(content, shapes, what, threads=1, keep_all=True)
    _run(interpreter, [np.zeros_like(array) for array in examples], what)
    before = _shapes(interpreter)
    _run(interpreter, examples, what)
    if before != _shapes(interpreter):
        raise InputError(
            f"{what}: shapes inside depend on what the inputs hold",
            cure="leave such operators (non-maximum suppression, where) out of the network",
        )
    specialise(model, interpreter)
    check_float(model, what)
    try:
        mod = convert(model, what)
        if len(mod.get_global_vars()) > 1:
            raise NotImplementedError("control flow, or an operator that is a function of its own")
        return tidy(mod)
    except InputError:
        raise
    except Exception as exc:
        raise_mistake(exc)
        forget_frames(exc)
        raise cannot_import(what, exc) from exc


def _shapes(interpreter: Any) -> Mapping[int, tuple[int, ...]]:
    return {d["index"]: tuple(d["shape"]) for d in interpreter.get_tensor_details()}
