"""What is not a number (NaN), through maxima and minima: as in frameworks, for nothing."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
from tests.compiler import onnx_nodes

from tunefleet.compiler.code.build import lowered
from tunefleet.compiler.toolchain import load_tvm
from tunefleet.compiler.toolchain.host import to_tvm
from tunefleet.core.target import CpuTarget

pytestmark = pytest.mark.tvm

_X86 = ("sapphirerapids", "haswell", "core2")
_ARM = CpuTarget("cortex-a72", 1, mtriple="aarch64-linux-gnu")
_NUMBERS = np.array([[1.0, np.nan, -2.0, 0.5], [np.nan, np.nan, 7.0, -0.0]], "float32")
_OTHERS = np.array([[np.nan, 1.0, -3.0, 0.25], [2.0, np.nan, 9.0, 1.0]], "float32")


def _number(value: float) -> Any:
    return np.array(value, "float32")


def _of_sums(activation: Any, dtype: str = "float32") -> Any:
    """A scheduled program of vectors: the activation of a sum of two rows."""
    tvm = load_tvm()
    rows = [tvm.te.placeholder((4096,), "float32", name) for name in "ab"]
    result = tvm.te.compute((4096,), lambda i: activation(rows[0][i] + rows[1][i]), name="result")
    schedule = tvm.s_tir.Schedule(tvm.te.create_prim_func([*rows, result]))
    (loop,) = schedule.get_loops(schedule.get_sblock("result"))
    schedule.vectorize(schedule.split(loop, [None, 16])[1])
    return schedule.mod


def _relu(x: Any) -> Any:
    return load_tvm().tirx.max(x, load_tvm().tirx.const(0, "float32"))


def _relu6(x: Any) -> Any:
    tirx = load_tvm().tirx
    return tirx.max(tirx.min(x, tirx.const(6, "float32")), tirx.const(0, "float32"))


def _instructions(module: Any, target: CpuTarget) -> list[str]:
    lines = lowered(module, target).inspect_source("asm").splitlines()
    return [found[1] for line in lines if (found := re.match(r"\t([a-z]\w*(?:\.\w+)?)\t", line))]


@pytest.mark.parametrize("activation", [_relu, _relu6])
@pytest.mark.parametrize("target", [*(CpuTarget(mcpu, 1) for mcpu in _X86), _ARM], ids=str)
def test_it_takes_no_instruction_more(activation: Any, target: CpuTarget, monkeypatch: Any) -> None:
    from tvm.s_tir.pipeline import default_s_tir_pipeline
    from tvm.tirx.compilation_pipeline import PIPELINE_MAP

    load_tvm()
    ours = _instructions(_of_sums(activation), target)
    monkeypatch.setitem(PIPELINE_MAP, "s_tir", default_s_tir_pipeline)
    by_tvm = _instructions(_of_sums(activation), target)
    assert len(by_tvm) == len(ours) > 0


def test_arm_has_an_instruction_for_it() -> None:
    made = _instructions(_of_sums(_relu6), _ARM)
    assert {"fmax", "fmin"} <= set(made)
    assert not {"fmaxnm", "fminnm"} & set(made)


@pytest.mark.parametrize(
    ("operator", "inputs", "constants"),
    [
        ("Relu", [_NUMBERS], ()),
        ("Clip", [_NUMBERS, _number(-1), _number(1)], (1, 2)),
        ("Clip", [_NUMBERS, _number(-1), _number(1)], ()),
        ("Max", [_NUMBERS, _number(0)], (1,)),
        ("Min", [_number(0), _NUMBERS], (0,)),
        ("Max", [_NUMBERS, _OTHERS], ()),
        ("Min", [_NUMBERS, _OTHERS], ()),
        ("Elu", [_NUMBERS], ()),
        ("HardSigmoid", [_NUMBERS], ()),
        ("Sign", [_NUMBERS], ()),
        ("Sign", [_NUMBERS.astype("float64")], ()),
        ("Sign", [_NUMBERS.astype("float16")], ()),
        ("ThresholdedRelu", [_NUMBERS], ()),
        ("ThresholdedRelu", [np.array([-np.inf, np.inf, 1.5], "float32")], ()),
    ],
)
def test_it_is_as_in_onnx_runtime(operator: str, inputs: Any, constants: Any) -> None:
    onnx_nodes.check(operator, inputs, constants=constants, by=onnx_nodes.prepared)


def test_what_becomes_a_place_is_within_its_bounds(target: CpuTarget) -> None:
    """Of what is not a number there is no integer: a lookup by it would be anywhere."""
    tvm = load_tvm()
    places = tvm.te.placeholder((2,), name="places")
    cut = tvm.te.compute((2,), lambda i: _relu6(places[i]).astype("int32"), name="cut")
    run = tvm.compile(tvm.te.create_prim_func([places, cut]), to_tvm(target))
    arrays = (np.array([np.nan, 3], "float32"), np.full(2, -1, "int32"))
    given = [tvm.runtime.tensor(array) for array in arrays]
    run(*given)
    unknown, three = given[1].numpy()
    assert 0 <= unknown <= 6
    assert three == 3
