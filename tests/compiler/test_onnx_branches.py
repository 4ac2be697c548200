"""Branches whose condition follows from constants are chosen, others stay."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pytest

onnx = pytest.importorskip("onnx")

pytestmark = pytest.mark.tvm

helper, kinds = onnx.helper, onnx.TensorProto


def _network(condition: list[Any], tensors: list[Any]) -> Any:
    """Adds or subtracts x, by `c`, which `condition` computes."""
    x, y = (helper.make_tensor_value_info(name, kinds.FLOAT, [2]) for name in "xy")
    branches = {
        f"{name}_branch": helper.make_graph(
            [helper.make_node(operator, ["x", "x"], [name])],
            name,
            [],
            [helper.make_tensor_value_info(name, kinds.FLOAT, [2])],
        )
        for name, operator in (("then", "Add"), ("else", "Sub"))
    }
    nodes = [*condition, helper.make_node("If", ["c"], ["y"], **branches)]
    graph = helper.make_graph(nodes, "graph", [x], [y], tensors)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def _operators(network: Any) -> list[str]:
    from tunefleet.compiler.frontends.onnx_branches import choose_branches

    return [node.op_type for node in choose_branches(network).graph.node]


@pytest.mark.parametrize(("truth", "operator"), [(True, "Add"), (False, "Sub")])
def test_a_condition_that_is_constant_chooses(truth: bool, operator: str) -> None:
    tensors = [onnx.numpy_helper.from_array(np.array(truth), "t")]
    chosen = _operators(_network([helper.make_node("And", ["t", "t"], ["c"])], tensors))
    assert operator in chosen
    assert "If" not in chosen


def test_a_condition_at_the_end_of_a_deep_network_stays() -> None:
    names = ["x", *(f"x{i}" for i in range(3000))]
    deep = [helper.make_node("Relu", [a], [b]) for a, b in pairwise(names)]
    deep += [
        helper.make_node("ReduceMax", [names[-1]], ["m"], keepdims=0),
        helper.make_node("Cast", ["m"], ["c"], to=kinds.BOOL),
    ]
    assert "If" in _operators(_network(deep, []))


def test_a_condition_that_waits_for_itself_stays() -> None:
    circle = [helper.make_node("Not", ["d"], ["c"]), helper.make_node("Not", ["c"], ["d"])]
    assert "If" in _operators(_network(circle, []))
