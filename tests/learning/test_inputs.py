from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from tests.dataset.test_metaschedule_tvm import commit_matmul, database
from tunefleet.costmodel import MODELS
from tunefleet.dataset import codecs
from tunefleet.dataset.division import Division
from tunefleet.dataset.splits import divide
from tunefleet.errors import InputError
from tunefleet.features import behaviours, sequences, tilings
from tunefleet.learning.inputs import SCHEMAS, Inputs, all_rows, extractor

from .made import made_records, silent

RECORDS = made_records()


def inputs(numbers: np.ndarray) -> Inputs:
    return Inputs.of(RECORDS, numbers, sequences.SCHEMA, silent)


@pytest.mark.parametrize("name", sorted(SCHEMAS))
def test_schemas_go_by_their_name(name: str) -> None:
    assert extractor(name).name == name


def test_an_unknown_schema_is_refused() -> None:
    with pytest.raises(
        InputError, match=r"unknown feature schema 'x/1'; choose one of tilings/1, sequences/1"
    ):
        extractor("x/1")


@pytest.mark.parametrize("kind", sorted(MODELS))
def test_every_kind_takes_programs_of_one_width(kind: str) -> None:
    examples = inputs(np.arange(20)).examples(kind)
    assert len({program.shape[1] for program in examples.programs}) == 1
    assert len(examples.programs) == len(examples.labels) == len(examples.tasks) == 20


def test_trees_take_a_sequence_as_one_row() -> None:
    found = inputs(np.arange(3))
    assert found.examples("xgb").programs[0].shape == (1, sequences.LONGEST * sequences.WIDTH)
    assert found.examples("mlp").programs[0].shape == (2, sequences.WIDTH)


def test_labels_are_relative_to_the_best_of_all_records() -> None:
    # Of 30 programs the 29th is the best valid one.
    examples = inputs(np.array([0, 28, 29])).examples("xgb")
    np.testing.assert_allclose([1 / 29, 1.0, 0.0], examples.labels)


def test_tilings_are_a_row_for_the_program_and_one_for_each_primitive() -> None:
    found = Inputs.of(RECORDS, np.array([3, 1]), tilings.SCHEMA, silent)
    assert [p.shape for p in found.examples("attention").programs] == [(3, tilings.WIDTH)] * 2
    trees = found.examples("xgb").programs
    assert trees[0].shape == (1, trees[1].shape[1])
    # The device table knows the V100; the split of programs 3 and 1 is 4 and 2 long.
    for program, length in zip(found.examples("mlp").programs, (4, 2), strict=True):
        assert program[0, 19] == 1.0
        assert program[1, 19] == np.log2(length)


def test_parts_are_those_of_the_split() -> None:
    split = divide(RECORDS.rows, Division(max_records=40))
    parts = inputs(all_rows(split)).parts("mlp", split)
    for name, numbers in split.parts().items():
        examples = getattr(parts, name)
        np.testing.assert_array_equal(RECORDS.rows.labels[numbers], examples.labels)
        whole = inputs(numbers).examples("mlp").programs
        for expected, program in zip(whole, examples.programs, strict=True):
            np.testing.assert_array_equal(expected, program)


@pytest.mark.parametrize("part", ["train", "validation", "test"])
def test_a_part_of_failures_alone_is_refused(part: str) -> None:
    split = divide(RECORDS.rows, Division())
    parts = inputs(all_rows(split)).parts("mlp", split)
    failed = replace(getattr(parts, part), labels=np.zeros(len(getattr(parts, part).labels)))
    with pytest.raises(InputError, match=f"no record of the {part} part has a valid latency"):
        replace(parts, **{part: failed})


def test_programs_of_one_speed_to_train_on_are_refused() -> None:
    split = divide(RECORDS.rows, Division())
    parts = inputs(all_rows(split)).parts("mlp", split)
    alike = replace(parts.train, labels=np.ones(len(parts.train.labels)))
    with pytest.raises(InputError, match="no record of the train part is faster than another"):
        replace(parts, train=alike)


@pytest.mark.parametrize("schema", ["per-store/1", "behaviours/1"])
def test_lowered_schemas_refuse_records_of_another_tuner(schema: str) -> None:
    with pytest.raises(InputError, match="there are records of auto_scheduler"):
        Inputs.of(RECORDS, np.arange(3), schema, silent)


@pytest.mark.tvm
@pytest.mark.parametrize(
    ("schema", "shape"), [("per-store/1", (1, 172)), ("behaviours/1", (8, behaviours.WIDTH))]
)
def test_lowered_schemas_take_records_of_metaschedule_with_their_module(
    schema: str, shape: tuple[int, int], tmp_path: Path
) -> None:
    for size in (32, 64):
        commit_matmul(database(tmp_path / "a"), size, [1e-6])
    log = tmp_path / "a" / "database_tuning_record.json"
    records = made_records(pa.Table.from_batches(list(codecs.read(log))))
    found = Inputs.of(records, np.arange(2), schema, silent)
    for kind in ("xgb", "mlp"):
        assert [p.shape for p in found.examples(kind).programs] == [shape] * 2
    log.with_name("database_workload.json").unlink()
    without = made_records(pa.Table.from_batches(list(codecs.read(log))))
    with pytest.raises(InputError, match="line 1 has none; give such records"):
        Inputs.of(without, np.arange(2), schema, silent)
