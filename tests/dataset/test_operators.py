from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tunefleet.dataset.flop_rules import UNKNOWN, Certainty
from tunefleet.dataset.operators import autotvm_flops


def tensor(*shape: int) -> list[Any]:
    return ["TENSOR", list(shape), "float32"]


CONV = [tensor(1, 3, 224, 224), tensor(64, 3, 7, 7), [2, 2], [3, 3, 3, 3], [1, 1]]
#: 7x7 convolution of an image to 64 x 112 x 112: the first layer of ResNet.
STEM = 2 * 64 * 112 * 112 * 3 * 7 * 7


@pytest.mark.parametrize(
    ("template", "arguments", "count"),
    [
        ("conv2d_nchw.cuda", [*CONV, "float32"], STEM),
        ("conv2d_nchw_winograd.cuda", [*CONV, "float32"], STEM),
        ("conv2d_NCHWc.x86", [*CONV, "NCHW", "NCHW", "float32"], STEM),
        ("topi_nn_conv2d", [*CONV[:3], [3, 3], "NCHW", "float32"], STEM),
        ("topi_x86_conv2d", [*CONV[:2], 3, [7, 7], [2, 2], [3, 3], "NCHW", "float32"], STEM),
        (
            "conv2d_nhwc.cuda",
            [tensor(1, 224, 224, 3), tensor(7, 7, 3, 64), [2, 2], [3, 3], [1, 1], "float32"],
            STEM,
        ),
        (
            "conv2d_NCHWc_int8.x86",
            [tensor(1, 4, 14, 14, 16), tensor(8, 4, 3, 3, 4, 16, 4), [1, 1], [1, 1], [1, 1]],
            2 * 128 * 14 * 14 * 64 * 9,
        ),
        (
            "conv2d_packed.vta",
            [tensor(1, 1, 208, 208, 1, 16), tensor(2, 1, 3, 3, 16, 16), [1, 1], [1, 1], [1, 1]],
            2 * 32 * 208 * 208 * 16 * 9,
        ),
        # Two groups: each output channel sums over half of the 32 channels.
        (
            "group_conv2d_nchw.cuda",
            [tensor(1, 32, 8, 8), tensor(64, 16, 3, 3), [1, 1], [1, 1], [1, 1], 2, "float32"],
            2 * 64 * 8 * 8 * 16 * 9,
        ),
        (
            "depthwise_conv2d_nchw.cuda",
            [tensor(1, 512, 14, 14), tensor(512, 1, 3, 3), [1, 1], [1, 1, 1, 1], [1, 1]],
            2 * 512 * 14 * 14 * 9,
        ),
        (
            "depthwise_conv2d_nhwc.arm_cpu",
            [tensor(1, 14, 14, 512), tensor(3, 3, 512, 1), [1, 1], [1, 1], [1, 1]],
            2 * 512 * 14 * 14 * 9,
        ),
        # Dilated by two, a 3x3 window spans 5x5.
        (
            "conv2d_nchw.cuda",
            [tensor(1, 8, 12, 12), tensor(8, 8, 3, 3), [1, 1], [0, 0], [2, 2], "float32"],
            2 * 8 * 8 * 8 * 8 * 9,
        ),
        (
            "conv3d_ncdhw.cuda",
            [tensor(1, 3, 8, 8, 8), tensor(4, 3, 3, 3, 3), [1] * 3, [1] * 3, [1] * 3, 1],
            2 * 4 * 8**3 * 3 * 27,
        ),
        ("dense_small_batch.cuda", [tensor(1, 768), tensor(768, 768), None], 2 * 768 * 768),
        (
            "dense_packed.vta",
            [tensor(1, 16, 1, 16), tensor(8, 16, 16, 16), None, "int32"],
            2 * 256 * 128,
        ),
        ("batch_matmul.cuda", [tensor(12, 128, 64), tensor(12, 32, 64)], 2 * 12 * 128 * 64 * 32),
        (
            "batch_matmul.cuda",
            [tensor(12, 64, 128), tensor(12, 64, 32), None, "float32", True, False],
            2 * 12 * 128 * 64 * 32,
        ),
    ],
)  # fmt: skip
def test_known_operators_are_exact(template: str, arguments: list[Any], count: int) -> None:
    found = autotvm_flops(json.dumps([template, *arguments]))
    assert (count, Certainty.EXACT) == (found.count, found.how)


def test_a_transposed_convolution_is_estimated() -> None:
    arguments = [tensor(1, 128, 32, 32), tensor(128, 3, 4, 4), [2, 2], [1, 1, 1, 1], "float32"]
    found = autotvm_flops(json.dumps(["conv2d_transpose_nchw.cuda", *arguments]))
    assert (found.count, found.how) == (2 * 3 * 64 * 64 * 128 * 16, Certainty.ESTIMATED)


@pytest.mark.parametrize(
    "workload",
    [
        "",
        "[]",
        "3",
        '["conv2d_nchw.cuda"]',
        '["conv2d_nchw.cuda", ["TENSOR", [1, 3], "f"]]',
        '["conv2d_nchw.cuda", ["TENSOR", [1, 3, 4, 4], "f"], ["TENSOR", [8, 2, 3, 3], "f"]]',
        '["conv2d_nchw.cuda", ["TENSOR", [1, 3, 4, 4], "f"], ["TENSOR", [8, 2, 3, 3], "f"], '
        "[1, 1], [1, 1]]",
        '["sparse_dense.cuda", ["TENSOR", [1, 3], "f"], ["TENSOR", [8, 3], "f"]]',
        '["dense.cuda", ["TENSOR", [1, 3], "f"], ["TENSOR", [8, 4], "f"]]',
        '["relu", ["TENSOR", [1, 3], "f"], ["TENSOR", [8, 4], "f"]]',
        # VTA's oldest logs name sizes without saying which is which.
        '["conv2d", 4, 64, 56, 56, 64, 3, 3, [1, 1], [1, 1], [1, 1], "int8", "int32"]',
    ],
)
def test_what_does_not_tell_its_shapes_is_unknown(workload: str) -> None:
    assert autotvm_flops(workload) == UNKNOWN


SIZES = st.lists(st.integers(-2, 9) | st.just(10**300), max_size=7)
ARGUMENT = st.tuples(st.just("TENSOR"), SIZES, st.just("f")).map(list) | SIZES | st.booleans()
TEMPLATES = ("conv2d_nchw.cuda", "conv2d_transpose_nchw", "conv3d_ndhwc", "dense", "batch_matmul",
             "depthwise_conv2d_NCHWc", "conv2d_hwcn", "conv1d_ncw")  # fmt: skip


@given(st.sampled_from(TEMPLATES), st.lists(ARGUMENT, max_size=7))
def test_any_arguments_have_flops_or_none(template: str, arguments: list[Any]) -> None:
    found = autotvm_flops(json.dumps([template, *arguments]))
    assert found.count is None or found.count > 0


@given(st.text() | st.recursive(st.none() | st.integers() | st.text(), st.lists).map(json.dumps))
def test_any_text_has_flops_or_none(workload: str) -> None:
    assert autotvm_flops(workload).how in Certainty
