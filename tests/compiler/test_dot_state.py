"""Recurrent layers in bytes by an instruction: chosen by the target, equal to the last bit."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tests.compiler.onnx_nodes import convert, feed
from tests.compiler.test_onnx_recurrent import _in_bytes, _quantised_lstm

from tunefleet.compiler.code.executable import compile_network, run_compiled
from tunefleet.compiler.frontends.relax_ import tidy
from tunefleet.compiler.graph.pipeline import prepare
from tunefleet.compiler.graph.tasks import extract_tasks
from tunefleet.compiler.space.intrinsics import dot_products, runs_on
from tunefleet.compiler.toolchain.host import check_runs_here, native_target, parse_target, to_tvm
from tunefleet.errors import InputError

pytestmark = pytest.mark.tvm

_PLAIN = "llvm -mcpu=haswell -num-cores=1"


def _prepared(inputs: list[Any], target: str) -> Any:
    return prepare(tidy(convert(_quantised_lstm(inputs))), to_tvm(parse_target(target)))


def _by_code_for(target: str, inputs: list[Any]) -> list[np.ndarray]:
    arrays = feed(_quantised_lstm(inputs), inputs)
    compiled = compile_network(_prepared(inputs, target), parse_target(target), {})
    return run_compiled(compiled, list(arrays.values()))


def _rows(batch: int, **form: Any) -> list[Any]:
    inputs = _in_bytes(**form)
    inputs[0] = np.concatenate([inputs[0] * (1 + row) for row in range(batch)], 1)
    for state in (5, 6):
        inputs[state] = np.repeat(inputs[state], batch, 1)
    return inputs


@pytest.mark.parametrize(
    ("target", "instruction"),
    [
        ("cascadelake", "vpdpbusd.512"),
        ("alderlake", "vpdpbusd.256"),
        ("llvm -mcpu=haswell -mattr=+avxvnni", "vpdpbusd.256"),
        ("llvm -mcpu=cascadelake -mattr=-avx512vnni", ""),
        ("haswell", ""),
        ("llvm -mtriple=aarch64-linux-gnu -mcpu=neoverse-n2", ""),
        ("cuda/sm_80", ""),
    ],
)
def test_the_target_decides_which_instruction_multiplies_the_state(target, instruction):
    program = str(_prepared(_in_bytes(), target))
    assert program.count("vpdpbusd.") == program.count(instruction or "vpdpbusd.")
    assert bool(instruction) == (instruction in program and "vpdpbusd." in program)


def test_the_matrix_is_packed_before_anything_runs():
    """What packs it is no program of the network: its constants are in order."""
    names = [
        {variable.name_hint for variable in _prepared(_in_bytes(), target).get_global_vars()}
        for target in (_PLAIN, "alderlake")
    ]
    assert names[0] == names[1]


def test_a_layer_by_an_instruction_is_a_task_of_as_many_operations():
    flops = []
    for text in (_PLAIN, "alderlake"):
        tasks = extract_tasks(_prepared(_in_bytes(), text), parse_target(text))
        flops += [each.task.flops for each in tasks if each.task.operator == "lstm"]
    assert flops[0] == flops[1] > 0


@pytest.mark.parametrize("instruction", dot_products(), ids=lambda i: i.name)
@pytest.mark.parametrize(
    ("batch", "form"),
    [
        (1, {}),
        (2, {"hidden": 130, "directions": 2}),
        (3, {"dtype": "uint8", "columns": True, "points": True, "lengths": [6, 4, 1]}),
        (1, {"hidden": 600}),  # threads share the units of one sequence
    ],
    ids=str,
)
def test_an_instruction_gives_the_very_numbers(instruction, batch, form):
    if not runs_on(instruction, native_target(1)):
        pytest.skip(f"this processor has not all of {', '.join(instruction.features)}")
    try:
        check_runs_here(parse_target(_PLAIN))
    except InputError as error:
        pytest.skip(str(error))
    inputs = _rows(batch, **form)
    features = ",".join(f"+{feature}" for feature in sorted(instruction.features))
    by_instruction = _by_code_for(f"{_PLAIN} -mattr={features}", inputs)
    for one, wanted in zip(by_instruction, _by_code_for(_PLAIN, inputs), strict=True):
        np.testing.assert_array_equal(one, wanted)
