from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import numpy as np
import pytest

from tests.costmodel.cards import a_card
from tunefleet.costmodel import CostModel, LabelledPrograms, RandomModel, XGBModel
from tunefleet.errors import InputError
from tunefleet.learning.growing import Recall, check_learns, check_recall, recalled

PROGRAMS = [np.full((1, 1), value, np.float32) for value in range(4)]


class Fixed:
    """Scores programs by their only number, times `sign`."""

    def __init__(self, sign: float) -> None:
        self.sign = sign

    def predict(self, programs: Sequence[Any]) -> Any:
        return self.sign * np.array([program[0, 0] for program in programs], float)

    @property
    def remembered(self) -> Sequence[LabelledPrograms]:
        return [LabelledPrograms(PROGRAMS, np.array([0.25, 0.5, 0.75, 1.0]), ["t"] * 4)]


def models(*signs: float) -> list[CostModel]:
    return [cast(CostModel, Fixed(sign)) for sign in signs]


def test_what_is_forgotten_is_the_mean_over_members() -> None:
    (recall,) = recalled(models(1.0, 1.0), models(1.0, -1.0))
    assert recall.records == 4
    assert recall.before == {"top1": 1.0, "top5": 1.0}
    assert recall.after == {"top1": 0.625, "top5": 1.0}
    assert recall.loss == 0.375


def test_records_of_a_task_each_tell_nothing_of_what_is_forgotten() -> None:
    class Singles(Fixed):
        @property
        def remembered(self) -> Sequence[LabelledPrograms]:
            (of,) = super().remembered
            return [LabelledPrograms(of.programs, of.labels, ["a", "b", "c", "d"])]

    (recall,) = recalled([cast(CostModel, Singles(1.0))], models(-1.0))
    assert recall.loss == 0.0
    assert not recall.has_order
    assert recalled(models(1.0), models(-1.0))[0].has_order


def test_more_members_than_parents_go_on_in_turn() -> None:
    (recall,) = recalled(models(-1.0), models(1.0, 1.0))
    assert recall.loss == 0.0
    assert recall.before["top1"] == 0.25


@pytest.mark.parametrize(("most", "refused"), [(0.1, True), (0.5, False)])
def test_a_version_that_forgets_more_than_allowed_is_refused(most: float, refused: bool) -> None:
    lost = Recall(2, 9, {"top1": 0.9, "top5": 0.9}, {"top1": 0.7, "top5": 0.9})
    kept = Recall(1, 9, {"top1": 0.9, "top5": 0.9}, {"top1": 0.9, "top5": 0.95})
    if not refused:
        check_recall("mine", [kept, lost], most)
        return
    reason = r"top1 on what it learned second would fall from 0\.900 to 0\.700"
    with pytest.raises(InputError, match=reason):
        check_recall("mine", [kept, lost], most)


def test_a_kind_that_keeps_nothing_cannot_be_guarded() -> None:
    of_trees = a_card(kind="xgb")
    with pytest.raises(InputError, match="keeps no programs to test"):
        check_learns(of_trees, [XGBModel(), RandomModel()])
