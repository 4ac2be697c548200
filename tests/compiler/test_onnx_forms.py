"""Forms that TVM converts wrongly or refuses give what ONNX Runtime gives."""

from __future__ import annotations

import numpy as np
import pytest
from tests.compiler.onnx_nodes import check, compiled, convert, feed, model, prepared, random

from tunefleet.compiler.frontends import ImportRequest, load_network
from tunefleet.compiler.frontends.onnx_operators import OPERATORS, UNSOUND
from tunefleet.compiler.toolchain import load_tvm

pytestmark = pytest.mark.tvm


def _whole(*values, dtype="int64"):
    return np.array(values, dtype)


def test_an_operator_is_converted_or_left_but_not_both():
    assert not OPERATORS.keys() & UNSOUND.keys()


def test_the_mask_of_a_dropout():
    check("Dropout", [random(2, 3)], outputs=["y", "mask"])


@pytest.mark.parametrize(("opset", "attributes"), [(13, {}), (18, {"num_outputs": 2})])
def test_a_part_that_nobody_reads_is_a_part(opset, attributes, tmp_path):
    from onnx import TensorProto, helper, save

    nodes = [
        helper.make_node("Split", ["x"], ["a", "b"], axis=1, **attributes),
        helper.make_node("Relu", ["a"], ["y"]),
    ]
    x, y = (
        helper.make_tensor_value_info(name, TensorProto.FLOAT, [2, columns])
        for name, columns in (("x", 8), ("y", 4))
    )
    graph = helper.make_graph(nodes, "split", [x], [y])
    imports = [helper.make_opsetid("", opset)]
    save(helper.make_model(graph, opset_imports=imports, ir_version=9), tmp_path / "network.onnx")
    network = load_network(tmp_path / "network.onnx", ImportRequest(tmp_path, whole=True))
    x, tvm = random(2, 8), load_tvm()
    machine = tvm.relax.VirtualMachine(tvm.compile(network.mod, "llvm"), tvm.cpu())
    found = machine["main"](tvm.runtime.tensor(x)).numpy()
    np.testing.assert_allclose(found, np.maximum(x[:, :4], 0))


@pytest.mark.parametrize("signs", [(1, 0), (0, 1), (0, 0), (1, 1)])
def test_infinities_of_one_sign(signs):
    x = _whole(1, np.inf, -np.inf, np.nan, dtype="float32")
    check("IsInf", [x], detect_positive=signs[0], detect_negative=signs[1])


def test_the_sign_of_numbers_without_one():
    check("Sign", [_whole(0, 1, 200, dtype="uint8")], by=prepared)


def test_a_threshold_for_halves():
    check("ThresholdedRelu", [_whole(-2, 0.4, 0.6, dtype="float16")], alpha=0.5)


@pytest.mark.parametrize("dtypes", [("int64", "int64"), ("float32", "int32"), ("int32", "float32")])
def test_powers_of_other_types(dtypes):
    check("Pow", [_whole(1, -2, 3, dtype=dtypes[0]), _whole(4, 3, 2, dtype=dtypes[1])])


@pytest.mark.parametrize("axis", [-1, 0])
def test_one_hot_of_computed_values(axis):
    indices = _whole(0, -1, 2, 7)
    values = _whole(0.5, 2.0, dtype="float32")
    check("OneHot", [indices, _whole(4), values], constants={1}, axis=axis)


@pytest.mark.parametrize("axes", [(0, 1), (1, 0)])
def test_sequences_are_reversed_by_their_lengths(axes):
    inputs = [random(4, 4, 2), _whole(1, 4, 2, 3)]
    check("ReverseSequence", inputs, constants={1}, time_axis=axes[0], batch_axis=axes[1])


def test_center_crop_pad():
    check("CenterCropPad", [random(7, 4, 3), _whole(4, 7)], constants={1}, axes=[0, 1])


@pytest.mark.parametrize("p", [1, 2])
def test_lp_normalization(p):
    x = random(3, 4)
    x[1] = 0
    check("LpNormalization", [x], axis=-1, p=p)


@pytest.mark.parametrize("pad", ["NOTSET", "SAME_UPPER", "SAME_LOWER"])
@pytest.mark.parametrize("shape", [[10, 8], [9, 7]])
def test_the_output_shape_of_a_transposed_convolution(pad, shape):
    inputs = [random(1, 2, 5, 4), random(2, 3, 3, 3)]
    check("ConvTranspose", inputs, constants={1}, strides=[2, 2], output_shape=shape, auto_pad=pad)


@pytest.mark.parametrize("operator", ["Celu", "HardSwish"])
def test_activation(operator):
    check(operator, [3 * random(4, 5)])


@pytest.mark.parametrize("operator", ["HannWindow", "HammingWindow", "BlackmanWindow"])
@pytest.mark.parametrize("periodic", [0, 1])
def test_window(operator, periodic):
    check(operator, [_whole(8).reshape(())], constants={0}, periodic=periodic, atol=1e-6)


@pytest.mark.parametrize("form", [{}, {"onesided": 1}, {"inverse": 1}], ids=str)
@pytest.mark.parametrize("length", [None, 6, 11])
def test_fourier_transform(form, length):
    parts = 1 if "onesided" in form else 2
    inputs = [random(2, 8, 3, parts), None if length is None else _whole(length).reshape(())]
    axis = _whole(1).reshape(())
    check("DFT", [*inputs, axis], constants={1, 2}, **form)


@pytest.mark.parametrize("window", [True, False])
@pytest.mark.parametrize("onesided", [0, 1])
def test_short_time_fourier_transform(window, onesided):
    weights = np.hanning(8).astype("float32") if window else None
    inputs = [random(2, 30, 1), _whole(3).reshape(()), weights, _whole(8).reshape(())]
    check("STFT", inputs, constants={1, 2, 3}, onesided=onesided, atol=1e-4)


def test_computed_frames_are_refused():
    inputs = [random(2, 30, 1), _whole(3).reshape(()), None, _whole(8).reshape(())]
    network = model("STFT", inputs)
    with pytest.raises(NotImplementedError, match="STFT with input 1"):
        compiled(network, feed(network, inputs))


@pytest.mark.parametrize("scale", [1.0, 0.8])
@pytest.mark.parametrize("place", ["half_pixel", "output_half_pixel"])
def test_regions_on_features_of_another_scale(scale, place):
    regions = _whole([0, 0, 4, 4], [1, 1, 7, 6], dtype="float32")
    inputs = [random(1, 2, 8, 8), regions, _whole(0, 0)]
    form = {"output_height": 3, "output_width": 3, "sampling_ratio": 2, "spatial_scale": scale}
    check("RoiAlign", inputs, opset=16, coordinate_transformation_mode=place, **form)


@pytest.mark.parametrize(
    "value",
    [{"value_float": 1.5}, {"value_floats": [1.0, 2.0]}, {"value_int": 3}, {"value_ints": [4, 5]}],
    ids=str,
)
def test_constants_that_are_no_tensors(value):
    check("Constant", [], **value)


def test_slices_of_an_old_opset():
    check("Slice", [random(2, 3, 6)], opset=9, starts=[1, -3], ends=[100, -1], axes=[1, 2])


@pytest.mark.parametrize("operator", ["MaxPool", "AveragePool"])
@pytest.mark.parametrize("pad", ["SAME_LOWER", "SAME_UPPER", "VALID"])
def test_pooling_that_keeps_extents(operator, pad):
    form = {"kernel_shape": [3, 2], "strides": [2, 2], "auto_pad": pad}
    check(operator, [random(2, 3, 6, 7)], **form)


def test_eye_of_another_type():
    check("EyeLike", [_whole([1, 2, 3], [4, 5, 6])], dtype=1, k=1)


def test_means_of_integers_are_refused():
    network = model("ReduceMean", [_whole([1, 2])], opset=13, axes=[1])
    with pytest.raises(NotImplementedError, match="ReduceMean of int64"):
        compiled(network, feed(network, [_whole([1, 2])]))


@pytest.mark.parametrize("shape", [(1,), (3, 8)])
def test_layer_normalization_with_a_scale_of_another_rank(shape):
    axis = 3 - max(len(shape), 1)
    inputs = [random(2, 3, 8), random(*shape), random(*shape, seed=1)]
    check("LayerNormalization", inputs, opset=17, axis=axis)


def test_compute_definitions_survive_the_graph_pipeline(target):
    """TVM writes a reflecting Pad as a program beside the network."""
    from tunefleet.compiler.frontends import onnx_graph
    from tunefleet.compiler.graph.pipeline import prepare
    from tunefleet.compiler.toolchain.host import to_tvm

    inputs = [random(1, 1, 5, 5), _whole(0, 0, 1, 1, 0, 0, 1, 1)]
    network = model("Pad", inputs, constants={1}, mode="reflect")
    arrays = feed(network, inputs)
    tvm = onnx_graph.tvm
    prepared = prepare(convert(network), to_tvm(target))
    machine = tvm.relax.VirtualMachine(tvm.compile(prepared, "llvm"), tvm.cpu())
    result = machine["main"](tvm.runtime.tensor(arrays["x0"])).numpy()
    wanted = np.pad(arrays["x0"], ((0, 0), (0, 0), (1, 1), (1, 1)), "reflect")
    np.testing.assert_array_equal(result, wanted)


@pytest.mark.parametrize("operator", ["CumSum", "CumProd"])
@pytest.mark.parametrize("form", [{}, {"reverse": 1}, {"exclusive": 1, "reverse": 1}], ids=str)
def test_sums_and_products_up_to_each_element(operator, form):
    if operator == "CumProd":
        x = random(3, 4)
        network = model(operator, [x, _whole(1).reshape(())], constants={1}, opset=26, **form)
        (found,) = compiled(network, {"x0": x})
        turned = x[:, ::-1] if "reverse" in form else x
        wanted = np.cumprod(turned, 1)
        if "exclusive" in form:
            wanted = np.concatenate([np.ones((3, 1), "float32"), wanted[:, :-1]], 1)
        wanted = wanted[:, ::-1] if "reverse" in form else wanted
        np.testing.assert_allclose(found, wanted, rtol=1e-5)
    else:
        check(operator, [random(3, 4), _whole(1).reshape(())], constants={1}, **form)


def test_shifts_by_more_bits_than_there_are():
    x, distance = _whole(255, 7, 1, dtype="uint8"), _whole(9, 1, 8, dtype="uint8")
    network = model("BitShift", [x, distance], direction="LEFT")
    (shifted,) = compiled(network, {"x0": x, "x1": distance})
    np.testing.assert_array_equal([0, 14, 0], shifted)


def test_remainders_have_the_sign_of_the_divisor():
    x = np.array([1, -1, 5.5, -5.5, 0, -6, 7, -7], "float32")
    divisor = np.array([np.inf, np.inf, -2, 2, -3, 3, -np.inf, -np.inf], "float32")
    (found,) = compiled(model("Mod", [x, divisor]), {"x0": x, "x1": divisor})
    np.testing.assert_array_equal(np.mod(x, divisor), found)


def test_slopes_of_channels_of_an_old_opset():
    x, slope = random(2, 3, 4, 5), random(3)
    network = model("PRelu", [x, slope], constants={1}, opset=6)
    (found,) = compiled(network, {"x0": x})
    np.testing.assert_allclose(np.where(x < 0, x * slope[:, None, None], x), found, rtol=1e-6)


@pytest.mark.parametrize("sort", [{}, {"axis": 0, "largest": 0}], ids=str)
def test_the_largest_and_smallest(sort):
    check("TopK", [random(6, 7), _whole(3)], outputs=["values", "indices"], constants={1}, **sort)


@pytest.mark.parametrize(
    "form",
    [{}, {"strides": [2, 1], "pads": [1, 0, 2, 1]}, {"dilations": [2, 1], "pads": [1, 1, 1, 1]}],
    ids=lambda form: "-".join(form) or "plain",
)
def test_windows_are_added_up_to_an_image(form):
    image, block, ones = [7, 6], [3, 2], [1, 1]
    pads, strides = form.get("pads", [0] * 4), form.get("strides", ones)
    counts = [
        (image[i] + pads[i] + pads[i + 2] - form.get("dilations", ones)[i] * (block[i] - 1) - 1)
        // strides[i]
        + 1
        for i in range(2)
    ]
    inputs = [random(2, 3 * 6, counts[0] * counts[1]), _whole(*image), _whole(*block)]
    check("Col2Im", inputs, constants={1, 2}, **form)


@pytest.mark.parametrize("shape", [(3, 4, 5, 2), (2, 3, 4, 2), (3, 2, 5, 2), (2, 4, 2, 1)], ids=str)
@pytest.mark.parametrize("axis", [0, 1, -2])
def test_fewer_elements_are_scattered_than_there_are(shape, axis):
    places = np.random.default_rng(0).integers(0, (3, 4, 5, 2)[axis], shape)
    inputs = [random(3, 4, 5, 2), places, random(*shape)]
    check("ScatterElements", inputs, by=prepared, opset=18, axis=axis, reduction="add")
