"""Pads of zeros before maximum pooling, which ONNX Runtime fuses as if they were less than any
number; with wide pads it then cannot open the file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import numpy_helper, parser
from onnx.reference import ReferenceEvaluator
from tests.compiler import onnx_nodes

from tunefleet.artifacts.segments import _open_onnx
from tunefleet.compiler.frontends import ImportRequest, load_network
from tunefleet.errors import InputError

pytestmark = [pytest.mark.tvm, pytest.mark.filterwarnings("ignore")]

_GRAPH = """<ir_version: 9, opset_import: ["":18]>
g (float[1,2,8,8] x) => (float[1,2,h,w] y)
{{ a = Abs(x) n = Neg(a) p = Pad(n, pads) y = MaxPool<kernel_shape = [{size},{size}]>(p) }}"""


@pytest.mark.parametrize(("size", "width"), [(3, 1), (2, 2)], ids=["narrow", "wide"])
def test_zeros_before_a_pool_are_zeros(size: int, width: int, tmp_path: Path) -> None:
    network: Any = parser.parse_model(_GRAPH.format(size=size))
    pads = np.array([0, 0, width, width] * 2, "int64")
    network.graph.initializer.append(numpy_helper.from_array(pads, "pads"))
    onnx.save(network, tmp_path / "network.onnx")
    imported = load_network(tmp_path / "network.onnx", ImportRequest(tmp_path))
    (x,) = imported.example_inputs
    (wanted,) = ReferenceEvaluator(network).run(None, {"x": x})
    assert wanted.max() == 0
    compiled: Any = onnx_nodes.prepared(network, {"x": x})
    for found in (
        compiled[0],
        imported.reference([x])[0],
        _open_onnx(tmp_path / "network.onnx", 1)([x])[0],
    ):
        np.testing.assert_array_equal(found, wanted)
    module: Any = imported.mod
    assert "R.nn.pad" in str(module["main"])


@pytest.mark.parametrize("rule", ["SAME_UPPER", "SAME_LOWER"])
@pytest.mark.parametrize("operator", ["MaxPool", "AveragePool"])
def test_dilated_pooling_by_a_rule_stays_in_onnx_runtime(operator: str, rule: str) -> None:
    """ONNX Runtime makes another shape of it than the standard."""
    form: dict[str, Any] = {"kernel_shape": [2, 2], "dilations": [2, 2], "auto_pad": rule}
    network = onnx_nodes.model(operator, [onnx_nodes.random(1, 3, 8, 7)], opset=20, **form)
    with pytest.raises(Exception, match="SAME with dilations"):
        onnx_nodes.convert(network)


@pytest.mark.parametrize(
    ("operator", "inputs", "form"),
    [
        (
            "Conv",
            [onnx_nodes.random(1, 2, 8, 7), onnx_nodes.random(3, 2, 3, 3)],
            {"dilations": [2, 2], "constants": [1]},
        ),
        ("MaxPool", [onnx_nodes.random(1, 2, 6, 9)], {"strides": [3, 3], "kernel_shape": [2, 2]}),
    ],
)
def test_rules_of_padding_that_onnx_runtime_does_not_run_are_named(
    operator: str, inputs: list[Any], form: dict[str, Any], tmp_path: Path
) -> None:
    network = onnx_nodes.model(operator, inputs, auto_pad="SAME_UPPER", **form)
    onnx.save(network, tmp_path / "network.onnx")
    imported = load_network(tmp_path / "network.onnx", ImportRequest(tmp_path))
    with pytest.raises(InputError, match="pads instead of auto_pad"):
        imported.reference(imported.example_inputs)


@pytest.mark.parametrize("rule", ["SAME_UPPER", "SAME_LOWER"])
def test_transposed_convolutions_are_padded_by_a_rule_as_onnx_runtime_does(rule: str) -> None:
    inputs = [onnx_nodes.random(1, 2, 8, 7), onnx_nodes.random(2, 3, 2, 3)]
    form: dict[str, Any] = {"dilations": [2, 1], "strides": [2, 3], "auto_pad": rule}
    onnx_nodes.check("ConvTranspose", inputs, constants=[1], **form)
    onnx_nodes.check("ConvTranspose", inputs, constants=[1], output_padding=[1, 2], **form)
