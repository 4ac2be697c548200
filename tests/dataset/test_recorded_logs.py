"""A few of the logs that others published; all of them: `benchmarks/import_all.py`."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tunefleet.dataset import codecs, parquet
from tunefleet.dataset.schema import RECORDS

from .conftest import loaded, read_all, read_line_by_line

DATA = Path(__file__).resolve().parents[3] / "shared" / "data"

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not DATA.is_dir(), reason="../shared/data with recorded logs is not there"),
]

ANSOR = [
    *(f"tvm_ci_logs/{name}.json.gz" for name in ("10f63d0d__conv2d", "7c1c1001__sparse_dense")),
    "tlcbench_ansor/tuning_logs__autoscheduler_cuda_mobilenet_v2.log.gz",
    "droplet_a72_ansor/src__tvm__results__arm_cortex-a72__mobilenet__ansor__cpu.log.gz",
    "droplet_misc_ansor/src__tvm__microkernels__bert-NHWC-B1-llvm.json.gz",
]


def values(path: Path) -> list[Any]:
    with gzip.open(path) as file:
        return [json.loads(line) for line in file if line.strip() and line[:1] not in b"# "]


@pytest.mark.parametrize("name", ANSOR)
def test_an_auto_scheduler_log_comes_back_as_it_was(name: str, tmp_path: Path) -> None:
    records, again = tmp_path / "a.parquet", tmp_path / "a.json"
    parquet.write(codecs.read(DATA / name, strict=True), records)
    codecs.write(parquet.read(records), again, "auto_scheduler")
    assert values(DATA / name) == loaded(again)


@pytest.mark.parametrize("name", ANSOR)
def test_the_short_cut_gives_what_the_parser_gives(name: str) -> None:
    bad: list[int] = []
    path = DATA / name
    batches = list(read_line_by_line(path, "", lambda line, _: bad.append(line)))
    assert (pa.Table.from_batches(batches, RECORDS).to_pylist(), bad) == read_all(path)


@pytest.mark.parametrize(
    "name", ["metaschedule_web_llm/a", "metaschedule_web_stable_diffusion/old1"]
)
def test_a_metaschedule_database_comes_back_as_it_was(name: str, tmp_path: Path) -> None:
    path = DATA / f"{name}__database_tuning_record.json.gz"
    codecs.write(codecs.read(path, strict=True), tmp_path / "db", "metaschedule")
    assert values(path) == loaded(tmp_path / "db" / "database_tuning_record.json")
    workloads = DATA / f"{name}__database_workload.json.gz"
    written = tmp_path / "db" / "database_workload.json"
    assert written.exists() == workloads.exists()
    if workloads.exists():
        assert values(workloads) == loaded(written)


@pytest.mark.parametrize(
    ("name", "format", "records", "failed"),
    [
        ("tophub/tophub__cuda_v0.01.log.gz", "autotvm", 188, 0),
        ("benchmark_hub/cachefiles/convolution_milo/A100.json.gz", "kernel_tuner", 4362, 161),
        ("benchmark_hub/cachefiles/convolution_milo/A100_T4.json.gz", "kernel_tuner", 4362, 161),
    ],
)
def test_other_formats_are_read_whole(name: str, format: str, records: int, failed: int) -> None:
    rows, bad = read_all(DATA / name, strict=True)
    assert ({row["format"] for row in rows}, bad) == ({format}, [])
    assert (len(rows), sum(row["error_no"] != 0 for row in rows)) == (records, failed)
