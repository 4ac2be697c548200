"""SqlStore and MemoryStore answer alike, whatever is asked in whatever order."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    rule,
    run_state_machine_as_test,
)

from tunefleet.core.identity import Tier
from tunefleet.core.job import JobState
from tunefleet.core.stage import BuildResult, ProfileResult, SelectResult, UpdateResult
from tunefleet.core.trial import Trial
from tunefleet.errors import TunefleetError
from tunefleet.store import MemoryStore, SqlStore

from . import values as v

DEVICES = (v.DEVICE, v.SISTER)
job_ids = st.sampled_from("abc")
task_ids = st.sampled_from("tu")
names = st.sampled_from("wxyz")
latencies = st.sampled_from([1e-3, 2e-3, 3e-3])
instants = st.sampled_from([0.0, 0.05, 0.1, 100.0])
candidates = st.builds(
    v.cand, names, st.sampled_from([0.1, 0.9]), st.sampled_from([b"", b"one", b"two"])
)
failures = st.tuples(names, st.sampled_from([v.WRONG, v.CRASH]))
some_failures = st.lists(failures, max_size=2).map(tuple)
results = st.one_of(
    st.builds(SelectResult, st.lists(candidates, max_size=4).map(tuple), st.booleans()),
    st.builds(
        BuildResult,
        st.lists(names, max_size=3).map(lambda n: v.built(*n, build_s=0.25)),
        some_failures,
    ),
    st.builds(
        ProfileResult,
        st.lists(st.tuples(names, latencies.map(v.measured), latencies), max_size=3).map(tuple),
        some_failures,
    ),
    st.builds(UpdateResult, st.sampled_from([b"", b"model", b"newer"]), st.just(3)),
)
winners = (
    st.none()
    | st.builds(v.make_trial, names, latencies)
    | st.builds(Trial, candidates, st.just(1), st.just(v.CRASH))
)


class BothStores(RuleBasedStateMachine):
    empty_file: Path

    def __init__(self) -> None:
        super().__init__()
        self.home = Path(tempfile.mkdtemp())
        self.sql = SqlStore.open(shutil.copy(self.empty_file, self.home / "store.sqlite"))
        self.memory = MemoryStore()

    def teardown(self) -> None:
        self.read_everything()
        self.sql.close()
        shutil.rmtree(self.home)

    def ask(self, verb: Callable[..., Any]) -> None:
        answers = []
        for store in (self.memory, self.sql):
            try:
                answers.append(verb(store))
            except TunefleetError as error:
                answers.append((type(error), str(error)))
        assert answers[0] == answers[1]

    @rule(job_id=job_ids, name=st.sampled_from(["net", "other"]), device=st.sampled_from(DEVICES))
    def open_job(self, job_id: str, name: str, device: Any) -> None:
        spec = v.make_spec(name, device)
        self.ask(lambda store: store.jobs.open(spec, job_id=job_id, now=1.0))
        self.ask(lambda store: store.work.put_tasks(job_id, [v.make_task("t"), v.make_task("u")]))

    @rule(job_id=job_ids, tasks=st.lists(task_ids, max_size=2), weight=st.integers(1, 2))
    def put_tasks(self, job_id: str, tasks: list[str], weight: int) -> None:
        put = [v.make_task(task_id, job_id, weight) for task_id in tasks]
        self.ask(lambda store: store.work.put_tasks(job_id, put))

    @rule(
        job_id=job_ids,
        task_id=task_ids,
        iteration=st.integers(0, 2),
        result=results,
        ran=st.tuples(st.sampled_from(["", "host", "device"]), st.integers(1, 3)),
        started_at=instants,
        elapsed_s=instants,
    )
    def commit(
        self,
        job_id: str,
        task_id: str,
        iteration: int,
        result: Any,
        ran: tuple[str, int],
        started_at: float,
        elapsed_s: float,
    ) -> None:
        run = v.run_of(result, job_id, task_id, iteration, seconds=0.1, started_at=started_at)
        run = replace(run, resource_id=ran[0], attempt=ran[1])
        self.ask(lambda store: store.work.commit(run, elapsed_s=elapsed_s))
        self.ask(lambda store: store.work.stage(run.key))

    @rule(
        job_id=job_ids,
        task_id=task_ids,
        iteration=st.integers(0, 2),
        latencies_s=st.dictionaries(names, latencies, min_size=1),
    )
    def measure(
        self, job_id: str, task_id: str, iteration: int, latencies_s: dict[str, float]
    ) -> None:
        where = {"job_id": job_id, "task_id": task_id, "iteration": iteration}
        self.ask(lambda store: v.commit_measured(store, latencies_s, **where))

    @rule(start=instants, end=instants)
    def stages_between(self, start: float, end: float) -> None:
        self.ask(lambda store: store.work.stages_between(start, end))

    @rule(job_id=job_ids, task_id=task_ids, winner=winners, rejected=some_failures)
    def select_winner(self, job_id: str, task_id: str, winner: Trial | None, rejected: Any) -> None:
        self.ask(
            lambda store: store.records.select_winner(
                job_id, task_id, winner, {"by": [job_id]}, rejected
            )
        )

    @rule(job_id=job_ids, state=st.sampled_from(JobState), summary=st.sampled_from([None, [1]]))
    def finish(self, job_id: str, state: JobState, summary: Any) -> None:
        self.ask(lambda store: store.jobs.finish(job_id, state, summary))

    @rule()
    def read_everything(self) -> None:
        self.ask(lambda store: store.jobs.page())
        for job_id in "ab":
            self.ask(lambda store, j=job_id: store.work.tasks(j))
            self.ask(lambda store, j=job_id: store.work.stages(j))
            self.ask(
                lambda store, j=job_id: (store.records.trials(j), store.records.trials(j, "t"))
            )
            self.ask(
                lambda store, j=job_id: (
                    store.records.model(j),
                    store.records.trial_count(j),
                    store.jobs.summary(j),
                    store.records.winners(j),
                )
            )
        for device in DEVICES:
            self.ask(lambda store, d=device: store.records.best("t", d, v.TOOLCHAIN))
            for tier in Tier:
                self.ask(
                    lambda store, d=device, t=tier: store.records.fastest(
                        "t", d, v.TOOLCHAIN, tier=t, limit=3
                    )
                )


#: Not shrunk: that takes minutes on files, and 25 steps are short enough to read.
MODEST = settings(
    max_examples=20,
    stateful_step_count=25,
    phases=(Phase.explicit, Phase.reuse, Phase.generate),
)


def test_both_stores_answer_alike(empty_file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(BothStores, "empty_file", empty_file, raising=False)
    run_state_machine_as_test(BothStores, settings=MODEST)
