from __future__ import annotations

import json

import numpy as np
import pyarrow as pa
import pytest

from tests.dataset.records import Record, table
from tunefleet.core.identity import DeviceIdentity
from tunefleet.dataset.flop_rules import Certainty, Flops
from tunefleet.dataset.schema import WORD
from tunefleet.features.context import TaskContext
from tunefleet.learning.contexts import contexts, task_context

from .made import made_records

FIRST = np.arange(1)
MD5 = "0" * 32
CONTRACTION = Flops(8.0, Certainty.EXACT, "tiled contraction")


def workload(*arguments: object) -> str:
    return json.dumps(arguments)


@pytest.mark.parametrize(
    ("expected", "text"),
    [
        (TaskContext(((1, 8), (8, 4), (1, 4)), 8.0, "matmul"),
         workload(MD5, [1, 8], [8, 4], [1, 4])),
        (TaskContext(((1, 8, 8, 4), (3, 3, 4, 8)), 8.0, "conv"),
         workload(MD5, [1, 8, 8, 4], [3, 3, 4, 8])),
        (TaskContext((), 8.0, "conv2d_layer"), workload("conv2d_layer", 128, 3, "SAME")),
        (TaskContext((), 8.0, ""), "conv2d"),
        (TaskContext((), 8.0, ""), "[["),
        (TaskContext(((), (2,)), 8.0, "matmul"), workload(MD5, [], [2], [-1], [2.5], {})),
    ],
)  # fmt: skip
def test_auto_scheduler_tells_shapes_in_its_workload(expected: TaskContext, text: str) -> None:
    assert expected == task_context("auto_scheduler", text, CONTRACTION, {})


def test_a_rule_tells_a_winograd_convolution() -> None:
    flops = Flops(8.0, Certainty.ESTIMATED, "products of a Winograd convolution")
    assert task_context("auto_scheduler", workload(MD5, [1]), flops, {}).operator == "winograd"


def test_autotvm_tells_its_inputs_and_its_template() -> None:
    text = workload("dense_pack.x86", ["TENSOR", [1, 64], "float32"], ["TENSOR", [9, 64], "x"], [1])
    expected = TaskContext(((1, 64), (9, 64), ()), 0.0, "dense_pack.x86")
    assert expected == task_context("autotvm", text, None, {})


def test_metaschedule_tells_what_was_noted() -> None:
    extra = {"args_info": [["TENSOR", "float32", [1, 6]], ["TENSOR", "float32", [6]]],
             "operator": "conv2d"}  # fmt: skip
    expected = TaskContext(((1, 6), (6,)), 8.0, "conv2d")
    assert expected == task_context("metaschedule", "1", CONTRACTION, extra)


@pytest.mark.parametrize("extra", [{}, {"args_info": "x", "operator": 1}, {"args_info": [[], 1]}])
def test_what_cannot_be_understood_is_not_told(extra: dict[str, object]) -> None:
    assert TaskContext() == task_context("metaschedule", "1", None, extra)


def test_each_row_has_the_context_of_its_task_and_device() -> None:
    records = made_records(
        table([
            Record(workload=workload(MD5, [size, 4], [4, size]), device=device)
            for device in ("v100", "k80", "nobody's")
            for size in (8, 16)
        ])
    )  # fmt: skip
    found = contexts(records, np.array([0, 1, 2, 4, 0]))
    np.testing.assert_array_equal(found[0], found[4])
    assert len(np.unique(found, axis=0)) == 4
    # FLOP/s of a V100 and of nobody's.
    assert found[0, 22] == pytest.approx(np.log2(1 + 15700), abs=0.1)
    assert found[3, 22] == 0


def test_a_record_of_ours_tells_its_machine() -> None:
    machine = DeviceIdentity("cpu", "Made up", ("avx2",), 4, (("L1", 32768),), 8)
    one = table([Record(device="Made up", target='{"kind":"llvm","mcpu":"nehalem","num-cores":2}')])
    extra = json.dumps({"device": machine.to_json()}, separators=(",", ":"))
    place = one.schema.get_field_index("extra")
    column = pa.array([extra]).dictionary_encode().cast(WORD)
    found = contexts(made_records(one.set_column(place, one.schema.field(place), column)), FIRST)
    # Two of its four cores.
    np.testing.assert_allclose(np.log2([3, 5]), found[0, [24, 31]])


def test_columns_may_come_as_plain_text() -> None:
    records = made_records(table([Record(workload=workload(MD5, [8, 4], [4, 8]))] * 2))
    place = records.table.schema.get_field_index("extra")
    plain = records.table.set_column(place, "extra", records.table["extra"].cast(pa.utf8()))
    expected, found = (contexts(made_records(t), np.arange(2)) for t in (records.table, plain))
    np.testing.assert_array_equal(expected, found)
