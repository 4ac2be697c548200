"""TVM's own conversion of a node, for rules that mend only its inputs or attributes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tunefleet.compiler.frontends.onnx_operators.node import Node

from tvm.relax.frontend.onnx import onnx_frontend  # isort: skip  (TVM is loaded our way first)


def by_tvm(node: Node, operator: str, inputs: Sequence[Any], attrs: dict[str, Any]) -> Any:
    """What TVM makes of `operator` with these inputs and attributes."""
    # The table is private to TVM; asked for here, so that one line depends on it.
    conversion = onnx_frontend._get_convert_map()[operator].get_converter(node.opset)
    raw = {k: v.encode() if isinstance(v, str) else v for k, v in attrs.items()}
    raw["tvm_custom"] = {"name": node.name, "num_outputs": len(node.outputs)}
    return node.typed(conversion(node.builder, onnx_frontend.onnx_input(inputs), raw, [{}, {}]))
