from __future__ import annotations

import numpy as np
import pytest

from tunefleet.dataset.division import SPLITS, Division
from tunefleet.dataset.splits import divide
from tunefleet.learning.lineage import division_of, split_used

from .made import made_records, made_table

ROWS = made_records(made_table(tasks=6, devices=("v100", "a72"))).rows
HOLD_OUT = {"by_target": "a72", "by_network": "net1"}


@pytest.mark.parametrize("name", SPLITS)
def test_a_card_gives_the_division_again(name: str) -> None:
    division = Division(name, HOLD_OUT.get(name), seed=3, max_records=50)
    split = divide(ROWS, division)
    again = division_of(split_used(division, split))
    assert again == division
    np.testing.assert_array_equal(split.test, divide(ROWS, again).test)


def test_a_card_tells_the_workloads_of_listed_networks_that_were_held_out() -> None:
    listed = {"mine": (ROWS.workload.names[0],), "other": (ROWS.workload.names[1],)}
    division = Division("by_network", "mine", networks=listed)
    split = divide(ROWS, division)
    used = split_used(division, split)
    assert {"mine": listed["mine"]} == used.networks
    np.testing.assert_array_equal(split.test, divide(ROWS, division_of(used)).test)
