from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest

pytestmark = pytest.mark.tvm


def test_flops_of_a_convolution_are_exact(tiny: Any) -> None:
    conv = next(t.task for t in tiny.tasks if t.task.shapes.startswith("1x16x16x3 3x3x3x16"))
    outputs = 16 * 16 * 16
    # Multiply and add per tap, then bias and relu.
    assert conv.flops == outputs * (2 * 3 * 3 * 3) + 2 * outputs


def test_tasks_tell_what_numbers_they_compute_in(tiny: Any, target: Any) -> None:
    from tunefleet.stages.importing import import_network

    assert {t.task.precision for t in tiny.tasks} == {"float32"}
    tasks = [t.task for t in import_network("zoo:tiny_cnn?precision=bf16", target).tasks]
    told = {t.name: t.precision for t in tasks}
    assert (told["matmul+add"], told["conv2d+add+relu"], told["mean"]) == (
        "bf16",
        "bf16",
        "float32",
    )


def test_a_task_moves_each_of_its_tensors_once(tiny: Any) -> None:
    from tunefleet.compiler.toolchain.programs import moved_bytes

    conv = next(t.task for t in tiny.tasks if t.task.shapes.startswith("1x16x16x3 3x3x3x16"))
    assert moved_bytes(conv.program) == 4 * (16 * 16 * 3 + 3 * 3 * 3 * 16 + 16 + 16 * 16 * 16)


def test_tasks_are_ranked_by_total_flops(tiny: Any) -> None:
    totals = [t.total_flops for t in tiny.tasks]
    assert totals == sorted(totals, reverse=True)


def test_equal_programs_are_one_task_with_a_weight(target: Any) -> None:
    from tunefleet.stages.importing import import_network

    tasks = import_network("zoo:bert_2l?size=16", target).tasks
    assert max(t.weight for t in tasks if "matmul" in t.task.name) >= 6
    assert len({t.task.task_id for t in tasks}) == len(tasks)


def test_task_ids_are_the_same_in_every_process(tiny: Any) -> None:
    code = (
        "from tunefleet.stages.importing import import_network\n"
        "from tunefleet.compiler.toolchain.host import native_target\n"
        "tasks = import_network('zoo:tiny_cnn', native_target(1)).tasks\n"
        "print(*[t.task.task_id for t in tasks])"
    )
    other = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert other.stdout.split() == [t.task.task_id for t in tiny.tasks]


def test_another_target_makes_other_tasks(tiny: Any) -> None:
    from tunefleet.compiler.graph.tasks import extract_tasks
    from tunefleet.core.target import CpuTarget

    other = extract_tasks(tiny.module, CpuTarget("x86-64", 1))
    assert not {t.task.task_id for t in other} & {t.task.task_id for t in tiny.tasks}


@pytest.mark.parametrize(
    ("name", "readable"),
    [
        ("fused_conv2d3_add2_maximum11", "conv2d+add+maximum"),
        ("layer_norm1", "layer_norm"),
        ("adaptive_avg_pool2d1", "adaptive_avg_pool2d"),
        ("fused_matmul5_add1_gelu2", "matmul+add+gelu"),
        ("fused_conv3d1_add2_tir_sigmoid3_multiply", "conv3d+add+sigmoid+multiply"),
    ],
)
def test_names_are_readable(name: str, readable: str) -> None:
    from tunefleet.compiler.graph.tasks import _readable

    assert _readable(name) == readable
