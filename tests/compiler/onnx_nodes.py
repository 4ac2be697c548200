"""One ONNX node, run by the compiled conversion and by ONNX Runtime."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from tunefleet.artifacts.onnx_session import WRONG_FUSIONS, open_session, session_options

_VERSIONS = {"": 21, "com.microsoft": 1}


def random(*shape: int, seed: int = 0, scale: float = 1.0) -> np.ndarray:
    values = np.random.default_rng(seed + sum(shape)).standard_normal(shape)
    return (scale * values).astype("float32")


def model(
    operator: str,
    inputs: Sequence[np.ndarray | None],
    outputs: Sequence[str] = ("y",),
    constants: Collection[int] = (),
    domain: str = "",
    opset: int | None = None,
    **attrs: Any,
) -> Any:
    """A network of one node; `constants` are the inputs that are weights."""
    import onnx
    from onnx import helper, numpy_helper

    names = [f"x{i}" if array is not None else "" for i, array in enumerate(inputs)]
    given = [
        (i, name, array)
        for i, (name, array) in enumerate(zip(names, inputs, strict=True))
        if array is not None
    ]
    node = helper.make_node(operator, names, list(outputs), domain=domain, **attrs)
    graph = helper.make_graph(
        [node],
        "graph",
        [
            helper.make_tensor_value_info(
                name, helper.np_dtype_to_tensor_dtype(array.dtype), array.shape
            )
            for i, name, array in given
            if i not in constants
        ],
        [onnx.ValueInfoProto(name=name) for name in outputs if name],
        [numpy_helper.from_array(array, name) for i, name, array in given if i in constants],
    )
    versions = {**_VERSIONS, **({domain: opset} if opset else {})}
    imports = [helper.make_opsetid(*version) for version in versions.items()]
    return helper.make_model(graph, opset_imports=imports, ir_version=10)


def feed(network: Any, inputs: Sequence[np.ndarray | None]) -> dict[str, np.ndarray]:
    wanted = {value.name for value in network.graph.input}
    named = {f"x{i}": array for i, array in enumerate(inputs) if array is not None}
    return {name: array for name, array in named.items() if name in wanted}


def convert(network: Any) -> Any:
    """A Relax module of a whole network with static shapes and its weights inside."""
    from tunefleet.compiler.frontends.onnx_file import OnnxWeights
    from tunefleet.compiler.frontends.onnx_graph import Importer
    from tunefleet.compiler.frontends.onnx_types import types_of

    weights = OnnxWeights(Path(), {})
    importer = Importer(network, weights, types_of(network, weights), {})

    def write() -> None:
        for node in network.graph.node:
            importer.convert(node)

    return importer.build(write)


def compiled(network: Any, arrays: dict[str, np.ndarray]) -> list[np.ndarray]:
    """The outputs of the network as it is converted."""
    from tunefleet.compiler.frontends import onnx_graph

    tvm = onnx_graph.tvm
    executable = tvm.compile(convert(network), "llvm")
    machine = tvm.relax.VirtualMachine(executable, tvm.cpu())
    result = machine["main"](*(tvm.runtime.tensor(array) for array in arrays.values()))
    return [r.numpy() for r in ([result] if hasattr(result, "numpy") else result)]


def prepared(network: Any, arrays: dict[str, np.ndarray]) -> list[np.ndarray]:
    """The outputs of the network after the graph pipeline, with plain schedules."""
    from tunefleet.compiler.code.executable import compile_network, run_compiled
    from tunefleet.compiler.frontends.relax_ import tidy
    from tunefleet.compiler.graph.pipeline import prepare
    from tunefleet.compiler.toolchain.host import native_target, to_tvm

    target = native_target(1)
    module = prepare(tidy(convert(network)), to_tvm(target))
    return run_compiled(compile_network(module, target, {}), list(arrays.values()))


def expected(network: Any, arrays: dict[str, np.ndarray]) -> list[np.ndarray]:
    """The outputs by ONNX Runtime."""
    source, options = network.SerializeToString(), session_options(1)
    session = open_session(source, options, disabled_optimizers=WRONG_FUSIONS)
    return session.run(None, arrays)


def check(
    operator: str,
    inputs: Sequence[np.ndarray | None],
    *,
    rtol: float = 1e-4,
    atol: float = 1e-5,
    by: Callable[[Any, dict[str, np.ndarray]], list[np.ndarray]] = compiled,
    **form: Any,
) -> None:
    """Both give the same outputs; `by` compiles the network."""
    network = model(operator, inputs, **form)
    arrays = feed(network, inputs)
    ours, theirs = by(network, arrays), expected(network, arrays)
    assert [a.shape for a in theirs] == [a.shape for a in ours]
    assert [a.dtype for a in theirs] == [a.dtype for a in ours]
    for mine, other in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(mine, other, rtol=rtol, atol=atol)
