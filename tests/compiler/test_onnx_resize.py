"""Resize gives what ONNX Runtime gives, whoever converts it."""

from __future__ import annotations

import numpy as np
import pytest
from tests.compiler.onnx_nodes import check, random

pytestmark = pytest.mark.tvm


def _resize(scales=None, sizes=None, roi=None, shape=(1, 2, 5, 6), **attrs):
    inputs = [
        random(*shape),
        None if roi is None else np.array(roi, "float32"),
        None if scales is None else np.array(scales, "float32"),
        None if sizes is None else np.array(sizes, "int64"),
    ]
    check("Resize", inputs, constants={1, 2, 3}, opset=19, **attrs)


@pytest.mark.parametrize("mode", ["nearest", "linear", "cubic"])
@pytest.mark.parametrize("place", ["half_pixel", "asymmetric", "pytorch_half_pixel"])
@pytest.mark.parametrize("scales", [[1, 1, 0.6, 0.7], [1, 1, 2, 3]], ids=str)
def test_scales(mode, place, scales):
    _resize(scales, mode=mode, coordinate_transformation_mode=place)


@pytest.mark.parametrize("mode", ["nearest", "linear", "cubic"])
@pytest.mark.parametrize("place", ["half_pixel", "align_corners", "half_pixel_symmetric"])
def test_sizes(mode, place):
    _resize(sizes=[1, 2, 7, 4], mode=mode, coordinate_transformation_mode=place)


@pytest.mark.parametrize("nearest", ["round_prefer_floor", "round_prefer_ceil", "floor", "ceil"])
@pytest.mark.parametrize("place", ["half_pixel", "asymmetric", "align_corners"])
def test_rounding_of_the_nearest(nearest, place):
    _resize(sizes=[1, 2, 8, 3], nearest_mode=nearest, coordinate_transformation_mode=place)


@pytest.mark.parametrize("mode", ["linear", "cubic"])
def test_antialiasing(mode):
    _resize([1, 1, 0.5, 0.4], mode=mode, antialias=1)


def test_cubic_that_excludes_what_lies_outside():
    _resize([1, 1, 1.5, 0.8], mode="cubic", exclude_outside=1, cubic_coeff_a=-0.5)


def test_a_region():
    _resize(
        sizes=[1, 2, 4, 4],
        roi=[0, 0, 0.2, -0.3, 1, 1, 0.8, 1.2],
        mode="linear",
        coordinate_transformation_mode="tf_crop_and_resize",
        extrapolation_value=7.0,
    )


def test_a_region_whose_end_is_the_last_pixel_in_some_arithmetic():
    _resize(
        sizes=[1, 2, 5, 6],
        roi=[0, 0, 0.1, 0.2, 1, 1, 0.8, 1.2],
        shape=(1, 2, 8, 8),
        mode="linear",
        coordinate_transformation_mode="tf_crop_and_resize",
        extrapolation_value=1.0,
    )


def test_scales_without_elements_before_sizes():
    inputs = [random(1, 2, 5, 6), np.zeros(0, "float32"), np.zeros(0, "float32")]
    sizes = np.array([1, 2, 7, 4], "int64")
    check(
        "Resize", [*inputs, sizes], constants={1, 2, 3}, opset=11,
        mode="linear", coordinate_transformation_mode="align_corners",
    )  # fmt: skip


@pytest.mark.parametrize("policy", ["not_larger", "not_smaller"])
def test_one_ratio(policy):
    _resize(sizes=[7, 9], axes=[2, 3], keep_aspect_ratio_policy=policy)


@pytest.mark.parametrize("mode", ["nearest", "linear"])
def test_other_ranks(mode):
    _resize([1, 1, 1.7], shape=(1, 2, 5), mode=mode)
    _resize([1, 1, 2, 2, 2], shape=(1, 2, 3, 3, 3), mode=mode)
    _resize([2, 1.5], shape=(3, 4), mode=mode)
