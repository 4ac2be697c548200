"""What was measured elsewhere counts, starts searches, or is refused."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.fleet.jobs import SETTINGS
from tunefleet import BenchmarkContext, Session
from tunefleet.core.identity import Tier
from tunefleet.core.importing import ImportOptions, NetworkSource
from tunefleet.dataset import codecs, parquet
from tunefleet.errors import InputError
from tunefleet.runs.collected import write_jobs
from tunefleet.runs.records import best_records, export_records
from tunefleet.runs.records_import import ImportedRecords, import_records
from tunefleet.runs.request import preparation_of, source_of
from tunefleet.store import open_store

pytestmark = pytest.mark.tvm

NETWORK = "zoo:tiny_cnn"


def context(home: Path, **given: Any) -> BenchmarkContext:
    return BenchmarkContext("cpu", threads=1, home=home, **given)


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A home in which the network was tuned."""
    home = tmp_path_factory.mktemp("records")
    with Session(context(home)) as session:
        session.from_network(NETWORK).autotune(trials=8, settings=SETTINGS).build().save()
    return home


@pytest.fixture(scope="module")
def network(home: Path) -> NetworkSource:
    return source_of(NETWORK, ImportOptions(), context(home))


@pytest.fixture
def bring(tmp_path: Path, network: NetworkSource) -> Callable[..., ImportedRecords]:
    """Imports into a home of its own."""

    def bring(path: Path, **given: Any) -> ImportedRecords:
        return import_records(path, context(tmp_path / "own", **given), network)

    return bring


def artifact_of(home: Path) -> Path:
    [artifact] = (home / "artifacts").iterdir()
    return artifact


def identity(best: dict[str, Any]) -> tuple[str, str, str]:
    return best["task_id"], best["candidate_id"], best["device_exact"]


def candidates_of(home: Path, network: NetworkSource, tier: Tier = Tier.EXACT) -> set[str]:
    """The candidates that count here, of all tasks."""
    of, store = preparation_of(context(home), network), open_store(home)
    try:
        return {
            record.candidate.candidate_id
            for job in store.jobs.page()
            for weighted in store.work.tasks(job.job_id)
            for record in store.records.fastest(
                weighted.task.task_id, of.device, of.toolchain, tier=tier, limit=99
            )
        }
    finally:
        store.close()


def test_a_home_brings_all_that_it_knows_and_stays_as_it_is(
    home: Path, tmp_path: Path, network: NetworkSource, bring: Callable[..., ImportedRecords]
) -> None:
    before = (home / "store.sqlite").read_bytes()
    done = bring(home)
    assert done.records == 8
    assert done.refused == {}
    assert candidates_of(home, network) == candidates_of(tmp_path / "own", network)
    assert list(map(identity, best_records(home))) == [
        identity(each) for each in best_records(tmp_path / "own")
    ]
    assert before == (home / "store.sqlite").read_bytes()
    again = bring(home)
    assert (again.records, again.known, again.jobs) == (0, 8, [])


def test_this_home_is_refused(home: Path) -> None:
    with pytest.raises(InputError, match="is this home"):
        import_records(home, context(home))


def test_the_records_of_an_artifact_are_verified(
    home: Path, tmp_path: Path, bring: Callable[..., ImportedRecords]
) -> None:
    done = bring(artifact_of(home))
    best = best_records(home)
    assert (len(best), len(best)) == (done.records, done.verified)
    assert list(map(identity, best)) == [identity(each) for each in best_records(tmp_path / "own")]


def test_what_was_exported_is_imported(
    home: Path, tmp_path: Path, bring: Callable[..., ImportedRecords]
) -> None:
    count = export_records(home, tmp_path / "known.jsonl")
    done = bring(tmp_path / "known.jsonl")
    assert (count, count) == (done.records, done.verified)


def test_on_a_device_of_another_name_a_search_starts_from_them(
    home: Path, tmp_path: Path, bring: Callable[..., ImportedRecords]
) -> None:
    export_records(home, tmp_path / "known.jsonl")
    done = bring(tmp_path / "known.jsonl", device_key="another")
    assert (done.records, done.verified) == (0, 0)
    assert done.starts


@pytest.mark.parametrize(
    ("name", "value", "reason"),
    [
        ("device", {"isa": ["sve"]}, "another kind of device or instruction set"),
        ("toolchain", {"tvm": "0.1.0"}, "made by TVM 0.1.0"),
        ("task_id", "f" * 32, "its task is none of the network's"),
        ("candidate_id", "f" * 32, "its trace is not the one that was measured"),
        ("latencies_s", [-1.0], "not a record"),
        ("trace", "[[[[", "not JSON"),
        ("device", "f" * 32, "it does not say what it was measured on"),
    ],
)
def test_what_says_nothing_here_is_refused_with_a_reason(
    home: Path,
    tmp_path: Path,
    bring: Callable[..., ImportedRecords],
    name: str,
    value: Any,
    reason: str,
) -> None:
    file = tmp_path / "known.jsonl"
    export_records(home, file)
    first, *_ = file.read_text().splitlines()
    record = json.loads(first)
    record[name] = record[name] | value if isinstance(value, dict) else value
    file.write_text(json.dumps(record) + "\n")
    done = bring(file)
    assert (done.records, done.starts) == (0, 0)
    assert list(done.refused.values()) == [1]
    assert reason in next(iter(done.refused))


def test_collected_trials_count_and_a_database_of_metaschedule_starts_a_search(
    home: Path, tmp_path: Path, network: NetworkSource, bring: Callable[..., ImportedRecords]
) -> None:
    file, database = tmp_path / "trials.parquet", tmp_path / "database"
    store = open_store(home)
    try:
        write_jobs(file, store, store.jobs.page())
        measured = [t for t in store.records.trials(store.jobs.page()[0].job_id) if t.latency_s]
    finally:
        store.close()
    codecs.write(parquet.read(file), database, "metaschedule")
    started = bring(database)
    assert (0, len(measured)) == (started.records, started.starts)
    assert candidates_of(home, network) == candidates_of(tmp_path / "own", network, Tier.COMPATIBLE)
    done = bring(file)
    assert (len(measured), 0) == (done.records, done.verified)
    assert candidates_of(home, network) == candidates_of(tmp_path / "own", network)


def test_a_file_needs_the_network_of_its_tasks(home: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="does not say what its tasks are"):
        import_records(artifact_of(home), context(tmp_path))
