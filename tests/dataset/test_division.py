from __future__ import annotations

import numpy as np
import pytest

from tests.learning.made import made_table
from tunefleet.dataset.division import SPLITS, Division
from tunefleet.dataset.rows import Rows
from tunefleet.dataset.splits import divide
from tunefleet.errors import InputError

ROWS = Rows.of(made_table(tasks=6, devices=("v100", "a72")))
HOLD_OUT = {"by_target": "a72", "by_network": "net1"}


@pytest.mark.parametrize("name", SPLITS)
class TestEverySplit:
    def test_parts_share_nothing(self, name: str) -> None:
        parts = divide(ROWS, Division(name, HOLD_OUT.get(name))).parts()
        assert len(ROWS) == len(np.unique(np.concatenate(list(parts.values()))))

    def test_no_more_than_asked_for_train(self, name: str) -> None:
        split = divide(ROWS, Division(name, HOLD_OUT.get(name), max_records=40))
        whole = divide(ROWS, Division(name, HOLD_OUT.get(name)))
        assert (len(split.train), len(split.validation), len(split.test)) == (40, 10, 20)
        for part, numbers in split.parts().items():
            assert set(numbers.tolist()) <= set(whole.parts()[part].tolist())


def workloads_of_test(division: Division) -> set[str]:
    tested = divide(ROWS, division).test
    return {ROWS.workload.names[code] for code in ROWS.workload.codes[tested]}


def test_several_networks_are_held_out() -> None:
    listed = {"one": ("w0",), "other": ("w1", "w2"), "rest": ("w3",)}
    both = Division("by_network", "one,other", networks=listed)
    assert workloads_of_test(both) == {"w0", "w1", "w2"}


def test_networks_may_be_listed() -> None:
    workload = ROWS.workload.names[0]
    listed = Division("by_network", "mine", networks={"mine": (workload,), "other": ()})
    assert workloads_of_test(listed) == {workload}
    with pytest.raises(InputError, match="hold out one of 'mine'"):
        divide(ROWS, Division("by_network", "net1", networks={"mine": (workload,)}))


@pytest.mark.parametrize(
    ("name", "hold_out", "reason"),
    [
        ("by_target", None, "needs a test device"),
        ("by_network", None, "needs a test network"),
        ("by_task", "a72", "holds nothing out"),
        ("at_random", None, "not a split"),
    ],
)
def test_what_does_not_go_together_is_refused(name: str, hold_out: str, reason: str) -> None:
    with pytest.raises(InputError, match=reason):
        Division(name, hold_out)


def test_networks_are_refused_where_none_is_held_out() -> None:
    with pytest.raises(InputError, match="by_target holds no networks out"):
        Division("by_target", "a72", networks={"mine": ("w",)})


def test_a_part_without_room_is_refused() -> None:
    with pytest.raises(InputError, match="validation part of the split is empty"):
        divide(ROWS, Division(max_records=3))
