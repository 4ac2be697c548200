"""Free dimensions of inputs: what is taken, what is assumed, what is refused and how."""

import pytest

from tunefleet.compiler.frontends.free import FreeInput, fixed_inputs
from tunefleet.core.shapes import ShapeRequest
from tunefleet.errors import InputError

IMAGE = FreeInput("image", ("batch", 3, "height", "width"), "float32")
UNNAMED = FreeInput("x", (None, 3, None, None), "float32")


def _dims(*pairs):
    return ShapeRequest.of(dims=[(name, [value]) for name, value in pairs])


def _shapes(inputs, request, **more):
    return [spec.shape for spec in fixed_inputs(inputs, request, "m.onnx", **more).specs]


def test_dimensions_take_the_values_of_their_names():
    assert _shapes([IMAGE], _dims(("height", 32), ("width", 64))) == [(1, 3, 32, 64)]


def test_an_unnamed_dimension_is_called_by_its_input_and_axis():
    assert _shapes([UNNAMED], _dims(("x.2", 8), ("x.3", 9))) == [(1, 3, 8, 9)]


def test_a_whole_shape_binds_the_names_in_it_everywhere():
    mask = FreeInput("mask", ("batch", "height"), "int64")
    request = ShapeRequest.of(shapes=[("image", (2, 3, 8, 8))])
    assert _shapes([IMAGE, mask], request) == [(2, 3, 8, 8), (2, 8)]


def test_a_leading_batch_dimension_becomes_one_and_is_told():
    fixed = fixed_inputs([IMAGE], _dims(("height", 8), ("width", 8)), "m.onnx")
    assert fixed.specs[0].shape == (1, 3, 8, 8)
    assert "--dim batch=N" in fixed.notes[0]


def test_a_batch_that_the_user_names_is_theirs():
    request = _dims(("batch", 4), ("height", 8), ("width", 8))
    assert _shapes([IMAGE], request) == [(4, 3, 8, 8)]


def test_a_leading_dimension_of_another_name_is_no_batch():
    with pytest.raises(InputError, match="sequence"):
        _shapes([FreeInput("ids", ("sequence", 8), "int64")], ShapeRequest())


def test_a_vector_of_unknown_length_is_no_batch():
    with pytest.raises(InputError, match=r"wave\.0"):
        _shapes([FreeInput("wave", (None,), "float32")], ShapeRequest())


def test_a_path_that_was_cut_short_is_not_in_the_command_to_copy():
    with pytest.raises(InputError) as caught:
        fixed_inputs([UNNAMED], ShapeRequest(), "...ong/path/m.onnx")
    assert caught.value.cure.endswith(": tunefleet tune NETWORK --dim x.2=224 --dim x.3=224")


def test_the_networks_own_defaults_come_before_guesses_and_after_the_user():
    defaults = {"height": 48, "width": 320}
    assert _shapes([IMAGE], _dims(("width", 99)), defaults=defaults) == [(1, 3, 48, 99)]


def test_one_error_lists_all_that_is_free_with_a_command_to_copy():
    with pytest.raises(InputError) as caught:
        _shapes([IMAGE, FreeInput("ids", ("batch", "length of it"), "int64")], ShapeRequest())
    assert "height (axis 2 of image), width (axis 3 of image), length of it" in caught.value.what
    wanted = "tunefleet tune m.onnx --dim height=224 --dim width=224 --dim 'length of it=128'"
    assert caught.value.cure.endswith(wanted)


@pytest.mark.parametrize(
    ("request_", "text"),
    [
        (_dims(("depth", 3)), "no free dimension depth; its free dimensions: batch, height, width"),
        (ShapeRequest.of(shapes=[("photo", (1,))]), "no input photo; its inputs: image"),
        (ShapeRequest.of(shapes=[("image", (1, 3))]), "has 4 dimensions, 2 were given"),
        (ShapeRequest.of(shapes=[("image", (1, 4, 8, 8))]), "axis 1 of input image is 3, not 4"),
    ],
)
def test_what_contradicts_the_network_is_refused(request_, text):
    with pytest.raises(InputError, match=text):
        _shapes([IMAGE], request_)


@pytest.mark.frameworks
def test_two_dimensions_called_unknown_are_not_the_same(tmp_path):
    import onnx

    from tunefleet.compiler.frontends.onnx_file import read_file
    from tunefleet.compiler.frontends.onnx_shapes import fix_shapes

    text = """<ir_version: 9, opset_import: ["":18]>
    g (float[1,3,X,X] x) => (float[1,3,X,X] y) { y = Relu(x) }"""
    model = onnx.parser.parse_model(text)
    for dim in model.graph.input[0].type.tensor_type.shape.dim[2:]:
        dim.dim_param = "?"
    onnx.save(model, tmp_path / "m.onnx")
    request = ShapeRequest.of(shapes=[("x", (1, 3, 4, 8))])
    fixed = fix_shapes(read_file(tmp_path / "m.onnx"), request)
    assert fixed.specs[0].shape == (1, 3, 4, 8)
