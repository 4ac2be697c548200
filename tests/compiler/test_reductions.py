"""Reductions a vector of channels at a time: where they are tried, and what they compute."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tunefleet.core.trial import Built

pytestmark = pytest.mark.tvm


def program(
    shape: tuple[int, ...], function: Callable[[Any], Any], weights: tuple[int, ...]
) -> str:
    import tvm
    from tvm import te

    given = te.placeholder(shape, name="given")
    others = [te.placeholder(weights, name="weights")] if weights else []
    found = te.create_prim_func([given, *others, function(given, *others)])
    return str(tvm.ir.save_json(tvm.IRModule({"main": found})))


def max_pool(x: Any) -> Any:
    from tvm import topi

    return topi.nn.pool2d(x, (3, 3), (2, 2), (1, 1), (1, 1, 1, 1), "max", layout="NHWC")


def total(x: Any) -> Any:
    from tvm import topi

    return topi.sum(x, axis=(1, 2), keepdims=True)


def highest(x: Any) -> Any:
    from tvm import topi

    return topi.max(x, axis=(1, 2))


def row_sums(x: Any) -> Any:
    from tvm import topi

    return topi.sum(x, axis=-1)


def depthwise(x: Any, w: Any) -> Any:
    from tvm import te

    i, j = te.reduce_axis((0, 3), "i"), te.reduce_axis((0, 3), "j")
    return te.compute(
        (1, 6, 6, 32),
        lambda n, h, v, c: te.sum(x[n, h + i, v + j, c] * w[i, j, c], axis=[i, j]),
        name="depthwise",
    )


def vectors_of(text: str, target: Any) -> tuple[Any, list[int]]:
    """The decision space, and its sketches that take channels inside the reduction."""
    from tunefleet.compiler.space.opening import sketches_of
    from tunefleet.search.decisions import DecisionSpace

    space = DecisionSpace.of(sketches_of(text, target))
    # The only reorder of these programs without tiling is the rule's own.
    kinds = [[each[0] for each in sketch.instructions] for sketch in space.sketches]
    return space, [i for i, k in enumerate(kinds) if "Reorder" in k and k.count("Split") == 1]


@pytest.mark.parametrize("function", [total, highest])
def test_a_long_reduction_computes_the_same(
    function: Callable[[Any], Any], target: Any, tmp_path: Path
) -> None:
    from tunefleet.compiler.code.build import build_candidate, build_default
    from tunefleet.stages.work import check_output

    text = program((1, 9, 9, 48), function, ())
    space, mine = vectors_of(text, target)
    (sketch,) = mine
    default = build_default(text, target, "default", str(tmp_path))
    population = space.sample(100, np.random.default_rng(0))
    population = population.take(population.rows(sketch)[:4])
    assert len(population) == 4
    for i, trace in enumerate(space.traces(population)):
        built = build_candidate(text, target, str(i), trace, str(tmp_path))
        assert isinstance(default, Built)
        assert isinstance(built, Built)
        assert check_output(default, built, seed=1).difference == ""


@pytest.mark.parametrize(
    ("shape", "function", "weights"),
    [
        ((128, 128), row_sums, ()),
        ((1, 8, 8, 32), depthwise, (3, 3, 32)),
        ((1, 9, 9, 4), total, ()),
        ((1, 8, 8, 48), total, ()),
        ((1, 8, 8, 48), max_pool, ()),
    ],
)
def test_others_are_scheduled_as_before(
    shape: tuple[int, ...], function: Callable[..., Any], weights: tuple[int, ...], target: Any
) -> None:
    assert vectors_of(program(shape, function, weights), target)[1] == []


@pytest.mark.parametrize(("operator", "start"), [("ReduceMax", -np.inf), ("ReduceMin", np.inf)])
def test_an_extreme_from_infinity_is_taken_apart(operator: str, start: float, target: Any) -> None:
    """TVM alone knows no reduction that starts so, and left it to one number at a time."""
    import tvm
    from tests.compiler.onnx_nodes import convert, model, random

    from tunefleet.compiler.code.build import lowered
    from tunefleet.compiler.code.replay import replay
    from tunefleet.compiler.graph.pipeline import prepare
    from tunefleet.compiler.graph.tasks import extract_tasks
    from tunefleet.compiler.space.opening import sketches_of
    from tunefleet.compiler.toolchain.host import to_tvm
    from tunefleet.compiler.toolchain.programs import load_program
    from tunefleet.search.decisions import DecisionSpace

    array = random(8, 512)
    network = model(operator, [array], keepdims=0)
    (weighted,) = extract_tasks(prepare(convert(network), to_tvm(target)), target)
    text = weighted.task.program
    space = DecisionSpace.of(sketches_of(text, target))
    population = space.sample(30, np.random.default_rng(0))
    traces = [trace for trace in space.traces(population) if '"RFactor"' in trace]
    assert traces
    module = replay(load_program(text), target, traces[0]).mod
    compute = lowered(module, target)["main"]
    wanted = array.max() if operator == "ReduceMax" else array.min()
    for given, expected in ((array, wanted), (np.full_like(array, start), start)):
        found = tvm.runtime.tensor(np.zeros((), "float32"))
        compute(tvm.runtime.tensor(given), found)
        assert found.numpy() == expected


def test_a_process_that_took_one_apart_ends_well() -> None:
    """TVM's table of reductions outlives Python, and with it the functions of Python in it."""
    code = "from tunefleet.compiler.toolchain import load_tvm; load_tvm()"
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (ended.returncode, ended.stderr) == (0, "")
