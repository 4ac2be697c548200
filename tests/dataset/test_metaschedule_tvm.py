"""TVM itself writes a database that is read here, and reads the one that is written here."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tunefleet.dataset import codecs, parquet

from .conftest import read_all

pytestmark = pytest.mark.tvm


def database(folder: Path) -> Any:
    import tvm

    folder.mkdir(exist_ok=True)
    return tvm.s_tir.meta_schedule.database.JSONDatabase(work_dir=str(folder))


def commit_matmul(database: Any, size: int, run_s: list[float] | None) -> None:
    import tvm
    from tvm import te

    a, b = (te.placeholder((size, size), name=name) for name in "ab")
    k = te.reduce_axis((0, size), name="k")
    c = te.compute((size, size), lambda i, j: te.sum(a[i, k] * b[k, j], axis=k), name="c")
    module = tvm.IRModule({"main": te.create_prim_func([a, b, c])})
    schedule = tvm.s_tir.Schedule(module)
    i, *_ = schedule.get_loops(schedule.get_sblock("c"))
    outer, *_ = schedule.split(i, schedule.sample_perfect_tile(i, n=3))
    schedule.annotate(outer, "pragma_auto_unroll_max_step", 64)
    meta_schedule = tvm.s_tir.meta_schedule
    record = meta_schedule.database.TuningRecord(
        schedule.trace,
        database.commit_workload(module),
        run_s,
        tvm.target.Target({"kind": "llvm", "num-cores": 4}),
        meta_schedule.arg_info.ArgInfo.from_prim_func(module["main"]),
    )
    database.commit_tuning_record(record)


def contents(database: Any) -> list[str]:
    return sorted(str(record.as_json()) for record in database.get_all_tuning_records())


def test_tvm_reads_back_what_it_has_written(tmp_path: Path) -> None:
    written = database(tmp_path / "a")
    for size, run_s in ((32, [1.5e-6, 2e-6]), (64, [0.1]), (32, [1e10])):
        commit_matmul(written, size, run_s)
    log = tmp_path / "a" / "database_tuning_record.json"
    rows, bad = read_all(log, strict=True)
    assert bad == []
    assert [(row["costs_s"], row["error_no"]) for row in rows] == [
        ([1.5e-6, 2e-6], 0), ([0.1], 0), ([1e10], 8)]  # fmt: skip
    assert len({row["workload"] for row in rows}) == 2
    parquet.write(codecs.read(log), tmp_path / "a.parquet")
    codecs.write(parquet.read(tmp_path / "a.parquet"), tmp_path / "b", "metaschedule")
    one, other = (database(tmp_path / name) for name in "ab")
    assert len(one) == len(other) == 3
    assert contents(one) == contents(other)
