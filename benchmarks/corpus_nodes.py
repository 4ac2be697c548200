"""ONNX's own backend tests as networks: which are taken, and whether they pass.

A test is a model of mostly one node with inputs and the outputs that they must give. The ONNX
package makes the node tests from its reference code and holds the data of the others.
"""

from __future__ import annotations

import multiprocessing
import shutil
import tempfile
import time
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal

import numpy as np
import onnx
from numpy.typing import NDArray

Array = NDArray[Any]

_KINDS = ("node", "simple", "pytorch-converted", "pytorch-operator", "real")
_RANDOM = frozenset(
    ("Bernoulli", "Multinomial", "RandomNormal", "RandomNormalLike", "RandomUniform")
) | {"RandomUniformLike"}
_TRAINING = frozenset(("ai.onnx.preview.training", "ai.onnx.training"))
#: Types of tensors that NumPy has itself.
_NUMERIC = frozenset(
    getattr(onnx.TensorProto, name)
    for name in (
        "BOOL", "FLOAT16", "FLOAT", "DOUBLE", "INT8", "INT16", "INT32", "INT64",
        "UINT8", "UINT16", "UINT32", "UINT64",
    )
)  # fmt: skip
#: Inputs of operators that say how, not on what, and that no shape follows from.
_SETTINGS: dict[str, tuple[int, ...]] = {
    "CumProd": (1,),
    "CumSum": (1,),
    "DFT": (1, 2),
    "MelWeightMatrix": (0, 1, 2, 3, 4),
    "NonMaxSuppression": (2, 3, 4),
    "Trilu": (1,),
}
#: What ONNX's runner adds to the tolerance is nothing beside float32's own precision.
_LEAST_ABSOLUTE = 1e-6
#: Half precision, of which results are rounded to a thousandth.
_HALF = 4e-3
_TIME_LIMIT_S = 120.0


@dataclass(frozen=True)
class NodeTest:
    """A test: a model, its inputs by name, the outputs that they must give.

    `left_out` says why the test is none of those counted, "" for the others.
    """

    name: str
    kind: str
    model: onnx.ModelProto
    inputs: dict[str, Array]
    expected: tuple[Array, ...]
    rtol: float
    atol: float
    left_out: str = ""

    @property
    def operators(self) -> str:
        nodes = {(f"{n.domain}." if n.domain else "") + n.op_type for n in self.model.graph.node}
        return ", ".join(sorted(nodes)) if len(nodes) <= 4 else f"{len(nodes)} operators"


@dataclass(frozen=True)
class Outcome:
    """What became of a test. `form`: compiled whole, in part (`segments`), or not at all, with
    everything outside (`outside`); `reason` is why it failed or what stays outside, and why."""

    passed: bool
    form: Literal["whole", "segments", "outside", "none"]
    reason: str
    seconds: float


def tests() -> Iterator[NodeTest]:
    """Every test of the ONNX package, those that are left out too."""
    for kind in _KINDS:
        for case in _cases(kind):
            yield _test(case, kind)


def named(name: str) -> NodeTest:
    """The test of a name such as ``node/test_abs``; KeyError if there is none."""
    kind, _, test = name.partition("/")
    return _test(_by_name(kind)[test], kind)


@lru_cache
def _by_name(kind: str) -> dict[str, Any]:
    return {case.name: case for case in _cases(kind)}


def _cases(kind: str) -> list[Any]:
    from onnx.backend.test.loader import load_model_tests

    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        cases = load_model_tests(kind=kind)
    return sorted(cases, key=lambda case: case.name)


def _test(case: Any, kind: str) -> NodeTest:
    model, inputs, outputs = _loaded(case)
    reason = _left_out(model)
    feed: dict[str, Any] = {}
    expected: tuple[Any, ...] = ()
    if not reason:
        initial = {tensor.name for tensor in model.graph.initializer}
        names = [v.name for v in model.graph.input if v.name not in initial]
        feed = {n: np.asarray(_array(x)) for n, x in zip(names, inputs, strict=False)}
        expected = tuple(np.asarray(_array(x)) for x in outputs)
    name = f"{kind}/{case.name}"
    return NodeTest(name, kind, model, feed, expected, case.rtol, case.atol, reason)


def _loaded(case: Any) -> tuple[onnx.ModelProto, Sequence[Any], Sequence[Any]]:
    if case.model is not None:
        inputs, outputs = case.data_sets[0]
        return case.model, inputs, outputs
    if case.model_dir is None:
        return _light(case)
    folder = Path(case.model_dir)
    model = onnx.load(folder / "model.onnx")
    data = folder / "test_data_set_0"
    found = [
        [_tensor(path) for path in sorted(data.glob(f"{part}_*.pb"), key=_number)]
        for part in ("input", "output")
    ]
    return model, found[0], found[1]


def _light(case: Any) -> tuple[onnx.ModelProto, Sequence[Any], Sequence[Any]]:
    """Large networks with weights that repeat one number, and the inputs ONNX's runner makes."""
    package = Path(onnx.__file__).parent.parent
    path = package / case.url
    model = onnx.load(path)
    initial = {tensor.name for tensor in model.graph.initializer}
    shapes = [
        [dim.dim_value for dim in value.type.tensor_type.shape.dim]
        for value in model.graph.input
        if value.name not in initial
    ]
    inputs = [_ramp(shape) for shape in shapes]
    output = _tensor(path.with_name(f"{path.stem}_output_0.pb"))
    return model, inputs, [output]


def _ramp(shape: Sequence[int]) -> Array:
    size = int(np.prod(shape))
    return (np.arange(size, dtype="float32") / size).reshape(shape)


def _number(path: Path) -> int:
    return int(path.stem.rpartition("_")[2])


def _tensor(path: Path) -> Any:
    tensor = onnx.TensorProto()
    tensor.ParseFromString(path.read_bytes())
    return tensor


def _array(value: Any) -> Any:
    return onnx.numpy_helper.to_array(value) if isinstance(value, onnx.TensorProto) else value


def _left_out(model: onnx.ModelProto) -> str:
    """Why a test is not counted, by rules on what its graph holds."""
    graph = model.graph
    nodes = list(_nodes(graph))
    if any(node.domain in _TRAINING for node in nodes):
        return "operators of training"
    if any(node.op_type in _RANDOM and not node.domain for node in nodes):
        return "random operators"
    if any(_trains(node, graph) for node in nodes):
        return "operators in training mode"
    for value in (*graph.input, *graph.output):
        kind = value.type.WhichOneof("value")
        if kind != "tensor_type":
            return f"inputs or outputs of type {(kind or 'none').removesuffix('_type')}"
        element = value.type.tensor_type.elem_type
        if element == onnx.TensorProto.STRING:
            return "tensors of text"
        if element not in _NUMERIC:
            return f"tensors of {onnx.TensorProto.DataType.Name(element).lower()}"
    if any("Sequence" in node.op_type or "Optional" in node.op_type for node in nodes):
        return "sequences or optional values inside"
    return ""


def _nodes(graph: onnx.GraphProto) -> Iterator[onnx.NodeProto]:
    for node in graph.node:
        yield node
        for attribute in node.attribute:
            if attribute.type == onnx.AttributeProto.GRAPH:
                yield from _nodes(attribute.g)


def _trains(node: onnx.NodeProto, graph: onnx.GraphProto) -> bool:
    if any(a.name == "training_mode" and a.i for a in node.attribute):
        return True
    # Whether a dropout trains is an input, which these tests give as true.
    return node.op_type == "Dropout" and len(node.input) > 2 and bool(node.input[2])


def baked(test: NodeTest) -> tuple[onnx.ModelProto, dict[str, Array]]:
    """The model with the inputs that shapes follow from as constants, and what is left to feed.

    Networks are compiled for given shapes: what ONNX's inference cannot do without to know the
    shapes, and axes, are constants of a network. All other inputs stay inputs.
    """
    model = onnx.ModelProto()
    model.CopyFrom(test.model)
    settings = {
        node.input[i]
        for node in model.graph.node
        for i in _SETTINGS.get(node.op_type, ())
        if i < len(node.input)
    }
    chosen = {name for name in test.inputs if name in settings}
    candidates = {n for n, x in test.inputs.items() if x.ndim <= 1 and n not in chosen}
    if candidates and not _is_static(model, test.inputs, chosen):
        every = chosen | candidates
        if _is_static(model, test.inputs, every):
            for name in sorted(candidates):
                if _is_static(model, test.inputs, every - {name}):
                    every = every - {name}
            chosen = every
        else:
            # ONNX cannot infer the shapes of some operators at all.
            chosen |= {name for name in candidates if test.inputs[name].dtype == np.int64}
            if chosen == set(test.inputs):
                chosen = set()
    return _with_constants(model, test.inputs, chosen), {
        name: x for name, x in test.inputs.items() if name not in chosen
    }


def _with_constants(
    model: onnx.ModelProto, inputs: dict[str, Array], names: set[str]
) -> onnx.ModelProto:
    result = onnx.ModelProto()
    result.CopyFrom(model)
    kept = [value for value in result.graph.input if value.name not in names]
    del result.graph.input[:]
    result.graph.input.extend(kept)
    for name in sorted(names):
        result.graph.initializer.append(onnx.numpy_helper.from_array(inputs[name], name))
    return result


def _is_static(model: onnx.ModelProto, inputs: dict[str, Array], names: set[str]) -> bool:
    """Whether ONNX infers the shape of every output."""
    asked = _with_constants(model, inputs, names)
    for value in asked.graph.output:
        value.type.tensor_type.ClearField("shape")
    try:
        found = onnx.shape_inference.infer_shapes(asked, data_prop=True)
    except Exception:  # it has no rule for this operator: nothing follows from inputs
        return True
    return all(
        value.type.tensor_type.HasField("shape")
        and all(dim.HasField("dim_value") for dim in value.type.tensor_type.shape.dim)
        for value in found.graph.output
    )


def run(test: NodeTest) -> Outcome:
    """Imports a test as a network, compiles it without a search and compares its outputs."""
    started = time.perf_counter()
    folder = Path(tempfile.mkdtemp(prefix="node-test-"))
    try:
        form, outputs, reason = _outputs(test, folder)
    except Exception as exc:
        line = next((x.strip() for x in str(exc).splitlines() if x.strip()), "")
        reason = f"{type(exc).__name__}: {line}"[:240]
        return Outcome(False, "none", reason, time.perf_counter() - started)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    wrong = _difference(test, outputs)
    return Outcome(not wrong, form, wrong or reason, time.perf_counter() - started)


def _outputs(
    test: NodeTest, folder: Path
) -> tuple[Literal["whole", "segments", "outside"], list[Array], str]:
    from tunefleet.artifacts.segments import register_segments
    from tunefleet.compiler.code.executable import compile_network, run_compiled
    from tunefleet.compiler.frontends.imported import ImportRequest
    from tunefleet.compiler.frontends.onnx_ import OnnxFrontend
    from tunefleet.compiler.graph.pipeline import prepare
    from tunefleet.compiler.graph.tasks import call_counts
    from tunefleet.compiler.toolchain.host import native_target, to_tvm
    from tunefleet.core.shapes import ShapeRequest

    model, feed = baked(test)
    path = folder / "network.onnx"
    onnx.save(model, path)
    shapes = ShapeRequest.of(shapes=[(name, x.shape) for name, x in feed.items()])
    network = OnnxFrontend().load(str(path), ImportRequest(folder, shapes))
    target = native_target(1)
    prepared = prepare(network.mod, to_tvm(target))
    register_segments(folder)
    compiled = compile_network(prepared, target, {})
    outputs = run_compiled(compiled, [feed[spec.name] for spec in network.info.inputs])
    if not network.segments:
        return "whole", outputs, ""
    form: Literal["segments", "outside"] = "segments" if call_counts(prepared) else "outside"
    return form, outputs, "; ".join(segment.reason for segment in network.segments)


def _difference(test: NodeTest, outputs: Sequence[Array]) -> str:
    """What is wrong with the outputs, "" for nothing. Integers must be equal."""
    if len(outputs) != len(test.expected):
        return f"{len(outputs)} outputs instead of {len(test.expected)}"
    for ours, theirs in zip(outputs, test.expected, strict=True):
        if (ours.dtype, ours.shape) != (theirs.dtype, theirs.shape):
            return f"{ours.dtype}{ours.shape} instead of {theirs.dtype}{theirs.shape}"
        if theirs.dtype.kind != "f":
            wrong = int((ours != theirs).sum())
            if wrong:
                return f"wrong values: {wrong} of {theirs.size} differ"
            continue
        half = _HALF if theirs.dtype == np.float16 else 0.0
        rtol, atol = max(test.rtol, half), max(test.atol, half, _LEAST_ABSOLUTE)
        close = np.isclose(ours, theirs, rtol, atol, equal_nan=True)
        if not close.all():
            return f"wrong values: {int((~close).sum())} of {theirs.size} differ"
    return ""


class Runner:
    """Runs tests in a child process, which ends with a test that crashes or takes too long, and is
    then replaced."""

    def __init__(self, limit_s: float = _TIME_LIMIT_S) -> None:
        self._limit_s = limit_s
        self._child: Any = None
        self._pipe: Any = None

    def __enter__(self) -> Runner:
        return self

    def __exit__(self, *_: object) -> None:
        self._stop()

    def run(self, name: str) -> Outcome:
        """The outcome of the test of a name (`named`)."""
        if self._child is None:
            context = multiprocessing.get_context("spawn")
            self._pipe, theirs = context.Pipe()
            self._child = context.Process(target=_serve, args=(theirs,), daemon=True)
            self._child.start()
            theirs.close()
            self._pipe.recv()  # the compiler is loaded: its seconds are no test's
        started = time.perf_counter()
        self._pipe.send(name)
        try:
            if self._pipe.poll(self._limit_s):
                found: Outcome = self._pipe.recv()
                return found
            reason = f"took longer than {self._limit_s:.0f} s"
        except EOFError:
            reason = "the process crashed"
        self._stop()
        return Outcome(False, "none", reason, time.perf_counter() - started)

    def _stop(self) -> None:
        if self._child is not None:
            self._child.kill()
            self._child.join()
            self._child = None


def _serve(pipe: Any) -> None:
    from tunefleet.artifacts.runtime import set_threads

    set_threads(1)
    pipe.send("ready")
    while True:
        try:
            name = pipe.recv()
        except EOFError:
            return
        with np.errstate(all="ignore"), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            pipe.send(run(named(name)))
