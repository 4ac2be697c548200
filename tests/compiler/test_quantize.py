"""Networks in floats become networks of quantised tensors, with what that loses."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

onnx = pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")

from typer.testing import CliRunner  # noqa: E402

from tunefleet.artifacts.onnx_session import open_session, session_options  # noqa: E402
from tunefleet.cli.app import app  # noqa: E402
from tunefleet.compiler.frontends.spec import wanted_precision  # noqa: E402
from tunefleet.compiler.quantize import biases, losses, quantized_file, recipe  # noqa: E402
from tunefleet.compiler.quantize.biases import correct  # noqa: E402
from tunefleet.compiler.quantize.calibration import Input, samples_of  # noqa: E402
from tunefleet.compiler.quantize.files import METADATA, precision_of  # noqa: E402
from tunefleet.compiler.quantize.losses import output_loss  # noqa: E402
from tunefleet.compiler.quantize.recipe import quantize  # noqa: E402
from tunefleet.compiler.quantize.smoothing import smooth  # noqa: E402
from tunefleet.core.precision import FLOAT32, INT8, OutputLoss, Precision  # noqa: E402
from tunefleet.errors import InputError  # noqa: E402

IMAGE = Input("x", (1, 3, 8, 8), "float32")


def _network(path: Path, opset: int = 17, operator: str = "Conv") -> Path:
    weight = np.random.default_rng(0).standard_normal((4, 3, 3, 3)).astype("float32")
    helper = onnx.helper
    inputs = ["x", "w"] if operator == "Conv" else ["x"]
    nodes = [
        helper.make_node(operator, inputs, ["y"]),
        helper.make_node("Relu", ["y"], ["z"]),
        helper.make_node("GlobalAveragePool", ["z"], ["p"]),
        helper.make_node("Flatten", ["p"], ["scores"]),
    ]
    graph = helper.make_graph(
        nodes,
        "net",
        [helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, [1, 3, 8, 8])],
        [helper.make_tensor_value_info("scores", onnx.TensorProto.FLOAT, [1, None])],
        [onnx.numpy_helper.from_array(weight, "w")] if operator == "Conv" else [],
    )
    opsets = [helper.make_opsetid("", opset)]
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=8), path)
    return path


def _data(path: Path, count: int = 3, seed: int = 0) -> Path:
    numbers = np.random.default_rng(seed).standard_normal((count, 1, 3, 8, 8))
    np.savez(path, x=numbers.astype("float32"))
    return path


def test_a_file_is_made_once_and_says_what_it_lost(tmp_path: Path) -> None:
    network, data = _network(tmp_path / "net.onnx"), _data(tmp_path / "data.npz")
    file = quantized_file(str(network), data, tmp_path / "made")
    made = file.stat().st_mtime_ns
    assert quantized_file(str(network), data, tmp_path / "made") == file
    assert file.stat().st_mtime_ns == made
    assert file.name == "net-int8.onnx"
    model = onnx.load(file)
    assert "QuantizeLinear" in {node.op_type for node in model.graph.node}
    told = precision_of({p.key: p.value for p in model.metadata_props})
    assert told is not None
    assert (told.name, told.samples) == (INT8, 3)
    assert 0 < told.losses[0].relative_error < 0.2
    other = _data(tmp_path / "other.npz", seed=1)
    assert quantized_file(str(network), other, tmp_path / "made") != file


@pytest.mark.parametrize("most", [1 << 30, 100], ids=["small", "large"])
def test_weights_may_lie_beside_the_file(
    most: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As torch.onnx.export leaves them."""
    monkeypatch.setattr(recipe, "_MOST_BYTES", most)
    network, data = _network(tmp_path / "net.onnx"), _data(tmp_path / "data.npz")
    onnx.save(
        onnx.load(network), network, save_as_external_data=True, location="w", size_threshold=0
    )
    file = quantized_file(str(network), data, tmp_path / "made")
    assert "QuantizeLinear" in {node.op_type for node in onnx.load(file).graph.node}


def test_networks_of_old_operators_are_brought_to_newer_ones(tmp_path: Path) -> None:
    network, data = _network(tmp_path / "net.onnx", opset=11), _data(tmp_path / "data.npz")
    file = quantized_file(str(network), data, tmp_path / "made")
    assert next(o.version for o in onnx.load(file).opset_import if o.domain == "") >= 13


@pytest.mark.parametrize(
    ("arrays", "words"),
    [
        ({"y": np.zeros((1, 3, 8, 8), "float32")}, "lacks x; it contains y"),
        ({"x": np.zeros((1, 3, 8, 9), "float32")}, "does not fit the network's input"),
        ({"x": np.zeros((1, 3, 8, 8), "complex64")}, "does not fit the network's input"),
        ({}, "lacks x; it contains nothing"),
        ({"x": np.full((1, 3, 8, 8), np.nan, "float32")}, "contains NaN or infinite numbers for x"),
        ({"x": np.full((1, 3, 8, 8), 1e39)}, "contains NaN or infinite numbers for x"),
        ({"x": np.zeros((5, 1, 3, 8, 8), "float32")}, "contains only zeros for x"),
    ],
)
def test_calibration_data_that_does_not_fit(
    tmp_path: Path, arrays: dict[str, Any], words: str
) -> None:
    np.savez(tmp_path / "data.npz", **arrays)
    with pytest.raises(InputError, match=words):
        samples_of(tmp_path / "data.npz", [IMAGE])


def test_calibration_data_that_is_none(tmp_path: Path) -> None:
    (tmp_path / "broken.npz").write_bytes(b"PK\x03\x04 broken")
    (tmp_path / "text.npy").write_text("no array")
    (tmp_path / "empty").mkdir()
    for name in ("broken.npz", "text.npy", "empty", "absent.npz", "data.csv"):
        with pytest.raises(InputError):
            samples_of(tmp_path / name, [IMAGE])


@pytest.mark.parametrize("numbers", [np.float32(0.5), np.array([0.5, 2.0], "float32")])
def test_a_sample_of_a_number_has_no_axis(tmp_path: Path, numbers: Any) -> None:
    np.savez(tmp_path / "data.npz", scale=numbers)
    samples = samples_of(tmp_path / "data.npz", [Input("scale", (), "float32")])
    assert [sample["scale"].shape for sample in samples] == [()] * numbers.size


def test_samples_lie_along_a_further_axis_or_the_batch(tmp_path: Path) -> None:
    image = np.arange(2 * 3 * 8 * 8, dtype="float32").reshape(2, 1, 3, 8, 8)
    np.save(tmp_path / "a.npy", image)
    np.save(tmp_path / "b.npy", image[0])
    samples = samples_of(tmp_path, [IMAGE])
    assert [sample["x"].shape for sample in samples] == [(1, 3, 8, 8)] * 3
    np.testing.assert_array_equal(samples[1]["x"], image[1])
    two = [IMAGE, Input("mask", (1,), "float32")]
    with pytest.raises(InputError, match="contains one array"):
        samples_of(tmp_path / "a.npy", two)
    np.savez(tmp_path / "uneven.npz", x=image, mask=np.zeros((3, 1), "float32"))
    with pytest.raises(InputError, match="2 of x, 3 of mask"):
        samples_of(tmp_path / "uneven.npz", two)


def test_what_cannot_be_quantised_is_refused(tmp_path: Path) -> None:
    data = _data(tmp_path / "data.npz")
    network = _network(tmp_path / "net.onnx")
    with pytest.raises(InputError, match="--calibrate"):
        quantized_file(str(network), None, tmp_path / "made")
    done = quantized_file(str(network), data, tmp_path / "made")
    with pytest.raises(InputError, match="already quantised"):
        quantized_file(str(done), data, tmp_path / "made")
    plain = _network(tmp_path / "plain.onnx", operator="Relu")
    with pytest.raises(InputError, match="no convolution and no matrix product"):
        quantized_file(str(plain), data, tmp_path / "made")
    (tmp_path / "net.pt2").write_bytes(b"something")
    with pytest.raises(InputError, match="supports ONNX files"):
        quantized_file(str(tmp_path / "net.pt2"), data, tmp_path / "made")


def test_how_a_loss_is_told() -> None:
    before, after = np.array([[1.0, 3.0]]), np.array([[2.0, 1.0]])
    loss = output_loss("scores", [(before, before), (before, after)])
    assert loss.top1 == 0.5
    assert loss.relative_error == pytest.approx(np.sqrt(5 / 4) / np.sqrt(5))
    image = np.zeros((1, 3, 8, 8))
    assert output_loss("image", [(image, image)]) == OutputLoss("image", 0.0)
    told = str(Precision(INT8, "a quantiser", 2, (loss,)))
    assert "scores by 50.0%, the same class in 50.0%" in told
    for properties in ({}, {METADATA: "no JSON"}, {METADATA: "[1]"}):
        assert precision_of(properties) is None


def test_a_precision_is_named_or_asked_for() -> None:
    assert wanted_precision("zoo:tiny_cnn", FLOAT32) == FLOAT32
    assert wanted_precision("zoo:tiny_cnn", INT8) == INT8
    assert wanted_precision("zoo:tiny_cnn?precision=int8", FLOAT32) == INT8
    with pytest.raises(InputError, match="float32, fp16, bf16 or int8"):
        wanted_precision("net.onnx", "int9")


@pytest.mark.tvm
def test_a_target_that_gains_little_is_told_before_the_search(tmp_path: Path) -> None:
    from tunefleet.compiler.toolchain.host import parse_target
    from tunefleet.stages.importing import _on_precision, import_network

    target = parse_target("nehalem", 1)
    network, data = _network(tmp_path / "net.onnx"), _data(tmp_path / "data.npz")
    plain = import_network(str(network), target, tmp_path)
    assert _on_precision(plain, target) == ()
    file = quantized_file(str(network), data, tmp_path / "made")
    (remark,) = _on_precision(import_network(str(file), target, tmp_path), target)
    assert "no instruction" in remark


def test_a_network_is_tuned_in_int8(tmp_path: Path) -> None:
    network, data = _network(tmp_path / "net.onnx"), _data(tmp_path / "data.npz")
    command = ["tune", str(network), "--home", str(tmp_path / "home"), "--trials", "4", "--quiet"]
    done = CliRunner().invoke(app, [*command, "--precision", INT8, "--calibrate", str(data)])
    assert done.exit_code == 0, done.output
    assert "int8 by ONNX Runtime" in " ".join(done.output.split())
    refused = CliRunner().invoke(app, [*command, "--calibrate", str(data)])
    assert isinstance(refused.exception, InputError)
    assert "nothing to calibrate" in str(refused.exception)


def _layers(path: Path, transposed: bool, outlier: float) -> tuple[Path, list[dict[str, Any]]]:
    """Two products of one activation, a channel of which is `outlier` times as large as the rest,
    and one of another."""
    rng = np.random.default_rng(0)
    helper, tensor = onnx.helper, onnx.helper.make_tensor_value_info
    large = np.ones(16, "float32")
    large[3] = outlier
    tables = {name: rng.standard_normal((16, 16)).astype("float32") for name in "abc"}
    stored = {"a": tables["a"].T if transposed else tables["a"], "b": tables["b"]}
    first = helper.make_node("Gemm", ["n", "a"], ["p"], transB=1) if transposed else None
    nodes = [
        helper.make_node("LayerNormalization", ["x", "large"], ["n"]),
        first or helper.make_node("MatMul", ["n", "a"], ["p"]),
        helper.make_node("MatMul", ["n", "b"], ["q"]),
        helper.make_node("Add", ["p", "q"], ["s"]),
        helper.make_node("MatMul", ["x", "c"], ["r"]),
        helper.make_node("Add", ["s", "r"], ["y"]),
    ]
    weights = stored | {"c": tables["c"], "large": large, "unread": large}
    graph = helper.make_graph(
        nodes,
        "net",
        [tensor("x", onnx.TensorProto.FLOAT, [8, 16])],
        [tensor("y", onnx.TensorProto.FLOAT, [8, 16])],
        [onnx.numpy_helper.from_array(np.ascontiguousarray(w), n) for n, w in weights.items()],
    )
    opsets = [helper.make_opsetid("", 17)]
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=8), path)
    samples = [{"x": rng.standard_normal((8, 16)).astype("float32")} for _ in range(4)]
    return path, samples


def _answers(path: Path, samples: list[dict[str, Any]]) -> np.ndarray:
    session = open_session(path, session_options())
    return np.stack([session.run(None, sample)[0] for sample in samples])


@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("apart", [False, True])
def test_outliers_move_into_weights(tmp_path: Path, transposed: bool, apart: bool) -> None:
    network, samples = _layers(tmp_path / "net.onnx", transposed, outlier=40.0)
    exact = _answers(network, samples)
    smoothed = tmp_path / "smoothed.onnx"
    smooth(network, smoothed, samples, apart)
    assert np.abs(_answers(smoothed, samples) - exact).max() < 1e-5 * np.abs(exact).max()
    nodes = onnx.load(smoothed, load_external_data=False).graph.node
    # One division for the two products of what has an outlier, none for the other.
    assert [node.input[0] for node in nodes if node.op_type == "Mul"] == ["n"]
    assert [node.input[0] for node in nodes if node.op_type == "MatMul"].count("x") == 1
    found = quantize(network, tmp_path / "q.onnx", samples, "it").losses
    unsmoothed, _ = _layers(tmp_path / "flat.onnx", transposed, outlier=1.0)
    least = quantize(unsmoothed, tmp_path / "flat-q.onnx", samples, "it").losses
    assert found[0].relative_error < 2 * least[0].relative_error


def test_nothing_moves_where_nothing_is_gained(tmp_path: Path) -> None:
    network, samples = _layers(tmp_path / "net.onnx", False, outlier=1.0)
    smooth(network, tmp_path / "smoothed.onnx", samples, False)
    graph = onnx.load(tmp_path / "smoothed.onnx").graph
    assert [node.op_type for node in graph.node].count("Mul") == 0
    assert {tensor.name for tensor in graph.initializer} == {"a", "b", "c", "large"}


def test_stacked_matrices_get_one_scale(tmp_path: Path) -> None:
    helper, floats = onnx.helper, onnx.TensorProto.FLOAT
    weight = np.random.default_rng(0).standard_normal((3, 8, 4)).astype("float32")
    x, y = (helper.make_tensor_value_info(n, floats, [3, 5, e]) for n, e in (("x", 8), ("y", 4)))
    tensors = [onnx.numpy_helper.from_array(weight, "w")]
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["x", "w"], ["y"])], "g", [x], [y], tensors
    )
    opsets = [helper.make_opsetid("", 17)]
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=8), tmp_path / "net.onnx")
    np.savez(tmp_path / "data.npz", x=np.ones((2, 3, 5, 8), "float32"))
    file = quantized_file(str(tmp_path / "net.onnx"), tmp_path / "data.npz", tmp_path / "made")
    kinds = {tensor.data_type for tensor in onnx.load(file).graph.initializer}
    assert onnx.TensorProto.INT8 in kinds


def test_calibration_data_that_a_network_cannot_be_run_with_is_told(tmp_path: Path) -> None:
    helper, kinds = onnx.helper, onnx.TensorProto
    table = np.random.default_rng(0).standard_normal((5, 8)).astype("float32")
    tensors = [onnx.numpy_helper.from_array(a, n) for a, n in ((table, "t"), (table.T, "w"))]
    nodes = [
        helper.make_node("Gather", ["t", "x"], ["words"]),
        helper.make_node("MatMul", ["words", "w"], ["y"]),
    ]
    x = helper.make_tensor_value_info("x", kinds.INT64, [1, 3])
    y = helper.make_tensor_value_info("y", kinds.FLOAT, [1, 3, 5])
    graph = helper.make_graph(nodes, "g", [x], [y], tensors)
    opsets = [helper.make_opsetid("", 17)]
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=8), tmp_path / "net.onnx")
    np.savez(tmp_path / "data.npz", x=np.array([[[0, 1, 7]]]))
    with pytest.raises(InputError, match=r"with the calibration data: .*out of data bounds"):
        quantized_file(str(tmp_path / "net.onnx"), tmp_path / "data.npz", tmp_path / "made")


@pytest.mark.parametrize("number", [3e38, 1e38])
def test_calibration_data_of_which_a_network_makes_no_numbers_is_told(
    tmp_path: Path, number: float
) -> None:
    network = _network(tmp_path / "net.onnx")
    images = np.random.default_rng(0).uniform(0.5, 1.0, (2, 1, 3, 8, 8)) * number
    np.savez(tmp_path / "data.npz", x=images.astype("float32"))
    with pytest.raises(InputError, match="it computes NaN or infinite numbers from the"):
        quantized_file(str(network), tmp_path / "data.npz", tmp_path / "made")


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("y = MatMul(x, w)", False),
        ("z = MatMul(x, w) y = Softmax(z)", False),
        ("t = Transpose(x) y = MatMul(x, t)", True),
        ("z = MatMul(x, w) y = Erf(z)", True),
        ("z = MatMul(x, w) s = Sigmoid(z) y = Mul(z, s)", True),
        (
            "a = Mul(x, x) b = MatMul(a, w) c = MatMul(b, w) d = MatMul(c, w) e = MatMul(d, w)"
            " y = Relu(e)",
            False,
        ),
    ],
)
def test_networks_of_other_functions_are_quantised_in_their_products(
    body: str, expected: bool
) -> None:
    """A classifier that ends in a softmax, or begins with a scale, is none."""
    text = (
        f'<ir_version: 8, opset_import: ["": 17]> net (float[8,8] x) => (float[8,8] y) {{ {body} }}'
    )
    graph = onnx.parser.parse_model(text).graph
    graph.initializer.append(onnx.numpy_helper.from_array(np.ones((8, 8), "float32"), "w"))
    assert recipe._in_products_alone(graph) == expected


@pytest.mark.parametrize("outlier", [1.0, 1000.0])
def test_ranges_are_those_that_lose_less(tmp_path: Path, outlier: float) -> None:
    from onnxruntime.quantization import CalibrationMethod

    network, samples = _layers(tmp_path / "net.onnx", False, 1.0)
    samples *= 64
    samples[0] = {"x": samples[0]["x"] * outlier}
    exact = losses.outputs_of(network, samples)
    lost = []
    for method in (CalibrationMethod.Percentile, CalibrationMethod.MinMax):
        recipe._write(network, tmp_path / method.name, samples, method, True, [], False)
        found = losses.losses_of(exact, losses.outputs_of(tmp_path / method.name, samples))
        lost.append(found[0].relative_error)
    made = quantize(network, tmp_path / "q.onnx", samples, "it").losses[0].relative_error
    without, all_of_it = lost
    expected = all_of_it if all_of_it < 0.8 * without else without
    assert made == pytest.approx(expected, rel=0.05)
    assert losses.losses_of(exact, losses.outputs_of(tmp_path / "q.onnx", samples))[
        0
    ].relative_error == pytest.approx(made)


def test_a_large_loss_is_a_warning() -> None:
    little = OutputLoss("scores", 0.1, 0.95)
    assert Precision(INT8, "a quantiser", 2, (little,)).warnings == ()
    for much in (OutputLoss("image", 0.5), OutputLoss("scores", 0.1, 0.5)):
        (warning,) = Precision(INT8, "a quantiser", 2, (little, much)).warnings
        assert str(much) in warning
        assert str(little) not in warning
        assert "choose bf16" in warning


def _biased(path: Path, groups: int) -> tuple[Path, list[dict[str, Any]]]:
    """A convolution of inputs that are far from 0 on average, and samples of it."""
    rng = np.random.default_rng(0)
    weight = rng.standard_normal((8, 32 // groups, 3, 3)).astype("float32")
    model = onnx.parser.parse_model(
        '<ir_version: 8, opset_import: ["": 17]> net (float[1,32,8,8] x) => (float[1,8,6,6] y)'
        f"{{ y = Conv<group={groups}>(x, w, b) }}"
    )
    for name, values in (("w", weight), ("b", np.zeros(8, "float32"))):
        model.graph.initializer.append(onnx.numpy_helper.from_array(values, name))
    onnx.save(model, path)
    shape = (1, 32, 8, 8)
    samples = [{"x": rng.uniform(5, 6, shape).astype("float32")} for _ in range(8)]
    return path, samples


@pytest.mark.parametrize("groups", [1, 4])
@pytest.mark.parametrize("apart", [False, True])
def test_what_weights_lose_on_average_is_taken_off_biases(
    tmp_path: Path, groups: int, apart: bool
) -> None:
    from onnxruntime.quantization import CalibrationMethod

    network, samples = _biased(tmp_path / "net.onnx", groups)
    plain, better = tmp_path / "plain.onnx", tmp_path / "better.onnx"
    recipe._write(network, plain, samples, CalibrationMethod.MinMax, False, [], apart)
    assert correct(network, plain, better, samples, apart)
    exact, before, after = (
        np.concatenate([one["y"] for one in losses.outputs_of(path, samples)])
        for path in (network, plain, better)
    )
    off, now = (np.abs((found - exact).mean(axis=(0, 2, 3))).max() for found in (before, after))
    assert now < off / 3
    assert np.std(after - exact) < np.std(before - exact)
    made = quantize(network, tmp_path / "q.onnx", samples, "it").losses[0].relative_error
    assert made < output_loss("y", [(exact, before)]).relative_error


def test_biases_stay_where_there_are_none_and_where_others_lose_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    network = _network(tmp_path / "net.onnx")
    assert not correct(network, network, tmp_path / "no.onnx", [], False)
    network, samples = _biased(tmp_path / "biased.onnx", 1)

    def worse(source: Path, quantized: Path, target: Path, *rest: Any) -> bool:
        correct(source, quantized, target, *rest)
        model = onnx.load(target)
        integers = biases._Integers(model.graph)
        (node,) = (node for node in model.graph.node if node.op_type == "Conv")
        integers.add(node.input[2], np.full(8, 100.0))
        onnx.save(model, target)
        return True

    good = quantize(network, tmp_path / "good.onnx", samples, "it").losses
    monkeypatch.setattr(recipe, "correct", worse)
    kept = quantize(network, tmp_path / "kept.onnx", samples, "it").losses[0].relative_error
    assert good[0].relative_error < kept < 2 * good[0].relative_error + 0.01
