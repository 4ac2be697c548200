"""The schedule of programs that nobody tuned: it compiles in no time and computes what they say."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tunefleet.core.target import CpuTarget
from tunefleet.core.trial import Built

pytestmark = pytest.mark.tvm


@pytest.fixture
def target() -> CpuTarget:
    from tunefleet.compiler.toolchain.host import native_target

    return native_target(1)


def _module(build: Any, *shapes: tuple[int, ...]) -> Any:
    """A computation of float32 inputs, `build(te, tirx, *inputs)`, as a module."""
    from tunefleet.compiler.toolchain import load_tvm

    tvm = load_tvm()
    inputs = [tvm.te.placeholder(shape, "float32", f"x{i}") for i, shape in enumerate(shapes)]
    function = tvm.te.create_prim_func([*inputs, build(tvm.te, tvm.tirx, *inputs)])
    return tvm.IRModule({"main": function})


def _blocks(module: Any) -> int:
    return str(module.script()).count("T.sblock(") - 1  # the root is a comment


def _quantised(te: Any, tirx: Any, x: Any, scale: Any) -> Any:
    divided = te.compute(x.shape, lambda i, j: x[i, j] / scale[()])
    rounded = te.compute(x.shape, lambda i, j: tirx.nearbyint(divided[i, j]))
    bounded = te.compute(x.shape, lambda i, j: te.min(te.max(rounded[i, j], -128.0), 127.0))
    return te.compute(x.shape, lambda i, j: bounded[i, j].astype("int8"))


def _product(te: Any, tirx: Any, x: Any, y: Any) -> Any:
    (rows, steps), columns = x.shape, y.shape[1]
    raised = te.compute(x.shape, lambda i, j: tirx.exp(x[i, j]))
    k = te.reduce_axis((0, steps))
    return te.compute((rows, columns), lambda i, j: te.sum(raised[i, k] * y[k, j], k))


def _sum(te: Any, tirx: Any, x: Any) -> Any:
    raised = te.compute(x.shape, lambda i, j: tirx.exp(x[i, j]))
    k = te.reduce_axis((0, x.shape[1]))
    return te.compute((x.shape[0], 1), lambda i, j: te.sum(raised[i, k], k))


@pytest.mark.parametrize(
    ("build", "shapes", "passes"),
    [
        (_quantised, [(20, 1024), ()], 1),
        # A sum of nothing, and the steps of the sum.
        (_sum, [(20, 1024)], 2),
        # What a product reads eight times is computed once.
        (_product, [(16, 32), (32, 8)], 3),
    ],
    ids=["a chain", "a sum", "a product"],
)
def test_a_step_is_inside_of_what_reads_it_where_that_computes_nothing_twice(
    build: Any, shapes: list[tuple[int, ...]], passes: int
) -> None:
    from tunefleet.compiler.space.plain import plainly_scheduled

    assert _blocks(plainly_scheduled(_module(build, *shapes))) == passes


def test_a_chain_compiles_in_no_time_and_is_exact(target: CpuTarget, tmp_path: Path) -> None:
    from tunefleet.compiler.code.build import compile_module
    from tunefleet.compiler.space.plain import plainly_scheduled
    from tunefleet.compiler.toolchain import load_tvm

    module = plainly_scheduled(_module(_quantised, (20, 1024), ()))
    built = compile_module(module, target, "chain", str(tmp_path))
    assert isinstance(built, Built)
    # Of the processor: 12 s as a chain of loops, 0.1 s as one.
    assert built.build_s < 4
    tvm = load_tvm()
    x = np.random.default_rng(1).normal(size=(20, 1024)).astype(np.float32) * 9
    scale = np.float32(0.11)
    actual = tvm.runtime.tensor(np.zeros(x.shape, np.int8))
    main = tvm.runtime.load_module(built.path)["main"]
    main(tvm.runtime.tensor(x), tvm.runtime.tensor(np.asarray(scale)), actual)
    expected = np.clip(np.rint(x / scale), -128, 127).astype(np.int8)
    np.testing.assert_array_equal(actual.numpy(), expected)
