"""Several networks at once, from the public surface to their artifacts."""

from __future__ import annotations

import shutil
import sqlite3
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.fleet.jobs import SETTINGS
from tests.networks import write_small
from tunefleet import BenchmarkContext, tune
from tunefleet.core.coordination import ControlRequest
from tunefleet.core.events import JobEnded, JobOpened, PhaseStarted, StageStarted
from tunefleet.core.home import Home
from tunefleet.core.job import JobState
from tunefleet.errors import InputError, StoreBusyError
from tunefleet.fleet.leases import Leases, this_process
from tunefleet.runs.jobs import list_jobs
from tunefleet.runs.tuning import Tuned
from tunefleet.store import open_store
from tunefleet.system.processes import started_at

pytestmark = pytest.mark.tvm

NETWORKS = ["zoo:tiny_cnn"]
TRIALS = 12


@pytest.fixture(scope="module")
def networks(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """Three, of which one does not exist."""
    folder = tmp_path_factory.mktemp("networks")
    one, other = (write_small(folder / f"{n}.onnx", n) for n in (8, 4))
    return [str(one), "nowhere.onnx", str(other)]


@pytest.fixture(scope="module")
def tuned(networks: list[str], tmp_path_factory: pytest.TempPathFactory) -> Any:
    """(outcomes, events by network, home) of three networks of which one does not exist."""
    home = tmp_path_factory.mktemp("home")
    events: list[list[Any]] = [[] for _ in networks]
    context = BenchmarkContext(home=home, host_cores=(0,), device_cores=(1,))
    outcomes = tune(
        networks,
        context=context,
        observer=lambda index: events[index].append,
        trials=TRIALS,
        settings=SETTINGS,
    )
    return outcomes, events, home


def test_every_network_has_its_outcome(tuned: Any, networks: list[str]) -> None:
    outcomes, _, _ = tuned
    assert [o.network for o in outcomes] == networks
    assert [o.result and o.result.trials for o in outcomes] == [TRIALS, None, TRIALS]
    assert isinstance(outcomes[1].error, InputError)


def test_each_artifact_is_one_of_its_own(tuned: Any) -> None:
    outcomes, _, _ = tuned
    paths = [Path(o.result.artifact) for o in outcomes if o.result]
    assert len({p.name for p in paths if (p / "module.so").exists()}) == 2


def test_observers_hear_of_their_own_network_only(tuned: Any) -> None:
    _, events, _ = tuned
    jobs = [{e.key.job_id for e in of if isinstance(e, StageStarted)} for of in events]
    assert [len(j) for j in jobs] == [1, 0, 1]
    assert jobs[0] != jobs[2]
    assert [type(of[-1]) for of in events] == [JobEnded] * 3


def test_stages_of_both_jobs_ran_side_by_side(tuned: Any) -> None:
    _, _, home = tuned
    store = open_store(home)
    runs = [run for job in store.jobs.page() for run in store.work.stages(job.job_id)]
    store.close()
    host = [r for r in runs if r.resource_id == "host"]
    device = [r for r in runs if r.resource_id == "device"]
    assert len(host) + len(device) == len(runs)
    assert any(
        h.started_at < d.started_at + d.seconds and d.started_at < h.started_at + h.seconds
        for h in host
        for d in device
        if h.key.job_id != d.key.job_id
    )


def test_what_was_delivered_and_not_told_is_told_by_the_same_command(
    tuned: Any, networks: list[str], tmp_path: Path
) -> None:
    outcomes, _, home = tuned
    again = tmp_path / "home"
    shutil.copytree(home, again)
    with closing(sqlite3.connect(again / "store.sqlite")) as connection:
        # As it is where the process was killed before it told.
        connection.execute("UPDATE jobs SET state = 'running'")
        connection.commit()
    context = BenchmarkContext(home=again, host_cores=(0,), device_cores=(1,))
    stopped = iter([True, False])

    def tell(outcomes: Any) -> None:
        if next(stopped):
            raise KeyboardInterrupt

    def tune_again() -> list[Tuned]:
        return tune(networks[::2], context=context, tell=tell, trials=TRIALS, settings=SETTINGS)

    def ends() -> set[JobState]:
        with closing(open_store(again)) as store:
            assert len(store.jobs.page()) == 2
            return {job.state for job in store.jobs.page()}

    with pytest.raises(KeyboardInterrupt):
        tune_again()
    assert ends() == {JobState.RUNNING}
    found = tune_again()
    assert ends() == {JobState.SUCCEEDED}
    for before, after in zip(outcomes[::2], found, strict=True):
        assert after.result is not None
        assert after.result.resumed
        same = ("job", "stopped", "trials", "tasks")
        assert [getattr(after.result, key) for key in same] == [
            getattr(before.result, key) for key in same
        ]
    opened: list[str] = []

    def observer(index: int) -> Any:
        def watch(event: Any) -> None:
            if isinstance(event, JobOpened):
                opened.append(event.job_id)
                raise KeyboardInterrupt

        return watch

    with pytest.raises(KeyboardInterrupt):
        tune(networks[:1], context=context, observer=observer, trials=TRIALS, settings=SETTINGS)
    [job] = opened
    assert job != outcomes[0].result.job  # a command of its own


def test_a_network_given_twice_is_refused() -> None:
    with pytest.raises(InputError, match="given twice"):
        tune(["zoo:tiny_cnn", "zoo:tiny_cnn"])


@pytest.mark.parametrize(
    ("networks", "more", "said"),
    [
        ("zoo:tiny_cnn", {}, "tune takes a list of paths and names, not str"),
        (None, {}, "tune takes a list of paths and names, not NoneType"),
        ([print], {}, "from_network takes torch modules"),
        (NETWORKS, {"policy": "fair"}, "'fair' is not a policy"),
        (NETWORKS, {"trials": 1.5}, "trials is 1.5, not a whole number"),
        (NETWORKS, {"context": "cpu"}, "a context is a BenchmarkContext, not str"),
        (NETWORKS, {"priorities": {"tiny": 1}}, "tiny is none of the networks"),
        (NETWORKS, {"shapes": {"image": 3.5}}, "image is 3.5, not a whole number"),
    ],
)
def test_arguments_of_other_kinds_are_refused(
    networks: Any, more: dict[str, Any], said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before a job is made of them that cannot be read again."""
    monkeypatch.setenv("HOME", str(tmp_path))
    with pytest.raises(InputError, match=said):
        tune(networks, **more)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("moment", ["search", "delivery"])
def test_a_cancelled_network_says_so_and_the_other_is_delivered(
    networks: list[str], tmp_path: Path, moment: str
) -> None:
    jobs: list[str] = []

    def observer(index: int) -> Any:
        def watch(event: Any) -> None:
            if index:
                return
            if isinstance(event, JobOpened):
                jobs.append(event.job_id)
            searched = isinstance(event, StageStarted) and moment == "search"
            delivered = isinstance(event, PhaseStarted) and event.name == "verify winners"
            if searched or delivered:
                with closing(open_store(tmp_path)) as store:
                    store.coordination.ask(jobs[0], ControlRequest.CANCEL)

        return watch

    first, second = tune(
        networks[::2],
        context=BenchmarkContext(home=tmp_path, threads=1),
        observer=observer,
        trials=6,
        settings=SETTINGS,
    )
    assert "cancelled by its user" in str(first.error)
    assert second.result is not None
    store = open_store(tmp_path)
    states = {job.job_id: job.state for job in store.jobs.page()}
    store.close()
    assert states.pop(jobs[0]) is JobState.CANCELLED
    assert [*states.values()] == [JobState.SUCCEEDED]


def test_a_job_of_another_process_is_refused_before_any_worker_starts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tunefleet.core.importing import ImportOptions
    from tunefleet.fleet import local
    from tunefleet.runs.request import job_spec, search_request, source_of

    context = BenchmarkContext(home=tmp_path)
    asked = search_request(4)
    source = source_of("zoo:tiny_cnn", ImportOptions(), context)
    fingerprint = job_spec(context, source, asked).fingerprint
    monkeypatch.setattr(local, "Machine", None)
    store = open_store(context.created(tmp_path))
    other = replace(this_process(), pid=1, started=started_at(1))
    with Leases(store.coordination, process=other).job(fingerprint):
        (outcome,) = tune(["zoo:tiny_cnn"], context=context, trials=4)
    store.close()
    assert isinstance(outcome.error, StoreBusyError)
    assert "being tuned by process 1" in str(outcome.error)
    assert list(Home(tmp_path).objects.iterdir()) == []


def test_a_job_whose_deadline_passed_before_its_search_has_expired(
    small: Path, tmp_path: Path
) -> None:
    [outcome] = tune(
        [str(small)],
        context=BenchmarkContext(home=tmp_path, threads=1),
        deadlines_s={str(small): 0.01},
        trials=4,
        settings=SETTINGS,
    )
    assert "its deadline passed" in str(outcome.error)
    [job] = list_jobs(tmp_path)
    assert (job["state"], job["trials"]) == ("expired", 0)
    assert "its deadline passed" in job["reason"]
