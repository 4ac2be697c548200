from __future__ import annotations

import numpy as np
import pytest

from tunefleet.errors import InputError
from tunefleet.learning.division import NAMES, Division

from .made import made_records, made_table

RECORDS = made_records(made_table(tasks=6, devices=("v100", "a72")))
HOLD_OUT = {"by_target": "a72", "by_network": "net1"}


@pytest.mark.parametrize("name", NAMES)
class TestEverySplit:
    def test_parts_share_nothing(self, name: str) -> None:
        parts = Division(name, HOLD_OUT.get(name)).of(RECORDS.rows).parts()
        assert len(RECORDS.rows) == len(np.unique(np.concatenate(list(parts.values()))))

    def test_no_more_than_asked_for_train(self, name: str) -> None:
        split = Division(name, HOLD_OUT.get(name), max_records=40).of(RECORDS.rows)
        whole = Division(name, HOLD_OUT.get(name)).of(RECORDS.rows)
        assert (len(split.train), len(split.validation), len(split.test)) == (40, 10, 20)
        for part, numbers in split.parts().items():
            assert set(numbers.tolist()) <= set(whole.parts()[part].tolist())

    def test_a_card_gives_it_again(self, name: str) -> None:
        division = Division(name, HOLD_OUT.get(name), seed=3, max_records=50)
        split = division.of(RECORDS.rows)
        again = Division.of_card(division.used(split))
        assert again == division
        np.testing.assert_array_equal(split.test, again.of(RECORDS.rows).test)


@pytest.mark.parametrize(
    ("name", "hold_out", "reason"),
    [
        ("by_target", None, "needs the device that tests"),
        ("by_network", None, "needs the network that tests"),
        ("by_task", "a72", "holds nothing out"),
        ("at_random", None, "no split"),
    ],
)
def test_what_does_not_go_together_is_refused(name: str, hold_out: str, reason: str) -> None:
    with pytest.raises(InputError, match=reason):
        Division(name, hold_out)


def test_a_part_without_room_is_refused() -> None:
    with pytest.raises(InputError, match="validation part of the split is empty"):
        Division(max_records=3).of(RECORDS.rows)
