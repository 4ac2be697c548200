"""ONNX Runtime's own outputs of a file that is as right as it was."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.compiler.onnx_nodes import model, random

onnx = pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")

pytestmark = pytest.mark.tvm

WIDTH, ROWS = 64, 8


def _four_bits(folder: Path, **attrs: Any) -> Path:
    """A product of floats by weights of four bits."""
    packed = np.random.default_rng(0).integers(0, 256, (ROWS, WIDTH // 32, 16), "uint8")
    scales = np.abs(random(ROWS * WIDTH // 32)) + np.float32(0.1)
    attrs |= {"K": WIDTH, "N": ROWS, "bits": 4, "block_size": 32, "domain": "com.microsoft"}
    inputs = [random(3, WIDTH), packed, scales]
    path, network = folder / "network.onnx", model("MatMulNBits", inputs, constants={1, 2}, **attrs)
    kind = onnx.helper.make_tensor_type_proto(onnx.TensorProto.FLOAT, [3, ROWS])
    network.graph.output[0].type.CopyFrom(kind)
    onnx.save(network, path)
    return path


def _runs(path: Path, inputs: Any, **how: bool) -> np.ndarray:
    from tunefleet.compiler.frontends import ImportRequest, load_network
    from tunefleet.compiler.frontends.references import reference_of

    described = load_network(path, ImportRequest(path.parent)).reference.describe()
    return reference_of({**described, **how})(inputs)[0]


def test_rounding_that_a_product_merely_allows_is_left_out(tmp_path: Path) -> None:
    inputs = [random(3, WIDTH)]
    exact = _runs(_four_bits(tmp_path), inputs)
    allowed = _four_bits(tmp_path, accuracy_level=4)
    np.testing.assert_allclose(exact, _runs(allowed, inputs, unoptimised=True), rtol=1e-4)
    assert np.abs(exact - _runs(allowed, inputs)).max() > 1e-3 * np.abs(exact).max()


def test_a_network_whose_products_may_round_agrees_with_one_in_floats(tmp_path: Path) -> None:
    from tunefleet.core.step import DifferenceMeasure
    from tunefleet.stages.agreement import agreement

    allowed, inputs = _four_bits(tmp_path, accuracy_level=4), [random(3, WIDTH)]
    exact = _runs(allowed, inputs, unoptimised=True)

    def reference(_: int, given: Any, **how: bool) -> list[np.ndarray]:
        return [_runs(allowed, given, **how)]

    def otherwise(_: int, given: Any) -> list[np.ndarray]:
        return reference(0, given, unoptimised=True)

    found = agreement([inputs], "float32", reference, lambda *_: [exact], otherwise)
    assert found.holds
    assert found.measure is DifferenceMeasure.MEAN
    wrong = agreement([inputs], "float32", reference, lambda *_: [exact * 1.2], otherwise)
    assert not wrong.holds


def test_weights_of_a_file_move_by_their_last_bits_and_its_masks_stay_finite() -> None:
    from tunefleet.compiler.frontends.onnx_otherwise import nudge

    weight = random(2, 3)
    weight[0, 0] = np.finfo("float32").min
    network = model("Add", [random(2, 3), weight], constants={1})
    nudge(network)
    moved = onnx.numpy_helper.to_array(network.graph.initializer[0])
    assert np.isfinite(moved).all()
    assert (moved != weight).any()
    np.testing.assert_allclose(weight, moved, rtol=3e-6)


def test_a_single_number_of_a_file_stays_as_it_is() -> None:
    from tunefleet.compiler.frontends.onnx_otherwise import nudge

    network = model("Pow", [random(2, 3), np.array(2.0, "float32")], constants={1})
    nudge(network)
    assert onnx.numpy_helper.to_array(network.graph.initializer[0]) == 2.0


def test_a_scale_moves_as_weights_do() -> None:
    from tunefleet.compiler.frontends.onnx_otherwise import nudge

    scale = np.array(0.1, "float32")
    network = model("QuantizeLinear", [random(2, 3), scale], constants={1})
    nudge(network)
    moved = onnx.numpy_helper.to_array(network.graph.initializer[0])
    assert moved != scale
    assert moved == pytest.approx(scale, rel=3e-6)
