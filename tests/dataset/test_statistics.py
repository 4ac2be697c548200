from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tunefleet.dataset import parquet
from tunefleet.dataset.primitives import Vocabulary, failure_name, kind_name, kind_of
from tunefleet.dataset.statistics import DatasetStatistics, statistics
from tunefleet.hardware import shipped_table

from .tables import a_batch, a_record

SPLIT = ["SP", 2, 0, 64, [4, 1, 2, 1], 1]
FUSE = ["FU", 2, [0, 1]]


def of(*rows: dict[str, Any]) -> dict[str, Any]:
    return statistics([a_batch(rows)], shipped_table())


def test_counts_of_records_tasks_and_failures() -> None:
    found = of(
        a_record(),
        a_record(line=2, costs_s=[1e10], error_no=6),
        a_record(line=3, workload='["g"]', costs_s=[1e10], error_no=4),
        a_record(line=4, workload='["g"]', costs_s=[1e10], error_no=77, source="b.json"),
    )
    assert tuple(found[name] for name in ("records", "valid", "failed", "tasks", "files")) == (
        4,
        1,
        3,
        2,
        2,
    )
    assert found["failures"] == {"runtime error": 1, "build timeout": 1, "error 77": 1}


def test_failures_are_no_latencies() -> None:
    found = of(
        a_record(costs_s=[2e-3, 4e-3]),
        a_record(costs_s=[1e10], error_no=4),
        a_record(costs_s=[5e-3]),
        a_record(costs_s=[7e-3]),
        a_record(costs_s=[]),
    )
    (task,) = found["devices"][0]["task_list"]
    assert (task["best_s"], task["median_s"]) == (3e-3, 5e-3)
    assert {"min": 3e-3, "max": 7e-3, "mean": 5e-3}.items() <= found["latency_s"].items()


def test_primitives_are_counted_by_record_and_task() -> None:
    found = of(
        a_record(steps=[SPLIT, FUSE, SPLIT]),
        a_record(steps=[FUSE]),
        a_record(steps=[FUSE], workload='["g"]'),
        a_record(steps=[], workload='["g"]'),
    )
    (device,) = found["devices"]
    fuse, split = device["primitives"]
    assert tuple(
        fuse[name] for name in ("kind", "name", "total", "records", "most_in_a_record", "tasks")
    ) == ("FU", "fuse", 3, 3, 1, 2)
    assert tuple(split[name] for name in ("total", "records", "most_in_a_record", "tasks")) == (
        2,
        1,
        2,
        1,
    )
    assert {"min": 0, "max": 2}.items() <= split["per_task"].items()
    assert found["sequence_lengths"] == {0: 1, 1: 2, 3: 1}
    assert device["sequences"] == 3


def test_the_order_of_primitives_makes_another_program() -> None:
    found = of(
        a_record(steps=[SPLIT, FUSE]),
        a_record(steps=[FUSE, SPLIT]),
        a_record(steps=[SPLIT, FUSE], costs_s=[9.0]),
        a_record(steps=[SPLIT, FUSE]),
    )
    assert tuple(found[n] for n in ("records", "programs", "identical_records")) == (4, 2, 1)


def test_devices_are_apart_and_have_their_peak() -> None:
    found = of(a_record(device="Tesla V100"), a_record(device="mine"), a_record(device="mine"))
    mine, v100 = found["devices"]
    assert (mine["device"], mine["records"], mine["hardware"]) == ("mine", 2, None)
    assert (
        v100["hardware"]["key"],
        pytest.approx(v100["hardware"]["peak_fp32_gflops"]),
    ) == ("v100", 15667.2)


def test_throughput_is_flops_over_the_best_latency() -> None:
    workload = '["dense.x86",["TENSOR",[64,64],"float32"],["TENSOR",[64,64],"float32"]]'
    found = of(a_record(format="autotvm", workload=workload, steps=[["tile_x", "sp", [-1, 4]]]))
    (task,) = found["devices"][0]["task_list"]
    assert (task["flops"], task["flops_how"]) == (524288.0, "exact")
    assert pytest.approx(524288 / 1e-3 / 1e9) == task["gflops"]


def test_formats_in_one_batch_keep_their_own_kinds() -> None:
    found = of(
        a_record(),
        a_record(format="autotvm", workload='["x"]', steps=[["SP", "sp", [-1, 4]]]),
    )
    rows = found["devices"][0]["primitives"]
    assert {("auto_scheduler", "SP"), ("autotvm", "sp")} == {(r["format"], r["kind"]) for r in rows}


def test_nothing_has_statistics_too() -> None:
    found = DatasetStatistics().to_json()
    assert (found["records"], found["devices"], found["sequence_length"]) == (0, [], None)


STEPS = st.lists(st.sampled_from([SPLIT, FUSE, ["CI", 1], ["CI", 2]]), max_size=4)
ROWS = st.lists(
    st.builds(
        a_record,
        workload=st.sampled_from(['["a"]', '["b"]', '["c"]']),
        device=st.sampled_from(["v100", "k80"]),
        steps=STEPS,
        error_no=st.sampled_from([0, 0, 4]),
        costs_s=st.lists(st.floats(1e-6, 1.0), min_size=1, max_size=3),
    ),
    min_size=1,
    max_size=30,
)


@given(ROWS, st.integers(1, 7))
def test_batches_do_not_matter(rows: list[dict[str, Any]], size: int) -> None:
    batches = [a_batch(rows[i : i + size]) for i in range(0, len(rows), size)]
    whole = statistics([a_batch(rows)])
    parts = statistics(batches)
    assert whole == parts


@given(ROWS)
def test_counts_are_those_of_plain_python(rows: list[dict[str, Any]]) -> None:
    found = statistics([a_batch(rows)])
    programs = {(r["device"], r["workload"], tuple(r["steps"])) for r in rows}
    assert len(programs) == found["programs"]
    for device in found["devices"]:
        own = [row for row in rows if row["device"] == device["device"]]
        kinds = Counter(step[2:4] for row in own for step in row["steps"])
        assert kinds == {row["kind"]: row["total"] for row in device["primitives"]}
        assert Counter(len(row["steps"]) for row in own) == device["sequence_lengths"]
        for task in device["task_list"]:
            latencies = [
                np.mean(row["costs_s"])
                for row in own
                if row["workload"] == task["workload"] and row["error_no"] == 0
            ]
            assert task["best_s"] == (pytest.approx(min(latencies)) if latencies else None)
            assert len(latencies) == task["valid"]


def test_several_row_groups_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parquet, "GROUP_ROWS", 2)
    rows = [a_record(line=n, steps=[["CI", n]]) for n in range(5)]
    parquet.write((a_batch([row]) for row in rows), tmp_path / "a.parquet")
    assert statistics(parquet.read(tmp_path / "a.parquet"))["programs"] == 5
    assert parquet.read_table(tmp_path / "a.parquet").num_rows == 5


@pytest.mark.parametrize(
    ("format", "primitive", "kind", "name"),
    [
        ("auto_scheduler", '["CHR",1,"shared",[2]]', "CHR", "cache read"),
        ("autotvm", '["tile_x","sp",[-1,4]]', "sp", "split"),
        ("metaschedule", '["GetBlock",[],["a"],["b0"]]', "GetBlock", "GetBlock"),
        ("kernel_tuner", '["block_size_x",16]', "block_size_x", "block_size_x"),
        ("autotvm", '["tile_x"]', "?", "?"),
        ("auto_scheduler", "nonsense", "?", "?"),
    ],
)
def test_kinds_of_primitives(format: str, primitive: str, kind: str, name: str) -> None:
    assert (kind, name) == (kind_of(format, primitive), kind_name(format, kind))


def test_a_vocabulary_numbers_what_is_new() -> None:
    vocabulary = Vocabulary("auto_scheduler")
    words = pa.array(['["CI",1]', '["FU",1,[0]]', '["CI",2]'])
    for _ in range(2):
        numbers, kinds = vocabulary.look_up(words)
        assert (numbers.tolist(), kinds.tolist()) == ([0, 1, 2], [0, 1, 0])
    # The same memory from another place on is another array.
    assert vocabulary.look_up(words[1:])[0].tolist() == [1, 2]
    assert vocabulary.look_up(pa.array(['["CI",2]', '["CI",1]']))[0].tolist() == [2, 0]
    assert (len(vocabulary), vocabulary.kinds) == (3, ["CI", "FU"])
    assert vocabulary.look_up(pa.array([], pa.utf8()))[0].tolist() == []


def test_every_error_has_a_name() -> None:
    assert (failure_name(5), failure_name(99)) == ("wrong answer", "error 99")
