"""What a user fixes of free dimensions."""

import math

import pytest

from tunefleet.core.shapes import ShapeRequest


def test_nothing_asked_for_is_one_variant_without_values():
    assert [ShapeRequest()] == ShapeRequest().variants()
    assert not ShapeRequest()


def test_values_of_one_name_come_together():
    request = ShapeRequest.of(dims=[("width", [160]), ("height", [32]), ("width", [320, 160])])
    assert request.dims == (("width", (160, 320)), ("height", (32,)))


def test_variants_are_every_combination():
    request = ShapeRequest.of(shapes=[("x", (1, 8)), ("x", (1, 16))], dims=[("n", [1, 2])])
    found = [(v.shape_of("x"), dict(v.dims)["n"]) for v in request.variants()]
    assert found == [((1, 8), (1,)), ((1, 8), (2,)), ((1, 16), (1,)), ((1, 16), (2,))]


def test_what_is_not_given_has_no_shape():
    assert ShapeRequest().shape_of("x") is None


@pytest.mark.parametrize("dims", [(("n", ()),), (("n", (-1,)),), (("n", (1,)), ("n", (2,)))])
def test_values_that_are_none_are_refused(dims):
    with pytest.raises(ValueError):  # noqa: PT011  (which one is what the parameters say)
        ShapeRequest(dims=dims)


@pytest.mark.parametrize("number", [math.nan, math.inf, -math.inf])
def test_constants_are_finite(number):
    with pytest.raises(ValueError, match="constant x: values must be finite numbers"):
        ShapeRequest.of(constants=[("x", [1, number])])
