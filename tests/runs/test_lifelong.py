"""Cost models that learn in the background: of whose records, when, and which version is used."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.devices.servers import until
from tests.learning.made import made_records, made_table, silent
from tests.store import values as v
from tunefleet.core.coordination import Claim, Holder
from tunefleet.core.home import Home
from tunefleet.core.job import JobState
from tunefleet.core.settings import SHIPPED_MODEL
from tunefleet.costmodel import registry as models
from tunefleet.costmodel.registry import Registry, RegistryEntry, registry_of
from tunefleet.dataset import parquet
from tunefleet.dataset.division import Division
from tunefleet.dataset.splits import divide
from tunefleet.errors import InputError
from tunefleet.fleet.leases import this_process
from tunefleet.learning import evaluation, growing, inputs, training, versions
from tunefleet.runs import lifelong, pretrained
from tunefleet.runs.lifelong import BackgroundLearning, is_wanted, learn_once, new_records, told
from tunefleet.store import Learning, LearningOutcome, MemoryStore, User

LEARNED = Learning("", 1e12, LearningOutcome.NO_WORSE, "p", "m", "m")


def searched(store: Any, job_id: str, records: int, tenant: str = "", ended: bool = True) -> None:
    spec = replace(v.make_spec(job_id), tenant=tenant)
    store.jobs.open(spec, job_id=job_id, now=1.0)
    store.work.put_tasks(job_id, [v.make_task()])
    v.commit_measured(store, {f"{job_id}-{n}": 1e-3 for n in range(records)}, job_id=job_id)
    if ended:
        store.jobs.finish(job_id, JobState.SUCCEEDED, {})


def ids(store: Any, tenant: str = "") -> list[str]:
    return sorted(job.job_id for job in new_records(store, tenant).jobs)


class TestNewRecords:
    def test_they_are_of_ended_jobs(self) -> None:
        store = MemoryStore()
        searched(store, "ended", 3)
        searched(store, "running", 4, ended=False)
        searched(store, "without", 0)
        assert (ids(store), new_records(store, "").records) == (["ended"], 3)

    def test_they_are_learned_once(self) -> None:
        store = MemoryStore()
        for job_id in ("1", "2"):
            searched(store, job_id, 2)
        store.explorer.add_learning(replace(LEARNED, jobs=("1",)))
        assert ids(store) == ["2"]

    def test_they_are_ones_own_and_what_is_shared(self) -> None:
        store = MemoryStore()
        for tenant in ("ann", "bob", ""):
            searched(store, f"of {tenant}", 2, tenant)
        assert (ids(store, "ann"), ids(store, "")) == (["of ann"], ["of "])
        store.accounts.share("bob", "ann", True)
        assert (ids(store, "ann"), ids(store, "")) == (["of ann", "of bob"], ["of "])

    def test_there_is_a_bound(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(lifelong, "_MOST_RECORDS", 5)
        store = MemoryStore()
        for number in range(4):
            searched(store, f"{number}", 2)
        assert new_records(store, "").records == 4


def claimed(store: Any, unit: str, pid: int | None = None) -> None:
    process = this_process()
    if pid is not None:
        process = replace(process, pid=pid)
    store.coordination.acquire(Claim(unit, frozenset({unit}), Holder(process)), 60.0)


@pytest.mark.parametrize(
    ("unit", "wanted"),
    [("server", False), ("job lifelong", False), ("job abc", False), ("host/core0", True)],
)
def test_a_host_is_wanted_where_something_is_used(unit: str, wanted: bool) -> None:
    store = MemoryStore()
    claimed(store, unit)
    own = [this_process().pid]
    assert is_wanted(store, own) is wanted
    if unit == "job abc":  # of another command
        assert is_wanted(store, [])


def test_what_a_killed_process_held_is_not_wanted() -> None:
    store = MemoryStore()
    claimed(store, "host/core0", pid=2**22 + 1)
    assert not is_wanted(store, [])


class Waited:
    """A server's background learning with processes that only wait."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, every: int) -> None:
        self.store, self.said, self.begun = MemoryStore(), list[str](), list[Any]()
        self.command = ["sleep", "60"]
        begin: Callable[..., Any] = subprocess.Popen
        monkeypatch.setattr(lifelong, "_QUIET_S", 0.0)
        monkeypatch.setattr(lifelong, "_LOOK_S", 0.0)

        def popen(command: list[str], **options: Any) -> Any:
            self.begun.append((command, begin(self.command, **options)))
            return self.begun[-1][1]

        monkeypatch.setattr("tunefleet.runs.lifelong.subprocess.Popen", popen)
        self.learning = BackgroundLearning(self.store, tmp_path, every, self.said.append)

    def look(self, is_idle: bool = True) -> int:
        self.learning.look(is_idle)
        return len(self.begun)


@pytest.fixture
def waited(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Waited]:
    made = Waited(monkeypatch, tmp_path, 4)
    yield made
    made.learning.stop()


class TestBackgroundLearning:
    def test_it_begins_where_enough_is_new(self, waited: Waited) -> None:
        searched(waited.store, "1", 3)
        assert waited.look() == 0
        searched(waited.store, "2", 1)
        waited.store.events.append("2", 1.0, [])
        waited.learning._seen = -1
        assert (waited.look(), waited.look()) == (1, 1)
        assert waited.begun[0][0][-3:] == [str(waited.learning._home), "", str(os.getpid())]
        assert waited.said == ["a cost model learns from 4 new records"]

    def test_it_ends_at_once_where_there_is_work(self, waited: Waited) -> None:
        searched(waited.store, "1", 4)
        waited.look()
        waited.look(is_idle=False)
        assert waited.begun[0][1].returncode == -9
        assert waited.said[-1] == "learning in the background ends: there is work"
        assert waited.store.explorer.learnings("", 5) == []
        assert waited.look() == 2  # and begins again

    def test_it_waits_for_other_commands(self, waited: Waited) -> None:
        searched(waited.store, "1", 4)
        claimed(waited.store, "host/core0")
        assert waited.look() == 0
        waited.store.coordination.release("host/core0")
        assert waited.look() == 1

    def test_it_waits_until_it_is_quiet(
        self, waited: Waited, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(lifelong, "_QUIET_S", 0.2)
        searched(waited.store, "1", 4)
        assert waited.look() == 0
        time.sleep(0.25)
        assert waited.look() == 1

    def test_each_user_has_a_model_that_learns(self, waited: Waited) -> None:
        waited.store.accounts.put_user(User("ann"))
        searched(waited.store, "1", 4, "ann")
        assert waited.look() == 1
        assert waited.begun[0][0][-2] == "ann"
        assert waited.said == ["a cost model learns from 4 new records of ann"]

    def test_it_says_what_came_of_it(self, waited: Waited) -> None:
        searched(waited.store, "1", 4)
        waited.command = ["true"]
        waited.look()
        waited.begun[0][1].wait()
        waited.store.explorer.add_learning(replace(LEARNED, jobs=("1",)))
        waited.look()
        assert waited.said[1:] == ["what it learned: version m is used from now on"]
        assert waited.look() == 1

    def test_it_is_not_tried_again_and_again(self, waited: Waited) -> None:
        searched(waited.store, "1", 4)
        waited.command = ["false"]
        waited.look()
        waited.begun[0][1].wait()
        assert (waited.look(), waited.look()) == (1, 1)
        # One user's error ends nobody else's learning.
        waited.store.accounts.put_user(User("ann"))
        searched(waited.store, "2", 4, "ann")
        assert waited.look() == 2
        assert waited.begun[1][0][-2] == "ann"

    def test_where_it_gave_way_it_begins_again(self, waited: Waited) -> None:
        searched(waited.store, "1", 4)
        waited.command = ["sh", "-c", "kill -TERM 0"]  # as `_ended_by_work` does
        waited.look()
        waited.begun[0][1].wait()
        assert waited.look() == 2
        assert "learning in the background ends: there is work" in waited.said

    def test_users_learn_in_turn(self, waited: Waited) -> None:
        for user in ("ann", "bob"):
            waited.store.accounts.put_user(User(user))
            searched(waited.store, f"of {user}", 4, user)
        for begun in range(1, 5):
            assert waited.look() == begun
            waited.look(is_idle=False)
        assert [command[-2] for command, _ in waited.begun] == ["ann", "bob", "ann", "bob"]

    def test_no_folder_of_it_is_left(
        self, waited: Waited, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
    ) -> None:
        monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
        monkeypatch.setenv("TMPDIR", str(tmp_path))
        make = "from tunefleet.system.scratch import scratch_folder as s; import time"
        waited.command = [sys.executable, "-c", f"{make}; f = s('learn'); time.sleep(60)"]
        searched(waited.store, "1", 4)
        waited.look()
        until(lambda: any(tmp_path.glob("tunefleet-learn-*")), 60.0)
        waited.look(is_idle=False)
        assert list(tmp_path.glob("tunefleet-*")) == []

    def test_0_is_never(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        waited = Waited(monkeypatch, tmp_path, 0)
        searched(waited.store, "1", 4)
        assert waited.look() == 0


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> RegistryEntry:
    records, division = made_records(made_table(devices=("v100", "a72"))), Division()
    split = divide(records.rows, division)
    drawn = inputs.Inputs.of(records, inputs.all_rows(split), "tilings/1", silent)
    parts = drawn.parts("unified", split)
    options = training.Options(epochs=2, hidden=8, replay=50)
    trained = training.train(
        "unified", parts.train, parts.validation, seeds=1, options=options, progress=silent
    )
    origin = versions.Origin(SHIPPED_MODEL, "tilings/1", records, division, split)
    tested = evaluation.evaluate(trained.members, parts.test)
    registry = Registry(tmp_path_factory.mktemp("shipped"))
    return versions.publish(registry, origin, trained, tested, 1e9)


@pytest.mark.slow
@pytest.mark.frameworks
class TestVersions:
    """A small model of kind unified is the one that comes with tunefleet."""

    @pytest.fixture
    def home(self, small: RegistryEntry, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
        monkeypatch.setattr(models, "SHIPPED", small.path.parent)

        def write(path: Path, store: Any, jobs: list[Any]) -> int:
            """Records of each job, as if it had measured on a device of its own."""
            [job] = jobs
            made = made_table(tasks=3, devices=(job.job_id,))
            parquet.write(made.to_batches(), path)
            return len(made)

        monkeypatch.setattr("tunefleet.runs.collected.write_jobs", write)
        monkeypatch.setattr(lifelong, "MOST_FORGOTTEN", 1.0)
        return tmp_path

    def used(self, home: Path, store: Any, tenant: str = "") -> str:
        return str(pretrained.in_use(registry_of(home), store, tenant).card.id)

    @pytest.mark.parametrize(("gain", "is_used"), [(0.1, True), (0.0, True), (-0.1, False)])
    def test_a_version_is_used_where_it_ranks_no_worse(
        self, home: Path, small: RegistryEntry, monkeypatch: pytest.MonkeyPatch, gain: float,
        is_used: bool,
    ) -> None:  # fmt: skip
        store = MemoryStore()
        searched(store, "k80", 4)
        ranked, means = iter([{"pca": 0.5}, {"pca": 0.5 + gain}]), lifelong._means

        def ranks(given: Any) -> dict[str, float]:
            assert means(given).keys() == {"pca", "top1", "top5"}
            return next(ranked)

        monkeypatch.setattr(lifelong, "_means", ranks)
        learning = learn_once(store, home, "", epochs=1)
        assert store.explorer.learnings("", 5) == [learning]
        assert (learning.parent, learning.jobs, learning.records) == (small.card.id, ("k80",), 4)
        assert learning.held_back > 0
        assert registry_of(home).get(learning.model).card.parent == small.card.id
        assert learning.model != small.card.id
        assert (self.used(home, store) == learning.model) is is_used
        assert (self.used(home, store) == small.card.id) is not is_used
        assert "pairs in order: 0.500 before" in told(learning)

    def learned_before(
        self, home: Path, monkeypatch: pytest.MonkeyPatch
    ) -> tuple[MemoryStore, Learning]:
        """One search was learned, and another ended since; versions rank equally."""
        monkeypatch.setattr(lifelong, "_means", lambda given: {"pca": 1.0})
        store = MemoryStore()
        searched(store, "k80", 4)
        first = learn_once(store, home, "", epochs=1)
        searched(store, "t4", 4)
        return store, first

    def test_the_next_version_learns_on_from_it(
        self, home: Path, small: RegistryEntry, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        store, first = self.learned_before(home, monkeypatch)
        second = learn_once(store, home, "", epochs=1)
        assert (second.parent, second.jobs) == (first.model, ("t4",))
        # The way back, and of others nothing changed.
        assert self.used(home, store, "ann") == small.card.id
        pretrained.use(registry_of(home), store, "", small.card.id)
        assert self.used(home, store) == small.card.id
        assert store.explorer.learnings("", 1)[0].outcome is LearningOutcome.CHOSEN

    def test_it_learns_again_where_what_it_had_is_deleted(
        self, home: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(lifelong, "_means", lambda given: {"pca": 1.0})
        store, begun = MemoryStore(), list[list[str]]()
        for job_id in ("k80", "t4"):
            searched(store, job_id, 4)
        learned = lifelong._continued

        def deleted_meanwhile(of: Any, parent: Any, new: Any, epochs: Any) -> Any:
            begun.append(sorted(job.job_id for job in new.jobs))
            made = learned(of, parent, new, epochs)
            if len(begun) == 1:
                store.jobs.remove("k80")
            return made

        monkeypatch.setattr(lifelong, "_continued", deleted_meanwhile)
        learning = learn_once(store, home, "", epochs=1)
        assert begun == [["k80", "t4"], ["t4"]]
        assert (learning.jobs, learning.records) == (("t4",), 4)
        card = registry_of(home).get(learning.model).card
        assert [file.file for file in card.records] == ["t4.parquet"]
        assert len(list(Home(home).cost_models.glob("*"))) == 1

    def test_a_choice_meanwhile_is_kept(
        self, home: Path, small: RegistryEntry, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        store, first = self.learned_before(home, monkeypatch)
        learned, parents = lifelong._continued, list[str]()

        def chosen_meanwhile(of: Any, parent: Any, new: Any, epochs: Any) -> Any:
            parents.append(parent.card.id)
            made = learned(of, parent, new, epochs)
            if len(parents) == 1:
                pretrained.use(registry_of(home), store, "", small.card.id)
            return made

        monkeypatch.setattr(lifelong, "_continued", chosen_meanwhile)
        second = learn_once(store, home, "", epochs=1)
        assert parents == [first.model, small.card.id]
        assert second.parent == small.card.id

    @pytest.mark.parametrize(("gain", "is_used"), [(0.1, True), (0.0, False)])
    def test_what_was_chosen_gives_way_to_a_better_version_alone(
        self, home: Path, small: RegistryEntry, monkeypatch: pytest.MonkeyPatch, gain: float,
        is_used: bool,
    ) -> None:  # fmt: skip
        store = MemoryStore()
        searched(store, "k80", 4)
        pretrained.use(registry_of(home), store, "", small.card.id)
        store.explorer.add_learning(replace(LEARNED, outcome=LearningOutcome.FORGETS,
                                            in_use=small.card.id))  # fmt: skip
        ranked = iter([{"pca": 0.5}, {"pca": 0.5 + gain}])
        monkeypatch.setattr(lifelong, "_means", lambda given: next(ranked))
        learning = learn_once(store, home, "", epochs=1)
        assert (self.used(home, store) == learning.model) is is_used
        assert ("no better than the version that was chosen" in told(learning)) is not is_used

    def test_what_forgets_is_refused(
        self, home: Path, small: RegistryEntry, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def refused(*given: Any) -> None:
            raise InputError("it forgets", cure="none")

        monkeypatch.setattr(growing, "check_recall", refused)
        store = MemoryStore()
        searched(store, "k80", 4)
        learning = learn_once(store, home, "", epochs=1)
        assert (learning.outcome, learning.reason) == (LearningOutcome.FORGETS, "it forgets")
        assert (learning.model, self.used(home, store)) == ("", small.card.id)
        assert not list(Home(home).cost_models.glob("*"))
        assert ids(store) == []

    def test_a_version_that_was_removed_is_not_used(self, home: Path, small: RegistryEntry) -> None:
        store = MemoryStore()
        store.explorer.add_learning(replace(LEARNED, in_use="0" * 32))
        assert self.used(home, store) == small.card.id
