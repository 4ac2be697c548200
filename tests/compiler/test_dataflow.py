from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytestmark = pytest.mark.tvm


@pytest.fixture(scope="module")
def branched(target: Any) -> Any:
    """ShuffleNet's programs have two outputs, and calls that several others read."""
    from tunefleet.stages.importing import import_network

    return import_network("zoo:shufflenet_v2?size=32", target)


def test_a_chain_has_a_tensor_between_its_calls(tiny: Any, target: Any) -> None:
    from tunefleet.compiler.graph.dataflow import NetworkFlow

    network = NetworkFlow(tiny.module)
    flow = network.dataflow()
    assert [(t.producer, t.consumers) for t in flow.tensors[:2]] == [(None, (0,)), (0, (1,))]
    assert [flow.tensors[0].size, flow.tensors[-1].size] == [3 * 16 * 16 * 4, 10 * 4]
    assert [flow.tensors[-1]] == [tensor for tensor in flow.tensors if tensor.is_output]
    counts = {t.task.task_id: t.weight for t in tiny.tasks}
    ids = network.task_ids(target)
    assert counts == {task_id: ids.count(task_id) for task_id in ids}


def test_a_network_is_the_same_for_two_processors(tiny: Any) -> None:
    from tunefleet.compiler.graph.dataflow import NetworkFlow
    from tunefleet.core.target import CpuTarget
    from tunefleet.stages.importing import import_network

    other = import_network("zoo:tiny_cnn", CpuTarget("x86-64", 1))
    flows = [NetworkFlow(each.module).dataflow() for each in (tiny, other)]
    assert flows[0] == flows[1]


def test_a_recurrence_of_bytes_is_the_same_for_processors_that_multiply_it_differently(
    tmp_path: Path,
) -> None:
    import onnx
    from tests.compiler.test_onnx_recurrent import _in_bytes, _quantised_lstm

    from tunefleet.compiler.graph.dataflow import NetworkFlow
    from tunefleet.core.target import CpuTarget
    from tunefleet.stages.importing import import_network

    path = tmp_path / "lstm.onnx"
    onnx.save(_quantised_lstm(_in_bytes()), path)
    # With VNNI and without.
    targets = [CpuTarget(mcpu, 1) for mcpu in ("cascadelake", "skylake-avx512")]
    modules = [import_network(str(path), target).module for target in targets]
    flows = [NetworkFlow(module).dataflow() for module in modules]
    assert flows[0] == flows[1]
    ids = [NetworkFlow(module).task_ids(targets[0]) for module in modules]
    (other,) = [call for call, pair in enumerate(zip(*ids, strict=True)) if pair[0] != pair[1]]
    assert other in [c for c, name in enumerate(_programs(modules[0])) if name.startswith("lstm")]


def _programs(module: Any) -> list[str]:
    """The names of the programs that a network calls, in their order."""
    from tvm import relax

    values = [binding.value for block in module["main"].body.blocks for binding in block.bindings]
    calls = [v for v in values if isinstance(v, relax.Call) and v.op.name == "relax.call_tir"]
    return [str(call.args[0].name_hint) for call in calls]


def test_parts_in_turn_compute_what_the_network_does(
    branched: Any, target: Any, tmp_path: Path
) -> None:
    from tunefleet.compiler.code.executable import compile_network, run_compiled
    from tunefleet.compiler.graph.dataflow import NetworkFlow
    from tunefleet.core.placement import parts_of

    network = NetworkFlow(branched.module)
    flow = network.dataflow()
    inputs = branched.variants[0].example_inputs
    expected = run_compiled(compile_network(branched.module, target, {}), inputs)
    tensors: dict[int, Any] = dict(enumerate(inputs))
    chosen = tuple(call // 9 % 2 for call in range(len(flow.calls)))
    parts = parts_of(flow, chosen)
    assert len(parts) > 3
    for part in parts:
        compiled = compile_network(network.module_of(part), target, {}, inside=True)
        assert compiled.weights.arrays == []
        outputs = run_compiled(compiled, [tensors[n] for n in part.inputs])
        tensors |= dict(zip(part.outputs, outputs, strict=True))
    (last,) = [n for n, tensor in enumerate(flow.tensors) if tensor.is_output]
    np.testing.assert_allclose(expected[0].ravel(), tensors[last].ravel(), rtol=1e-5, atol=1e-6)


def test_what_stays_in_its_framework_cannot_be_divided(tiny: Any) -> None:
    from tvm import relax

    from tunefleet.compiler.graph.dataflow import NetworkFlow
    from tunefleet.errors import JobError

    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType((4,), "float32"))
    with builder.function("main", [x]):
        call = relax.call_pure_packed("segment", x, ty_args=[relax.TensorType((4,), "float32")])
        builder.emit_func_output(builder.emit(call))
    with pytest.raises(JobError, match="call_pure_packed"):
        NetworkFlow(builder.finalize())
