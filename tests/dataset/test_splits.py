from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tunefleet.dataset import splits
from tunefleet.dataset.division import Shares
from tunefleet.dataset.rows import Rows
from tunefleet.dataset.splits import SplitRows
from tunefleet.errors import InputError

from .records import RECORD, Record, programs_of, regular, rows

Splitter = Callable[[Rows, int], SplitRows]
SHARES = Shares(0.25, 0.25)
SPLITTERS: dict[str, Splitter] = {
    "within_task": lambda found, seed: splits.within_task(found, SHARES, seed),
    "within_task_in_order": lambda found, seed: splits.within_task_in_order(found, SHARES),
    "by_task": lambda found, seed: splits.by_task(found, SHARES, seed),
    "by_target": lambda found, seed: splits.by_target(found, "v100", SHARES, seed),
    "by_network": lambda found, seed: splits.by_network(found, ["matmul"], SHARES, seed),
}


@pytest.mark.parametrize("splitter", SPLITTERS.values(), ids=SPLITTERS)
class TestEverySplit:
    @settings(max_examples=40)
    @given(st.lists(RECORD, min_size=1, max_size=60), st.integers(0, 3))
    def test_parts_cover_the_records_and_share_no_program(
        self, splitter: Splitter, records: list[Record], seed: int
    ) -> None:
        found = rows(records)
        try:
            split = splitter(found, seed)
        except InputError:
            return
        parts = list(split.parts().values())
        assert all(len(part) for part in parts)
        np.testing.assert_array_equal(np.arange(len(records)), np.sort(np.concatenate(parts)))
        programs = [programs_of(found, part) for part in parts]
        assert sum(map(len, programs)) == len(set.union(*programs))

    def test_is_the_same_for_the_same_seed(self, splitter: Splitter) -> None:
        records = [
            Record(workload, device, (f'["SP",{i}]',))
            for workload in ("matmul", "conv2d", "pool", "softmax")
            for device in ("v100", "a100")
            for i in range(20)
        ]
        first, second = splitter(rows(records), 5), splitter(rows(records), 5)
        for name, part in first.parts().items():
            np.testing.assert_array_equal(part, second.parts()[name])

    def test_no_records_are_refused(self, splitter: Splitter) -> None:
        with pytest.raises(InputError):
            splitter(rows([]), 0)


def test_within_task_takes_its_share_of_every_task() -> None:
    found = regular(tasks=4, programs=40)
    split = splits.within_task(found, SHARES)
    for part, expected in zip(split.parts().values(), (20, 10, 10), strict=True):
        assert np.bincount(found.task[part]).tolist() == [expected] * 4


def test_within_task_depends_on_the_seed() -> None:
    found = regular()
    first, second = (splits.within_task(found, SHARES, seed).test for seed in (0, 1))
    assert first.tolist() != second.tolist()


def test_in_order_tests_what_the_search_found_first() -> None:
    split = splits.within_task_in_order(regular(tasks=1, programs=8), SHARES)
    assert split.test.tolist() == [0, 1]
    assert split.validation.tolist() == [2, 3]
    assert split.train.tolist() == [4, 5, 6, 7]


def test_copies_of_a_program_stay_where_its_first_one_is() -> None:
    records = [Record(steps=(f'["SP",{i}]',)) for i in (0, 1, 2, 3, 0, 1, 2, 3)]
    split = splits.within_task_in_order(rows(records), SHARES)
    assert split.test.tolist() == [0, 4]


def test_by_task_parts_share_no_task() -> None:
    found = regular(tasks=9)
    split = splits.by_task(found, SHARES)
    tasks = [set(found.task[part].tolist()) for part in split.parts().values()]
    assert sum(map(len, tasks)) == len(set.union(*tasks)) == 9


def test_by_task_needs_three_tasks() -> None:
    assert splits.by_task(regular(tasks=3)).train.size == 40
    with pytest.raises(InputError, match="2 tasks are too few"):
        splits.by_task(regular(tasks=2))


def test_by_target_tests_the_device_and_nothing_else() -> None:
    found = regular(tasks=3, devices=("v100", "a100"))
    split = splits.by_target(found, "a100")
    np.testing.assert_array_equal(np.flatnonzero(found.device.codes == 1), split.test)


@pytest.mark.parametrize("name", ["haswell", '{"kind":"llvm","mcpu":"haswell"}'])
def test_several_targets_of_one_processor_are_devices_too(name: str) -> None:
    targets = ['{"kind":"llvm","mcpu":"haswell"}', "llvm -mcpu=nehalem -num-cores=1"]
    found = rows([
        Record(workload=f"w{task}", device="epyc", target=target, steps=(f'["CI",{program}]',))
        for target in targets for task in range(3) for program in range(5)
    ])  # fmt: skip
    split = splits.by_target(found, name)
    np.testing.assert_array_equal(np.arange(15), split.test)
    with pytest.raises(InputError, match="hold out one of 'epyc', 'haswell', 'nehalem'"):
        splits.by_target(found, "skylake")


def test_an_unknown_device_is_refused_with_those_there_are() -> None:
    with pytest.raises(InputError, match="'t4'; hold out one of 'a100', 'v100'"):
        splits.by_target(regular(devices=("v100", "a100")), "t4")


def test_the_only_device_cannot_be_held_out() -> None:
    with pytest.raises(InputError, match="none is left for training"):
        splits.by_target(regular(), "v100")


def test_a_network_is_held_out_on_every_device() -> None:
    found = regular(tasks=4, devices=("v100", "a100"))
    split = splits.by_network(found, ["w1", "not there"])
    names = {found.workload.names[code] for code in found.workload.codes[split.test]}
    assert (names, len(split.test)) == ({"w1"}, 80)


@pytest.mark.parametrize("workloads", [["not there"], [], ["w0", "w1"]])
def test_a_network_that_leaves_an_empty_part_is_refused(workloads: list[str]) -> None:
    with pytest.raises(InputError):
        splits.by_network(regular(tasks=2), workloads)


@pytest.mark.parametrize("shares", [(0.0, 0.1), (0.5, 0.5), (0.1, -0.1), (float("nan"), 0.1)])
def test_shares_that_leave_no_split_are_refused(shares: tuple[float, float]) -> None:
    with pytest.raises(InputError, match="leave no split"):
        Shares(*shares)


def test_parts_that_share_rows_are_refused() -> None:
    with pytest.raises(ValueError, match="share rows"):
        SplitRows(np.array([0, 1]), np.array([2]), np.array([1]))


def test_networks_are_read_from_json(tmp_path: Path) -> None:
    path = tmp_path / "networks.json"
    path.write_text(json.dumps({"resnet": ["w0"], "bert": []}))
    networks = splits.read_networks(path)
    assert splits.workloads_of(networks, "resnet") == ("w0",)
    with pytest.raises(InputError, match="'vgg'; hold out one of 'bert', 'resnet'"):
        splits.workloads_of(networks, "vgg")


@pytest.mark.parametrize("text", ["[]", '{"a": 1}', '{"a": [1]}', "{", "\xff", "[" * 100_000])
def test_what_is_no_list_of_networks_is_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "networks.json"
    path.write_text(text, encoding="latin-1")
    with pytest.raises(InputError, match=str(path)):
        splits.read_networks(path)


def test_logs_name_networks() -> None:
    found = rows(
        [
            Record("w0", source="run1/bert.json.gz"),
            Record("w1", source="run2\\bert.json"),
            Record("w1", source="resnet-50.log"),
        ]
    )
    assert splits.networks_by_log(found) == {"bert": {"w0", "w1"}, "resnet-50": {"w1"}}


def test_a_missing_list_of_networks_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="No such file"):
        splits.read_networks(tmp_path / "none.json")
