"""Compute definitions of our own compute what TVM's do."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tests.compiler.test_graph import array, build, run

pytestmark = pytest.mark.tvm


def _deconvolution(kernel: int, layouts: bool, **settings: Any) -> Any:
    from tvm import relax

    groups = settings.get("groups", 1)
    weight = array(4, 6 // groups, kernel, kernel)

    def emit(builder: Any, x: Any) -> Any:
        if not layouts:
            return builder.emit(relax.op.nn.conv2d_transpose(x, relax.const(weight), **settings))
        x = builder.emit(relax.op.permute_dims(x, [0, 2, 3, 1]))
        output = relax.op.nn.conv2d_transpose(
            x,
            relax.const(weight.transpose(2, 3, 0, 1)),
            data_layout="NHWC",
            kernel_layout="HWIO",
            **settings,
        )
        return builder.emit(relax.op.permute_dims(builder.emit(output), [0, 3, 1, 2]))

    return build(emit, (2, 4, 5, 7))


@pytest.mark.parametrize(
    ("kernel", "settings"),
    [
        (4, {"strides": 2, "padding": 1}),
        (3, {"strides": 2, "padding": 1, "output_padding": 1}),
        (3, {"strides": 4, "output_padding": 1}),
        (3, {"padding": 1}),
        (3, {"strides": 2, "padding": 1}),  # an output that is no multiple of the stride
        (4, {"strides": 2, "padding": 1, "groups": 2}),
        (3, {"dilation": 2}),
    ],
    ids=lambda value: "-".join(map(str, value.values())) if isinstance(value, dict) else value,
)
def test_a_transposed_convolution_computes_what_tvms_does(
    kernel: int, settings: dict[str, int]
) -> None:
    from tunefleet.compiler.legalize import legalize

    x = array(2, 4, 5, 7, seed=1)
    expected = run(_deconvolution(kernel, layouts=False, **settings), x)
    actual = run(legalize()(_deconvolution(kernel, layouts=True, **settings)), x)
    np.testing.assert_allclose(actual, expected, rtol=1e-4, atol=1e-5)


def test_other_layouts_are_left_to_tvms_definition() -> None:
    from tunefleet.compiler.legalize import legalize

    mod = _deconvolution(4, layouts=False, strides=2, padding=1)
    x = array(2, 4, 5, 7, seed=1)
    np.testing.assert_allclose(run(legalize()(mod), x), run(mod, x), rtol=1e-4, atol=1e-5)


def test_no_work_is_spent_on_the_zeros_between_pixels() -> None:
    import tvm

    from tunefleet.compiler.legalize import legalize

    mod = legalize()(_deconvolution(4, layouts=True, strides=2, padding=1))
    flops = tvm.s_tir.analysis.estimate_tir_flops(tvm.IRModule({"main": mod["deconv2d"]}))
    pixels, channels, taps = 2 * 5 * 7, 4 * 6, 4 * 4
    assert 2 * pixels * channels * taps == flops


def test_a_program_of_loops_alone_is_scheduled_and_compiled(target: Any) -> None:
    from tvm import relax

    from tunefleet.compiler.executable import compile_network, run_compiled
    from tunefleet.compiler.graph import prepare
    from tunefleet.compiler.host import to_tvm

    def emit(builder: Any, x: Any) -> Any:
        index = relax.const(np.array([[2, 0, 2], [1, 1, 1]]))
        rows = builder.emit(relax.op.strided_slice(x, [0], [0], [2]))
        return builder.emit(relax.op.scatter_elements(x, index, rows, 0, "add"))

    x = array(4, 3)
    expected = x.copy()
    np.add.at(expected, (np.array([[2, 0, 2], [1, 1, 1]]), np.array([[0, 1, 2]] * 2)), x[:2])
    network = compile_network(prepare(build(emit, (4, 3)), to_tvm(target)), target, {})
    np.testing.assert_allclose(run_compiled(network, [x])[0], expected, rtol=1e-6)
