from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.dataset.test_metaschedule_tvm import commit_matmul, database

from tunefleet.dataset import codecs

pytestmark = pytest.mark.tvm


@pytest.fixture
def row(tmp_path: Path) -> dict[str, Any]:
    """A record of a matrix product with one split, as MetaSchedule wrote it."""
    commit_matmul(database(tmp_path / "a"), 32, [1e-6])
    (batch,) = codecs.read(tmp_path / "a" / "database_tuning_record.json")
    return batch.to_pylist()[0]


def test_a_record_becomes_its_program_again(row: dict[str, Any]) -> None:
    from tunefleet.compiler.code.recorded import schedule_of

    schedule = schedule_of(row["workload"], row["definition"], row["steps"])
    block = schedule.get_sblock("c")
    # The first of three loops was split in three.
    assert len(schedule.get_loops(block)) == 5


def test_a_record_has_a_row_for_each_store(row: dict[str, Any]) -> None:
    from tunefleet.compiler.code.recorded import per_store_features

    arguments = (row["workload"], row["definition"], row["target"], row["steps"])
    found = per_store_features(*arguments)
    assert found.shape == (1, 172)
    assert found.tolist() == per_store_features(*arguments).tolist()


@pytest.mark.parametrize(
    "change",
    [{"steps": ['["Nope",[],[],[]]']}, {"definition": "AAAA"}, {"target": "nowhere"}],
)
def test_what_does_not_fit_is_a_value_error(row: dict[str, Any], change: dict[str, Any]) -> None:
    from tunefleet.compiler.code.recorded import per_store_features

    row |= change
    with pytest.raises(ValueError, match=r"\w"):
        per_store_features(row["workload"], row["definition"], row["target"], row["steps"])
