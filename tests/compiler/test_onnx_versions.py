"""Files that are stamped with versions newer than those that ONNX Runtime reads."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.compiler.onnx_nodes import model, random

pytestmark = pytest.mark.tvm


def _loaded(network: Any, folder: Path) -> Any:
    import onnx

    from tunefleet.compiler.frontends import ImportRequest, load_network

    onnx.save(network, folder / "network.onnx")
    return load_network(folder / "network.onnx", ImportRequest(folder, whole=True))


def test_a_newer_format_of_files_is_read(tmp_path: Path) -> None:
    x = random(2, 3)
    loaded = _loaded(_stamped(x, 21, ir_version=99), tmp_path)
    np.testing.assert_array_equal(np.maximum(x, 0), loaded.reference([x])[0])
    assert not loaded.notes


def test_a_newer_opset_is_read_as_the_newest_that_is_known(tmp_path: Path) -> None:
    from tunefleet.compiler.frontends.onnx_versions import runtime_limits

    newest = runtime_limits().opset
    assert newest is not None
    x = random(2, 3)
    loaded = _loaded(_stamped(x, newest + 1), tmp_path)
    np.testing.assert_array_equal(np.maximum(x, 0), loaded.reference([x])[0])
    assert [f"opset {newest + 1} is newer" in note for note in loaded.notes] == [True]


def _stamped(x: np.ndarray, opset: int, ir_version: int = 10) -> Any:
    network = model("Relu", [x])
    network.ir_version = ir_version
    network.opset_import[0].version = opset
    network.graph.output[0].type.CopyFrom(network.graph.input[0].type)
    return network


def test_newer_operators_are_written_out_as_the_functions_that_define_them() -> None:
    from tunefleet.compiler.frontends.onnx_versions import restamp

    heads = [random(1, 2, 3, 4, seed=seed) for seed in range(3)]
    network = model("FlexAttention", heads, domain="ai.onnx.preview", opset=1)
    assert restamp(network) is not None
    assert "FlexAttention" not in {node.op_type for node in network.graph.node}


def test_an_operator_that_a_version_does_not_have_is_the_files_fault(tmp_path: Path) -> None:
    from tunefleet.errors import InputError

    network = model("Einsum", [random(2, 3)], equation="ij->ji")
    network.opset_import[0].version = 11
    network.graph.output[0].type.CopyFrom(network.graph.input[0].type)
    with pytest.raises(InputError, match="Einsum"):
        _loaded(network, tmp_path)
