"""The jobs of `service_deadlines.py` in the simulator: steps, search and delivery, as in a service.

Parts of a job follow each other as in `runs.driver`, its rounds are those of `TuningPlan`, and
stages find what `mock_service` makes up.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import arrivals_witness
import mock_service
from tunefleet.core.budget import Budget
from tunefleet.core.phases import search_ends_by
from tunefleet.core.settings import SearchSettings
from tunefleet.core.stage import STAGE_ORDER, SelectResult, StageKey, StageKind
from tunefleet.core.step import DELIVERY, PREPARATION, WINNERS, StepKind
from tunefleet.scheduler.core import Scheduler
from tunefleet.scheduler.plan import StepPlan
from tunefleet.scheduler.policies import Policy, Predictive
from tunefleet.scheduler.simulator import simulate
from tunefleet.scheduler.tuning_plan import TuningPlan
from tunefleet.scheduler.values import (
    Event,
    FinishJob,
    Instruction,
    JobRequest,
    JobSubmitted,
    Resource,
    ResourceJoined,
    Role,
    StageFinished,
    StartStage,
    at_home,
)

SEARCH = SearchSettings()
#: More rounds of a task than any job has.
_MOST_ROUNDS = 12
_AFTER = (*WINNERS, *DELIVERY)
_STEPS = (*PREPARATION, *_AFTER)


@dataclass(frozen=True)
class SentJob:
    """A job as it is sent: `network` is the name of what `spec` says, `owner` the number of a
    user."""

    spec: str
    network: str
    trials: int
    owner: int


class SimulatedService:
    """Simulates jobs on so many devices. `prepared`: they were there before, so that they are not
    imported again, and it is known how long their delivery takes."""

    def __init__(
        self,
        jobs: Sequence[SentJob],
        durations: mock_service.KnownDurations,
        devices: int,
        *,
        prepared: bool,
    ) -> None:
        self._jobs = {job.network: job for job in jobs}
        self._durations = durations
        self._devices = devices
        self._prepared = prepared
        #: Those of the last simulation.
        self._plans: dict[str, TuningPlan] = {}

    def ends(
        self, arrived: Mapping[str, float], due: Mapping[str, float], first: str = ""
    ) -> dict[str, float]:
        """When jobs end, by network. Under the policy of the service, or with one of them `first`
        by someone who knows all seconds."""
        policy: Policy = Predictive()
        if first:
            policy = arrivals_witness.Clairvoyant([first], self._rounds())
        parts = {name: self._parts(name, due.get(name)) for name in arrived}
        scheduler = ServiceScheduler(policy, {"device": 1 + 2 * self._devices}, parts)
        begun_at = min(arrived.values())
        submitted = [JobSubmitted(at, parts[name].pop(0)(at)) for name, at in arrived.items()]
        joined = [ResourceJoined(begun_at, each) for each in resources(self._devices)]
        found = simulate(
            scheduler, [*joined, *submitted], lambda key: self._durations.seconds(key.job_id, key)
        )
        return found.finished_at

    def is_whole(self, network: str) -> bool:
        """Whether a job had all of its trials in the last simulation."""
        return self._plans[network].trials == self._jobs[network].trials

    def _parts(self, network: str, due: float | None) -> list[Callable[[float], JobRequest]]:
        """What is submitted of a job, each when the one before has ended: as `runs.driver` does."""
        job, tasks = self._jobs[network], self._durations.tasks(network)
        steps = JobRequest(
            network,
            StepPlan(),
            order=PREPARATION,
            host_kind=at_home("host"),
            priority=8,
            deadline=due,
            lookahead=False,
            needs_home=True,
        )

        # What is known of its delivery by earlier runs.
        delivery_s = sum(self._step_s(network, kind) for kind in _AFTER) if self._prepared else 0.0

        def search(at: float) -> JobRequest:
            budget, ends_by = Budget(trials=job.trials), search_ends_by(due, delivery_s, at)
            plan = TuningPlan(tasks, budget, SEARCH, known={}, now=at, deadline=ends_by)
            self._plans[network] = plan
            return JobRequest(network, plan, user=str(job.owner), deadline=due, following=_AFTER)

        def delivery(at: float) -> JobRequest:
            return replace(steps, plan=StepPlan(frozenset(PREPARATION)), order=_STEPS)

        def preparation(at: float) -> JobRequest:
            return replace(steps, following=None)

        return [search, delivery] if self._prepared else [preparation, search, delivery]

    def _step_s(self, network: str, kind: StepKind) -> float:
        return self._durations.seconds(network, StageKey("", "", 0, kind))

    def _rounds(self) -> dict[tuple[str, str], list[tuple[float, ...]]]:
        """The seconds of the stages of more rounds than there are, and of all steps as one."""
        rounds: dict[tuple[str, str], list[tuple[float, ...]]] = {}
        for network in self._jobs:
            for task_id in ["", *(each.task.task_id for each in self._durations.tasks(network))]:
                rounds[network, task_id] = [
                    tuple(
                        self._durations.seconds(network, StageKey("", task_id, iteration, kind))
                        for kind in (STAGE_ORDER if task_id else _STEPS)
                    )
                    for iteration in range(_MOST_ROUNDS if task_id else 1)
                ]
        return rounds


class ServiceScheduler(Scheduler):
    """The scheduler of a service whose stages find what `mock_service` makes up. What follows a
    part of a job is submitted when that has ended."""

    def __init__(
        self,
        policy: Policy,
        in_flight: Mapping[str, int],
        parts: Mapping[str, list[Callable[[float], JobRequest]]],
    ) -> None:
        super().__init__(policy, in_flight)
        self._parts = parts
        self._batches: dict[StageKey, int] = {}
        self._selected: dict[StageKey, SelectResult] = {}

    def handle(self, event: Event) -> list[Instruction]:
        if isinstance(event, StageFinished) and event.key.task_id:
            event = replace(event, result=self._result(event.key))
        out = super().handle(event)
        for instruction in list(out):
            if isinstance(instruction, StartStage) and instruction.key.kind is StageKind.SELECT:
                key = instruction.key
                plan = self.jobs[key.job_id].plan
                assert isinstance(plan, TuningPlan)
                self._batches[key] = plan.batch(key.task_id)
            if isinstance(instruction, FinishJob) and self._parts[instruction.job_id]:
                following = self._parts[instruction.job_id].pop(0)
                out += self.handle(JobSubmitted(event.at, following(event.at)))
        return out

    def _result(self, key: StageKey) -> Any:
        select = replace(key, kind=StageKind.SELECT)
        batch, selected = self._batches[select], self._selected.get(select)
        result = mock_service.stage_result(key, batch, selected)
        if isinstance(result, SelectResult):
            self._selected[key] = result
        return result


def resources(devices: int) -> list[Resource]:
    """Those of a service on this machine, as in `LocalFleet.shell`."""
    units = frozenset({"host"})
    hosts = [
        Resource("home", Role.HOST, at_home("host"), units),
        Resource("host", Role.HOST, "host", units),
    ]
    return hosts + [
        Resource(
            f"device{n}", Role.DEVICE, "device", frozenset({f"device{n}"}), also=at_home("device")
        )
        for n in range(devices)
    ]
