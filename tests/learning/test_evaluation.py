from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from tests.dataset.records import Record, table
from tunefleet.costmodel import RandomModel, XGBModel, metrics
from tunefleet.costmodel.card import METRICS
from tunefleet.dataset.division import Division
from tunefleet.dataset.splits import divide
from tunefleet.errors import InputError
from tunefleet.features import sequences
from tunefleet.learning.evaluation import evaluate, unseen
from tunefleet.learning.inputs import Examples, Inputs
from tunefleet.learning.records import Records

from .made import made_records, made_table, silent
from .test_versions import a_card


def examples(records: Records) -> Examples:
    numbers = np.arange(len(records.rows))
    return Inputs.of(records, numbers, sequences.SCHEMA, silent).examples("xgb")


class Oracle(RandomModel):
    """Predicts the labels."""

    def __init__(self, labels: np.ndarray) -> None:
        super().__init__()
        self.labels = labels

    def predict(self, programs: Any) -> np.ndarray:
        return self.labels


def test_what_knows_the_labels_is_perfect_and_chance_is_not() -> None:
    test = examples(made_records())
    (found,) = evaluate([Oracle(test.labels)], test)
    assert [found.median(name) for name in METRICS] == [1.0, 1.0, 1.0, 0.0, 1.0]
    assert found.random["pca"] == 0.5
    assert found.random["top1"] < found.random["top5"] < 1


def test_every_member_is_measured_on_every_device() -> None:
    test = examples(made_records(made_table(devices=("v100", "a72"))))
    found = evaluate([RandomModel(seed) for seed in range(3)], test)
    assert [device.device for device in found] == ["v100", "a72"]
    for device in found:
        assert {len(values) for values in device.members.values()} == {3}
        assert (device.records, device.tasks) == (120, 4)


def test_rankings_are_those_of_the_metrics() -> None:
    test = examples(made_records())
    scores = RandomModel(5).predict(test.programs)
    (found,) = evaluate([RandomModel(5)], test)
    expected = metrics.ranking(test.labels, scores, test.tasks)
    assert found.members["pca"] == (expected.pca,)
    assert found.random["top5"] == metrics.random_ranking(test.labels, test.tasks).top5


def test_a_device_on_which_all_failed_is_left_out() -> None:
    failed = table([Record(device="k80", error_no=4)] * 3)
    found = evaluate([RandomModel()], examples(made_records(made_table(), failed)))
    assert [device.device for device in found] == ["v100"]
    with pytest.raises(InputError, match="no record of the test part has a valid latency"):
        evaluate([RandomModel()], examples(made_records(failed)))


def test_programs_of_other_features_are_refused() -> None:
    model = XGBModel(rounds=1).fit([np.ones((1, 3), np.float32)] * 2, np.ones(2), ["t"] * 2)
    with pytest.raises(InputError, match=r"xgb model cannot take .* columns"):
        evaluate([model], examples(made_records()))


def test_files_that_were_trained_on_give_their_test_part() -> None:
    records = made_records()
    numbers, note = unseen(a_card(records), records)
    np.testing.assert_array_equal(divide(records.rows, Division()).test, numbers)
    assert "the test part of that training" in note


def test_other_files_are_taken_whole() -> None:
    card, others = a_card(made_records()), made_records(made_table(tasks=5))
    numbers, note = unseen(card, others)
    assert len(numbers) == len(others.rows)
    assert "none of these files" in note


def test_files_of_which_some_were_trained_on_are_refused() -> None:
    both = made_records(made_table(), made_table(tasks=5))
    with pytest.raises(InputError, match="was trained on some of these files"):
        unseen(a_card(made_records()), both)


def test_records_of_another_tuner_are_refused() -> None:
    card = a_card(made_records())
    card = replace(card, records=tuple(replace(r, formats=("autotvm",)) for r in card.records))
    with pytest.raises(InputError, match="was trained on programs of autotvm"):
        unseen(card, made_records())
