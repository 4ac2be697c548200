"""ONNX files."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from threading import Timer
from typing import TYPE_CHECKING, Any

import numpy as np

from tunefleet.artifacts.onnx_session import WRONG_FUSIONS, open_session, session_options
from tunefleet.compiler.frontends.blame import cure_of_run, cure_of_runtime, said_by_runtime
from tunefleet.compiler.frontends.examples import seeded_inputs
from tunefleet.compiler.frontends.imported import ImportedNetwork, ImportRequest, check_operators
from tunefleet.compiler.frontends.spec import (
    ONNX_SUFFIX,
    network_digest,
    network_name,
    shown,
    source_path,
)
from tunefleet.compiler.toolchain.quiet import quiet
from tunefleet.core.network import UNKNOWN, NetworkInfo, TensorSpec
from tunefleet.errors import InputError, OptionsNeededError, raise_mistake
from tunefleet.system.packages import require

if TYPE_CHECKING:
    import onnx

    from tunefleet.compiler.frontends.onnx_types import ValueType


_AGAIN = "export or copy it again"
#: Of one value of a network: a search keeps several in memory.
_MOST_BYTES = 8 << 30
#: Seconds of an inference beyond which nobody waits for a search.
_LONGEST_RUN_S = 10.0


class OnnxFrontend:
    """Reads ``.onnx`` files."""

    name = "onnx"

    def accepts(self, spec: str) -> bool:
        return spec.lower().endswith(ONNX_SUFFIX)

    def load(self, spec: str, request: ImportRequest) -> ImportedNetwork:
        path = source_path(spec)
        what = shown(path)
        require(what, ("onnx", "onnxruntime"), "pip install tunefleet[onnx]")
        try:
            with quiet():
                return _load(path, request, what)
        except UnicodeDecodeError as exc:  # protobuf's, of what a file has for text
            raise InputError(f"{what} has names that are not UTF-8", cure=_AGAIN) from exc


class OnnxReference:
    """Runs an ONNX file in ONNX Runtime; a session is made for each number of threads.

    `zeros`: extents of inputs that are zero in the file are not meant. `restamped`: the file says
    that it is of versions that ONNX Runtime does not read. `constants` are fed beside the `inputs`.
    `unoptimised`: operator by operator, as they are in the file, and without rounding that they
    merely allow. `nudged`: with weights that are moved by their last bit. `pooled`: it has pads and
    pools, which ONNX Runtime fuses wrongly. `quantised`: it computes with 8-bit integers.
    """

    framework = "ONNX Runtime"

    def __init__(
        self,
        path: Path,
        inputs: Sequence[TensorSpec],
        constants: Mapping[str, np.ndarray],
        *,
        zeros: bool = False,
        restamped: bool = False,
        unoptimised: bool = False,
        nudged: bool = False,
        pooled: bool = False,
        quantised: bool = False,
    ) -> None:
        self._path = path
        self._pooled = pooled
        self._quantised = quantised
        self._nudged = nudged
        self._unoptimised = unoptimised
        self._zeros = zeros
        self._restamped = restamped
        self._constants = dict(constants)
        self._inputs = tuple(inputs)
        self._sessions: dict[tuple[int, bool], Any] = {}

    def describe(self) -> dict[str, Any]:
        return {
            "kind": "onnx",
            "path": str(self._path.absolute()),
            "inputs": [[t.name, list(t.shape), t.dtype] for t in self._inputs],
            "constants": {
                name: [str(array.dtype), list(array.shape), array.ravel().tolist()]
                for name, array in self._constants.items()
            },
            "zeros": self._zeros,
            "restamped": self._restamped,
            "unoptimised": self._unoptimised,
            "nudged": self._nudged,
            "pooled": self._pooled,
            "quantised": self._quantised,
        }

    @classmethod
    def of(cls, value: Mapping[str, Any]) -> OnnxReference:
        constants = {
            name: np.array(numbers, dtype).reshape(shape)
            for name, (dtype, shape, numbers) in value["constants"].items()
        }
        inputs = [TensorSpec(name, tuple(shape), dtype) for name, shape, dtype in value["inputs"]]
        return cls(
            Path(value["path"]), inputs, constants, zeros=value["zeros"],
            restamped=value["restamped"], unoptimised=value.get("unoptimised", False),
            nudged=value.get("nudged", False), pooled=value.get("pooled", False),
            quantised=value.get("quantised", False),
        )  # fmt: skip

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_sessions": {}}

    def __call__(self, inputs: Sequence[np.ndarray], threads: int = 1) -> list[np.ndarray]:
        return self._run(inputs, threads, None)

    def within(self, inputs: Sequence[np.ndarray], limit_s: float) -> list[np.ndarray]:
        """As a call, of at most so many seconds; InputError where it takes longer."""
        from onnxruntime import RunOptions

        options = RunOptions()
        timer = Timer(limit_s, setattr, (options, "terminate", True))
        timer.start()
        try:
            return self._run(inputs, 1, options)
        except InputError:
            if not options.terminate:
                raise
            raise InputError(
                f"{shown(self._path)}: one inference takes ONNX Runtime more than {limit_s:g} s",
                cure="give smaller shapes: --shape, --dim",
            ) from None
        finally:
            timer.cancel()

    def _run(self, inputs: Sequence[np.ndarray], threads: int, options: Any) -> list[np.ndarray]:
        from tunefleet.compiler.frontends.onnx_maps import as_array

        session = self.open(threads)
        feed = self._feed(inputs)
        try:
            outputs = session.run(None, feed, options)
        except Exception as exc:
            raise_mistake(exc)
            shapes = ", ".join(str(spec) for spec in self._inputs)
            raise OptionsNeededError(
                f"{shown(self._path)}: ONNX Runtime cannot run it with {shapes}: "
                f"{said_by_runtime(exc, self._path)}",
                cure=cure_of_run(exc),
            ) from exc
        return [as_array(output) for output in outputs]

    def bound(self, inputs: Sequence[np.ndarray], threads: int) -> Callable[[], object]:
        # As a user runs it: sums that saturate are faster.
        session = self.open(threads, exact=False)
        feed = self._feed(inputs)
        return lambda: session.run(None, feed)

    def _feed(self, inputs: Sequence[np.ndarray]) -> dict[str, np.ndarray]:
        return self._constants | dict(zip((s.name for s in self._inputs), inputs, strict=True))

    def open(self, threads: int = 1, *, exact: bool = True) -> Any:
        """A session of that many threads; raises InputError where ONNX Runtime has none. `exact`:
        sums of 8-bit integers do not saturate."""
        import onnxruntime

        key = (threads, exact and self._quantised)
        if key in self._sessions:
            return self._sessions[key]
        options = session_options(threads)
        if self._unoptimised:
            options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
        try:
            session = open_session(
                self._source(options),
                options,
                exact=key[1],
                disabled_optimizers=WRONG_FUSIONS if self._pooled else (),
            )
        except Exception as exc:
            raise_mistake(exc)
            raise InputError(
                f"{shown(self._path)}: ONNX Runtime cannot run it: "
                f"{said_by_runtime(exc, self._path)}",
                cure=cure_of_runtime(exc),
            ) from exc
        self._sessions[key] = session
        return session

    def _source(self, options: Any) -> Path | bytes:
        """What a session opens: the file, unless ONNX Runtime would take an extent of zero, which
        an exporter writes where it knows none, by its word, or would not read the version, or is to
        compute something else."""
        if not (self._zeros or self._restamped or self._unoptimised or self._nudged):
            return self._path
        import onnx

        from tunefleet.compiler.frontends.onnx_file import free_zeros
        from tunefleet.compiler.frontends.onnx_otherwise import nudge, without_rounding
        from tunefleet.compiler.frontends.onnx_versions import restamp

        model = onnx.load(self._path, load_external_data=False)
        restamp(model)
        if self._zeros:
            free_zeros(model.graph, self._inputs)
        if self._unoptimised:
            without_rounding(model)
        if self._nudged:
            nudge(model)
        folder = "session.model_external_initializers_file_folder_path"
        options.add_session_config_entry(folder, str(self._path.parent.absolute()))
        return bytes(model.SerializeToString())


def _check_values(types: Mapping[str, ValueType], what: str) -> None:
    """Refuse extents that cannot be, and values that nobody has the memory for."""
    for name, each in types.items():
        shape = each.shape or ()
        if any(extent < UNKNOWN for extent in shape):
            raise InputError(
                f"{what}: value {name} has a negative extent, {min(shape)}",
                cure="give larger shapes, or correct the network",
            )
        if UNKNOWN not in shape and each.dtype is not None:
            size = math.prod(shape) * np.dtype(each.dtype).itemsize
            if size > _MOST_BYTES:
                raise InputError(
                    f"{what}: value {name} has {size / 2**30:,.0f} GiB",
                    cure="give smaller shapes: --shape, --dim",
                )


def _load(path: Path, request: ImportRequest, what: str) -> ImportedNetwork:
    from tunefleet.compiler.frontends.onnx_constants import with_constants
    from tunefleet.compiler.frontends.onnx_file import all_nodes, free_zeros, read_file
    from tunefleet.compiler.frontends.onnx_maps import without_maps
    from tunefleet.compiler.frontends.onnx_network import build_network
    from tunefleet.compiler.frontends.onnx_prepare import prepare
    from tunefleet.compiler.frontends.onnx_shapes import fix_shapes, with_shapes
    from tunefleet.compiler.frontends.onnx_types import NOTHING_KNOWN
    from tunefleet.compiler.frontends.relax_ import tidy
    from tunefleet.compiler.quantize.files import precision_of

    file, notes = without_maps(read_file(path))
    operators = [node.op_type for node in all_nodes(file.model.graph)]
    check_operators(len(operators), what)
    file, constants = with_constants(file, request.shapes.constants)
    fixed = fix_shapes(file, replace(request.shapes, constants=()))
    model = with_shapes(file, fixed.specs)
    zeros = free_zeros(file.model.graph, fixed.specs)
    restamped = file.restamped is not None
    pooled = {"Pad", "MaxPool"} <= set(operators)
    # QLinearConv, MatMulInteger, DynamicQuantizeLSTM ...
    quantised = any("Q" in operator or "Integer" in operator for operator in operators)
    reference = OnnxReference(
        path, fixed.specs, constants, zeros=zeros, restamped=restamped, pooled=pooled,
        quantised=quantised,
    )  # fmt: skip
    prepared = prepare(model, what)
    if not prepared.runs:
        _check_valid(path, what)
        reference.open()
    for value in prepared.model.graph.output:
        _check_output(value, what)
    built = build_network(prepared.model, file.weights, request.folder, what, whole=request.whole)
    _check_values(built.types, what)
    inputs = seeded_inputs(fixed.specs)
    names = [value.name for value in file.model.graph.output]
    known = [built.types.get(name, NOTHING_KNOWN) for name in names]
    # A graph that does not fit the shapes that were chosen shows as nodes that do not convert.
    results = reference.within(inputs, _LONGEST_RUN_S) if built.segments else []
    if any(each.shape is None for each in known):
        # Not even a rank is known: a run tells.
        results = results or reference.within(inputs, _LONGEST_RUN_S)
        shapes = [(UNKNOWN,) * result.ndim for result in results]
    else:
        shapes = [each.shape or () for each in known]
    outputs = tuple(
        TensorSpec(name, shape, _output_dtype(name, each.dtype, what))
        for name, shape, each in zip(names, shapes, known, strict=True)
    )
    info = NetworkInfo(
        network_name(path),
        "onnx",
        network_digest(path),
        fixed.specs,
        outputs,
        constants=request.shapes.constants,
    )
    precision = precision_of({p.key: p.value for p in file.model.metadata_props})
    notes = (
        *notes,
        *([str(precision)] if precision else []),
        *fixed.notes,
        *([file.restamped] if file.restamped else []),
    )
    warnings = precision.warnings if precision else ()
    lost = precision.lost if precision else 0.0
    return ImportedNetwork(
        info, tidy(built.mod), reference, inputs, built.segments, notes, warnings, True, lost
    )


def _output_dtype(name: str, dtype: str | None, what: str) -> str:
    if dtype is None:
        raise InputError(
            f"{what}: output {name} is of a type that NumPy and TVM do not both have",
            cure="export the network with float32 or float16 outputs",
        )
    return dtype


def _check_output(value: onnx.ValueInfoProto, what: str) -> None:
    """Of a prepared graph: a file need not say of what types its outputs are."""
    import onnx

    tensor = value.type.tensor_type
    if value.type.WhichOneof("value") is None:
        raise InputError(
            f"{what}: output {value.name} has no type, and none follows from the graph",
            cure="export it again, with the types of its outputs",
        )
    text = tensor.elem_type == onnx.TensorProto.STRING
    if not value.type.HasField("tensor_type") or text:
        raise InputError(
            f"{what}: output {value.name} is {'text' if text else 'not a tensor'}",
            cure="export a network that returns tensors of numbers",
        )


def _check_valid(path: Path, what: str) -> None:
    """Blames the file, where ONNX's own checker does."""
    import onnx

    try:
        onnx.checker.check_model(str(path))
    except onnx.checker.ValidationError as exc:
        raise InputError(
            f"{what} is not valid ONNX: {str(exc).splitlines()[0][:120]}",
            cure="export it again",
        ) from exc
