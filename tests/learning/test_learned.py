from __future__ import annotations

import json
from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from tests.costmodel.cards import a_card
from tests.dataset.records import Record, table
from tunefleet.costmodel.card import Learned
from tunefleet.dataset.schema import WORD
from tunefleet.learning.learned import learned
from tunefleet.learning.records import Records

from .made import made_records

HASWELL, BOARD = '{"kind":"llvm","mcpu":"haswell"}', "llvm -mtriple=aarch64-linux-gnu"


def with_types(records: Sequence[tuple[Record, Sequence[str]]]) -> Records:
    """Records that tell the types of their arguments, as MetaSchedule's of tunefleet do."""
    plain = table([record for record, _ in records])
    extras = [
        json.dumps({"args_info": [["TENSOR", t, [4]] for t in types]}, separators=(",", ":"))
        for _, types in records
    ]
    place = plain.schema.get_field_index("extra")
    column = pa.array(extras).dictionary_encode().cast(WORD)
    return made_records(plain.set_column(place, plain.schema.field(place), column))


MIXED = with_types(
    [
        *[(Record(target=HASWELL), ("float32", "float32", "float32"))] * 3,
        *[(Record(target=HASWELL), ("uint8", "int8", "int32", "float32"))] * 2,
        (Record(target=BOARD), ("uint16", "uint16", "float32")),
    ]
)


def test_records_tell_what_they_compute_in_and_where() -> None:
    expected = (
        Learned("x86", "float32", 3), Learned("x86", "int8", 2), Learned("arm", "bf16", 1),
    )  # fmt: skip
    assert expected == learned(MIXED, np.arange(6))


def test_only_the_rows_that_trained_count() -> None:
    assert learned(MIXED, np.array([1, 3])) == (
        Learned("x86", "float32", 1), Learned("x86", "int8", 1),
    )  # fmt: skip


def test_an_output_decides_nothing() -> None:
    quantise = with_types([(Record(target=HASWELL), ("float32", "uint8"))])
    assert learned(quantise, np.arange(1)) == (Learned("x86", "float32", 1),)


def test_autotvm_tells_types_in_its_workload() -> None:
    workload = json.dumps(["d", ["TENSOR", [1, 4], "int8"], ["TENSOR", [4, 4], "int8"], "int32"])
    records = table([Record(workload=workload, target=HASWELL)])
    place = records.schema.get_field_index("format")
    column = pa.array(["autotvm"]).dictionary_encode().cast(WORD)
    records = records.set_column(place, records.schema.field(place), column)
    assert learned(made_records(records), np.arange(1)) == (Learned("x86", "int8", 1),)


def test_what_goes_on_from_a_model_knows_what_that_knew() -> None:
    parent = a_card(learned=(Learned("x86", "int8", 9), Learned("gpu", "float32", 1)))
    assert learned(MIXED, np.arange(5), parent) == (
        Learned("x86", "int8", 11), Learned("x86", "float32", 3), Learned("gpu", "float32", 1),
    )  # fmt: skip


def test_what_goes_on_from_a_model_that_does_not_tell_does_not_either() -> None:
    assert learned(MIXED, np.arange(5), a_card()) == ()
