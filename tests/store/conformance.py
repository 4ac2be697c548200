"""The Store contract, sentence by sentence. A subclass provides the fixture `store`."""

from __future__ import annotations

from typing import Any

import pytest

from tunefleet.core.coordination import Claim, ControlRequest, Lease
from tunefleet.core.job import JobState
from tunefleet.core.stage import (
    SelectResult,
    StageKey,
    StageKind,
    StageRun,
)
from tunefleet.core.step import StepKind
from tunefleet.errors import InputError, InternalError
from tunefleet.store import RecordFilter

from . import values as v
from .conformance_accounts import ANN, NETWORK, TOKEN, Kept, Tenants, Users
from .conformance_coordination import HOLDER, Fencing, Leases, Requests
from .conformance_dispatch import HOST, HostWork
from .conformance_events import EventLog
from .conformance_explorer import NEWEST, Explored
from .conformance_jobs import Jobs, Tasks
from .conformance_learnings import FIRST, Learned
from .conformance_results import BestRecords, Records, Winners, record_ids
from .conformance_stages import Commits, Reading, Windows
from .conformance_steps import StepLog, step
from .conformance_webhooks import HOOK, Hooks

KEY = StageKey("job", "t", 0, StageKind.SELECT)
CLAIM = Claim("a", frozenset({"core 0"}), HOLDER)
OF_JOB: dict[str, Any] = {
    "put_tasks": lambda s: s.work.put_tasks("job", []),
    "tasks": lambda s: s.work.tasks("job"),
    "stages": lambda s: s.work.stages("job"),
    "trials": lambda s: s.records.trials("job"),
    "trial_count": lambda s: s.records.trial_count("job"),
    "model": lambda s: s.records.model("job"),
    "winners": lambda s: s.records.winners("job"),
    "finish": lambda s: s.jobs.finish("job", JobState.SUCCEEDED, {}),
    "summary": lambda s: s.jobs.summary("job"),
    "remove_job": lambda s: s.jobs.remove("job"),
    "ask": lambda s: s.coordination.ask("job", ControlRequest.PAUSE),
}
OF_TASK: dict[str, Any] = {
    "commit": lambda s: s.work.commit(StageRun(KEY, SelectResult(()), 0.0, 1.0)),
    "stage": lambda s: s.work.stage(KEY),
    "trials of a task": lambda s: s.records.trials("job", "t"),
    "select_winner": lambda s: s.records.select_winner("job", "t", None, None),
}
OF_STORE: dict[str, Any] = {
    "open_job": lambda s: s.jobs.open(v.make_spec(), job_id="job", now=0.0),
    "jobs": lambda s: s.jobs.page(),
    "outcomes": lambda s: s.jobs.outcomes(["job"]),
    "stages_between": lambda s: s.work.stages_between(0.0, 1.0),
    "commit_step": lambda s: s.work.commit_step(step(StepKind.VERIFY)),
    "step": lambda s: s.work.step(step(StepKind.VERIFY).key),
    "steps": lambda s: s.work.steps("o"),
    "forget_steps": lambda s: s.work.forget_steps("o"),
    "records": record_ids,
    "best": lambda s: s.records.best("t", v.DEVICE, v.TOOLCHAIN),
    "explorer": lambda s: s.explorer.page(RecordFilter(), NEWEST, limit=1),
    "best_page": lambda s: s.records.best_page(limit=1),
    "acquire": lambda s: s.coordination.acquire(CLAIM, 1.0),
    "renew": lambda s: s.coordination.renew(Lease(CLAIM, 1), 1.0),
    "release": lambda s: s.coordination.release("a"),
    "claims": lambda s: s.coordination.claims(),
    "join": lambda s: s.dispatch.join(HOST, []),
    "beat": lambda s: s.dispatch.beat(HOST),
    "dismiss": lambda s: s.dispatch.dismiss("a"),
    "leave": lambda s: s.dispatch.leave(HOST),
    "hosts": lambda s: s.dispatch.hosts(),
    "give": lambda s: s.dispatch.give(HOST, "giver", {}),
    "given": lambda s: s.dispatch.given(HOST),
    "abandon": lambda s: s.dispatch.abandon(1),
    "report": lambda s: s.dispatch.report(HOST, 1, {}),
    "take_reports": lambda s: s.dispatch.take_reports("giver"),
    "wanted": lambda s: s.coordination.wanted("job"),
    "requests": lambda s: s.coordination.requests(["job"]),
    "add learning": lambda s: s.explorer.add_learning(FIRST),
    "newest": lambda s: s.explorer.learnings("ann", 1),
    "learned": lambda s: s.explorer.learned("ann", ("1",)),
    "owners": lambda s: s.explorer.owners("ann"),
    "put_user": lambda s: s.accounts.put_user(ANN),
    "user": lambda s: s.accounts.user("ann"),
    "users": lambda s: s.accounts.users(),
    "put_token": lambda s: s.accounts.put_token(TOKEN),
    "token": lambda s: s.accounts.token("d1"),
    "tokens": lambda s: s.accounts.tokens("ann"),
    "use_token": lambda s: s.accounts.use_token("d1", 1.0),
    "remove_token": lambda s: s.accounts.remove_token("d1"),
    "share": lambda s: s.accounts.share("ann", "bob", True),
    "readers": lambda s: s.accounts.readers("ann"),
    "put_network": lambda s: s.holdings.put_network(NETWORK),
    "network": lambda s: s.holdings.network("ann", "f00"),
    "networks": lambda s: s.holdings.networks("ann"),
    "stored_bytes": lambda s: s.holdings.stored_bytes("ann"),
    "remove_network": lambda s: s.holdings.remove_network("ann", "f00"),
    "measured_s": lambda s: s.holdings.measured_s("ann", 0.0),
    "places": lambda s: s.holdings.places(["networks"]),
    "put_webhook": lambda s: s.webhooks.put(HOOK),
    "webhook": lambda s: s.webhooks.get("ann", "a1"),
    "webhooks": lambda s: s.webhooks.of("ann"),
    "due": lambda s: s.webhooks.due(1.0),
    "advance": lambda s: s.webhooks.advance("a1", HOOK.state),
    "deliveries": lambda s: s.webhooks.deliveries("a1", None, 1),
    "rotate": lambda s: s.webhooks.rotate("a1", "whsec_y", 1.0),
    "drop_secrets": lambda s: s.webhooks.drop_secrets(1.0),
    "remove_webhook": lambda s: s.webhooks.remove("ann", "a1"),
    "begin_request": lambda s: s.holdings.begin_request("ann", "k", "asked", 1.0),
    "end_request": lambda s: s.holdings.end_request("ann", "k", None),
    "forget_unanswered": lambda s: s.holdings.forget_unanswered(),
}


class Errors:
    @pytest.mark.parametrize("verb", [*OF_JOB, *OF_TASK])
    def test_an_unknown_job_is_an_input_error(self, store: Any, verb: str) -> None:
        with pytest.raises(InputError, match="no job job"):
            {**OF_JOB, **OF_TASK}[verb](store)

    @pytest.mark.parametrize("verb", OF_TASK)
    def test_a_task_of_another_job_is_unknown(self, store: Any, verb: str) -> None:
        v.open_with_task(store, "other")
        v.open_with_task(store, "job", task_id="x")
        with pytest.raises(InputError, match="no task t in job job"):
            OF_TASK[verb](store)

    def test_records_of_an_unknown_task_are_an_input_error(self, store: Any) -> None:
        with pytest.raises(InputError, match="no task t"):
            record_ids(store)

    @pytest.mark.parametrize("verb", [*OF_JOB, *OF_TASK, *OF_STORE])
    def test_every_verb_of_a_closed_store_raises(self, store: Any, job: str, verb: str) -> None:
        store.close()
        with pytest.raises(InternalError, match="closed"):
            {**OF_JOB, **OF_TASK, **OF_STORE}[verb](store)

    def test_closing_again_does_nothing(self, store: Any) -> None:
        store.close()
        store.close()


class StoreConformance(
    Jobs,
    Tasks,
    Commits,
    Reading,
    Windows,
    StepLog,
    Records,
    BestRecords,
    Explored,
    Learned,
    Winners,
    Leases,
    Fencing,
    Requests,
    Errors,
    EventLog,
    HostWork,
    Tenants,
    Users,
    Kept,
    Hooks,
):
    """Every sentence of the contract. The groups are not collected by themselves."""
