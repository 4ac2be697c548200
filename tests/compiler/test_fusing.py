"""Fusion is limited where programs grow exponentially, and passes over long networks take linear
time."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tests.compiler.onnx_nodes import convert, model
from tests.compiler.test_graph import array, build, relax_names

pytestmark = pytest.mark.tvm


def _prepared(mod: Any) -> Any:
    from tunefleet.compiler.graph.pipeline import prepare
    from tunefleet.compiler.toolchain.host import native_target, to_tvm

    return prepare(mod, to_tvm(native_target(1)))


def _outputs(prepared: Any, x: np.ndarray) -> np.ndarray:
    from tunefleet.compiler.code.executable import compile_network, run_compiled
    from tunefleet.compiler.toolchain.host import native_target

    (output,) = run_compiled(compile_network(prepared, native_target(1), {}), [x])
    return output


def _programs(prepared: Any) -> list[str]:
    names = [name.name_hint for name in prepared.get_global_vars()]
    return [name for name in names if name != "main"]


def _doublings(count: int) -> Any:
    from tvm import relax

    def emit(builder: Any, x: Any) -> Any:
        for _ in range(count):
            x = builder.emit(relax.op.add(x, x))
        return x

    return build(emit, (4,))


def _convolutions(builder: Any, x: Any) -> Any:
    from tvm import relax

    first = x
    for seed in range(4):
        weight = relax.const(array(4, 4, 3, 3, seed=seed))
        x = builder.emit(relax.op.nn.relu(builder.emit(relax.op.nn.conv2d(x, weight, padding=1))))
        x = builder.emit(relax.op.add(x, first))
    return x


def test_an_expression_that_doubles_with_each_operator_is_divided() -> None:
    prepared, x = _prepared(_doublings(30)), array(4)
    assert len(_programs(prepared)) > 2
    np.testing.assert_array_equal(x * 2.0**30, _outputs(prepared, x))


def test_what_is_read_by_more_than_elementwise_programs_is_not_inlined() -> None:
    """Layers that add to one stream, as in a transformer: nothing of it grows with their number."""
    from tvm import relax

    def emit(builder: Any, x: Any) -> Any:
        weight = relax.const(array(4, 4))
        for _ in range(14):
            inner = builder.emit(relax.op.matmul(x, weight))
            total = builder.emit(relax.op.add(x, inner))
            x = builder.emit(relax.op.nn.silu(total))
        return x

    assert len(_programs(_prepared(build(emit, (4, 4))))) == 1


def test_a_network_without_convolutions_keeps_its_layouts() -> None:
    from tunefleet.compiler.graph.layout import with_channels_last

    mod = _doublings(3)
    assert with_channels_last(mod) is mod


def test_blocks_change_neither_results_nor_programs(monkeypatch: pytest.MonkeyPatch) -> None:
    from tunefleet.compiler.graph import layout

    mod, x = build(_convolutions), array(1, 4, 6, 6)
    whole = _prepared(mod)
    monkeypatch.setattr(layout, "_LONGEST_BLOCK", 5)
    divided = _prepared(mod)
    assert sorted(_programs(whole)) == sorted(_programs(divided))
    np.testing.assert_allclose(_outputs(divided, x), _outputs(whole, x), rtol=1e-5)


@pytest.mark.parametrize("operator", ["Sum", "Mean", "Max", "Min"])
def test_many_inputs_are_combined_by_pairs(operator: str) -> None:
    inputs = [array(2, 3, seed=seed) for seed in range(7)]
    network = convert(model(operator, inputs))
    assert "relax.concat" not in relax_names(network)
    assert 6 <= len(relax_names(network)) <= 7


def test_many_tensors_are_joined_in_groups() -> None:
    from tvm import relax

    from tunefleet.compiler.graph.legalize import legalize

    def emit(builder: Any, x: Any) -> Any:
        parts = [builder.emit(relax.op.add(x, relax.const(np.float32(i)))) for i in range(150)]
        return builder.emit(relax.op.concat(parts, axis=0))

    mod, x = build(emit, (1, 2)), array(1, 2)
    joined = x + np.arange(150, dtype="float32")[:, None]
    np.testing.assert_array_equal(joined, _outputs(_prepared(mod), x))
    assert sum("concatenate" in name for name in _programs(legalize()(mod))) > 1
