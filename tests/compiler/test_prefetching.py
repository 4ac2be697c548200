"""Programs in register tiles ask for the next panel of their weights, and compute the same."""

from __future__ import annotations

import itertools
import operator
from typing import Any

import numpy as np
import pytest

pytestmark = pytest.mark.tvm

from tests.compiler.products import saved_program  # noqa: E402
from tests.compiler.test_register_tiles import (  # noqa: E402
    convolution,
    matrix_product,
    traces_of,
)

from tunefleet.compiler.code.build import build_candidate, lowered  # noqa: E402
from tunefleet.compiler.code.packing import arguments_of, without_packing  # noqa: E402
from tunefleet.compiler.code.prefetching import with_prefetches  # noqa: E402
from tunefleet.compiler.code.replay import scheduled  # noqa: E402
from tunefleet.compiler.code.weight_orders import packings_of  # noqa: E402
from tunefleet.compiler.space.opening import task_space  # noqa: E402
from tunefleet.compiler.toolchain import load_tvm  # noqa: E402
from tunefleet.compiler.toolchain.programs import load_program  # noqa: E402
from tunefleet.core.target import CpuTarget  # noqa: E402
from tunefleet.core.trial import Built  # noqa: E402

tvm = load_tvm()
tirx = tvm.tirx

AVX2, AVX512 = CpuTarget("znver3", 1), CpuTarget("icelake-server", 1)
_LINE = 16  # float32 of 64 bytes


def plain_and_ahead(outputs, target, count):
    """Programs without prefetches and with them."""
    program = saved_program(outputs)
    for trace in traces_of(task_space(program, target), count):
        module = scheduled(load_program(program), target, trace)
        packings = packings_of(module["main"])
        plain = without_packing(module)
        yield trace, plain, with_prefetches(plain, packings), packings


def asked(module):
    """The elements of the weights that a program asks for, in any step of its loops."""
    found = []

    def visit(statement, loops):
        if isinstance(statement, tirx.For):
            visit(statement.body, [*loops, statement])
        elif isinstance(statement, tirx.SeqStmt):
            for each in statement.seq:
                visit(each, loops)
        elif isinstance(statement, tvm.s_tir.SBlockRealize):
            visit(statement.block.body, loops)
        elif isinstance(statement, tirx.Evaluate) and isinstance(statement.value, tvm.ir.Call):
            found.append((loops, statement.value))

    visit(module["main"].body, [])
    places = set()
    for loops, call in found:
        (pointer,) = [a for a in call.args if isinstance(a, tvm.ir.Call)]
        for values in itertools.product(*(range(int(loop.extent)) for loop in loops)):
            known = {loop.loop_var: v for loop, v in zip(loops, values, strict=True)}
            places.add(number_of(pointer.args[2], known))
    return places


def number_of(expression, known):
    """An expression's value where those of its variables are known."""
    if isinstance(expression, tirx.IntImm):
        return int(expression)
    if isinstance(expression, tirx.Var):
        return next(value for variable, value in known.items() if variable.same_as(expression))
    if isinstance(expression, tirx.Cast):
        return number_of(expression.value, known)
    of_both: dict[str, Any] = {
        "Add": operator.add,
        "Mul": operator.mul,
        "FloorDiv": operator.floordiv,
        "FloorMod": operator.mod,
        "Sub": operator.sub,
        "Min": min,
    }
    both = (number_of(each, known) for each in (expression.a, expression.b))
    return of_both[type(expression).__name__](*both)


@pytest.mark.parametrize(
    "outputs", [matrix_product(48, 96, 32), convolution(7, 2, 3, 64)], ids=["product", "window"]
)
def test_the_whole_next_panel_is_asked_for_while_one_is_computed_with(outputs):
    seen = 0
    for trace, plain, ahead, (packing,) in plain_and_ahead(outputs, AVX2, 24):
        if ahead.same_as(plain):
            continue
        shape = [int(extent) for extent in ahead["main"].params[packing.argument].shape]
        count, panel = shape[0], int(np.prod(shape[1:]))
        lines = {at // _LINE for at in asked(ahead)}
        assert min(lines) * _LINE % panel < _LINE, trace  # where a panel begins
        assert set(range(min(lines), count * panel // _LINE)) <= lines, trace
        seen += 1
    assert seen >= 4


@pytest.mark.parametrize("outputs", [matrix_product(48, 96, 32), convolution(7, 2, 3, 64)])
def test_results_are_the_same_bit_by_bit(outputs, tmp_path, monkeypatch):
    program = saved_program(outputs)
    for trace in traces_of(task_space(program, AVX2), 4):
        results = []
        for name in ("ahead", "plain"):
            if name == "plain":
                monkeypatch.setattr(
                    "tunefleet.compiler.code.build.with_prefetches", lambda module, _: module
                )
            built = build_candidate(program, AVX2, name, trace, str(tmp_path))
            monkeypatch.undo()
            assert isinstance(built, Built)
            rng = np.random.default_rng(0)
            shapes = [[int(extent) for extent in each.shape] for each in outputs]
            arrays = [rng.standard_normal(shape).astype("float32") for shape in shapes]
            taken = [tvm.runtime.tensor(a) for a in arguments_of(built, arrays)]
            tvm.runtime.load_module(built.path)["main"](*taken)
            results.append(taken[-1].numpy())
        assert np.array_equal(*results)


def test_sums_stay_in_registers_beside_a_prefetch():
    checked = 0
    for trace, plain, ahead, _ in plain_and_ahead(matrix_product(96, 192, 64), AVX512, 24):
        if ahead.same_as(plain):
            continue
        code = lowered(ahead, AVX512).inspect_source("asm")
        assert "prefetcht1" in code, trace
        assert "AllocWorkspace" not in code
        checked += 1
    assert checked >= 4
