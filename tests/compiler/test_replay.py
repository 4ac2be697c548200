"""A trace means the same program, whatever number a network gave to its variables."""

from __future__ import annotations

import json
from typing import Any

import pytest

pytestmark = pytest.mark.tvm


def mean_of(variable: str) -> Any:
    """The mean of rows, as a network has it that calls its input so: one task for all of them."""
    from tunefleet.compiler.graph.tasks import normalized
    from tunefleet.compiler.toolchain import load_tvm

    tvm = load_tvm()
    te = tvm.te
    x = te.placeholder((8, 64), name=variable)
    k = te.reduce_axis((0, 64), name="k")
    total = te.compute((8,), lambda i: te.sum(x[i, k], axis=k), name=f"{variable}_red")
    mean = te.compute((8,), lambda i: total[i] / 64.0, name="T_divide")
    return normalized(te.create_prim_func([x, mean]))


def trace_of(module: Any) -> str:
    from tunefleet.compiler.toolchain import load_tvm
    from tunefleet.compiler.toolchain.programs import trace_text

    schedule = load_tvm().s_tir.Schedule(module)
    [name] = [n for n in ("lv2_red", "lv486_red") if n in str(module)]
    block = schedule.get_sblock(name)
    _, inner = schedule.get_loops(block)
    outer, _ = schedule.split(inner, [4, 16])
    schedule.rfactor(outer, 0)
    schedule.get_sblock(f"{name}_rf")
    schedule.annotate(schedule.get_sblock("root"), "tunefleet.test", 1)
    return str(trace_text(schedule.trace))


def test_a_trace_of_another_network_is_replayed() -> None:
    from tunefleet.compiler.code.replay import replay
    from tunefleet.compiler.graph.tasks import task_id_of
    from tunefleet.compiler.toolchain import load_tvm
    from tunefleet.compiler.toolchain.host import parse_target
    from tunefleet.core.target import CpuTarget

    target = parse_target("native", 1)
    assert isinstance(target, CpuTarget)
    one, other = mean_of("lv2"), mean_of("lv486")
    assert task_id_of(one["main"], target) == task_id_of(other["main"], target)
    trace = trace_of(one)
    assert "lv2_red" in trace
    replayed = replay(other, target, trace).mod
    load_tvm().ir.assert_structural_equal(replayed, replay(one, target, trace).mod)


def test_names_that_nothing_is_like_stay() -> None:
    from tunefleet.compiler.code.replay import with_names_of

    module = mean_of("lv2")
    gets = [
        ["GetSBlock", [], [name, "main"], ["b"]] for name in ("made", "x_red", "x_red_rf", "root")
    ]
    named = [i[2][0] for i in with_names_of(module, gets)]
    assert named == ["made", "lv2_red", "lv2_red_rf", "root"]
    assert json.loads(json.dumps(gets))[1][2][0] == "x_red"
