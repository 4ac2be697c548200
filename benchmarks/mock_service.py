"""The service of a home whose stages and steps take known seconds, for `service_deadlines.py`.

HTTP, store, scheduler, leases and executors are those of `tunefleet serve --http`. Only what a
stage or step does is mocked: it sleeps for the seconds of `KnownDurations`, and makes up a result.
"""

from __future__ import annotations

import random
import sys
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from tunefleet.core.device import DeviceSlot, DeviceSpec, RpcAddress
from tunefleet.core.network import Footprint, NetworkInfo, TensorSpec
from tunefleet.core.stage import (
    BuildResult,
    Profiled,
    ProfileResult,
    SelectResult,
    StageKey,
    StageKind,
    StageResult,
    StageRun,
    UpdateResult,
    WorkKind,
)
from tunefleet.core.step import (
    Checked,
    Compiled,
    Finalists,
    Imported,
    Measured,
    Published,
    StepKind,
    StepResult,
    StepRun,
    Verified,
    Winners,
)
from tunefleet.core.task import Task, WeightedTask
from tunefleet.core.trial import Built, Candidate, Measurement
from tunefleet.fleet.executor import Executor, LocalExecutor
from tunefleet.fleet.local import LocalFleet
from tunefleet.fleet.shell import Shell
from tunefleet.runs import serving
from tunefleet.runs.context import BenchmarkContext
from tunefleet.runs.run import NetworkRun
from tunefleet.scheduler.durations import Spread
from tunefleet.scheduler.values import Resource
from tunefleet.stages.place import JobTask, StepRequest
from tunefleet.store import Store

#: Mean seconds. What a step takes differs between networks, a stage between tasks and rounds too.
_MEANS_S: dict[WorkKind, float] = {
    StageKind.SELECT: 0.1,
    StageKind.BUILD: 0.2,
    StageKind.PROFILE: 0.5,
    StageKind.UPDATE: 0.1,
    StepKind.IMPORT: 0.3,
    StepKind.CHECK: 0.2,
    StepKind.BUILD_FINALISTS: 0.2,
    StepKind.SELECT_WINNERS: 0.2,
    StepKind.COMPILE: 0.3,
    StepKind.VERIFY: 0.1,
    StepKind.PUBLISH: 0.1,
    StepKind.MEASURE: 0.2,
}
#: Coefficients of variation between tasks, and between the rounds of one.
_TASKS_VARY, _ROUNDS_VARY = 0.5, 0.3
_MOST_TASKS = 3
_TENSOR = TensorSpec("x", (1, 3, 8, 8), "float32")


@dataclass(frozen=True, slots=True)
class KnownDurations:
    """Tasks of networks, and the seconds of each stage and step, all decided by a seed."""

    seed: int

    def tasks(self, network: str) -> tuple[WeightedTask, ...]:
        """The made-up tasks of a network."""
        count = random.Random(f"{self.seed}/{network}").randint(1, _MOST_TASKS)
        return tuple(
            WeightedTask(Task(f"{network}#{n}", f"task {n}", "conv2d", "1x3x8x8", 1e6, ""), 1)
            for n in range(count)
        )

    def seconds(self, network: str, key: StageKey) -> float:
        """Of a stage, or of a step where the task is "", whatever the job is."""
        spread = Spread(_MEANS_S, _TASKS_VARY, _ROUNDS_VARY, self.seed)
        return spread(replace(key, job_id=network))


def stage_result(key: StageKey, batch: int, selected: SelectResult | None) -> StageResult:
    """What a mocked stage finds: all of `batch` candidates can be built, later ones are faster."""
    names = [f"{key.task_id}/{key.iteration}/{n}" for n in range(batch)]
    if key.kind is StageKind.SELECT:
        return SelectResult(tuple(Candidate(name, f'["{name}"]') for name in names))
    if key.kind is StageKind.UPDATE:
        return UpdateResult()
    assert selected is not None
    chosen = [candidate.candidate_id for candidate in selected.candidates]
    if key.kind is StageKind.BUILD:
        return BuildResult(tuple(Built(name, f"{name}.so", (), 0.1) for name in chosen))
    latency_s = 1e-3 / (1 + max(0, key.iteration))
    return ProfileResult(tuple(Profiled(name, Measurement((latency_s,)), 0.01) for name in chosen))


class MockRunner:
    """In place of `StageRunner`."""

    def __init__(self, store: Store, durations: KnownDurations) -> None:
        self._store = store
        self._durations = durations

    def run(self, lane: JobTask, key: StageKey, batch: int) -> StageRun:
        started_at, clock = time.time(), time.perf_counter()
        time.sleep(self._durations.seconds(lane.job.spec.network.name, key))
        first = StageKey(key.job_id, key.task_id, key.iteration, StageKind.SELECT)
        committed = None if key.kind is StageKind.SELECT else self._store.work.stage(first)
        selected = None if committed is None else committed.result
        assert selected is None or isinstance(selected, SelectResult)
        result = stage_result(key, batch, selected)
        return StageRun(key, result, started_at, time.perf_counter() - clock)

    def run_step(self, request: StepRequest) -> StepRun:
        started_at, clock = time.time(), time.perf_counter()
        network = request.preparation.source.name
        time.sleep(self._durations.seconds(network, StageKey("", "", 0, request.kind)))
        result = self._step_result(request)
        return StepRun(request.key, result, started_at, time.perf_counter() - clock)

    def _step_result(self, request: StepRequest) -> StepResult:
        source = request.preparation.source
        if request.kind is StepKind.IMPORT:
            return Imported(
                NetworkInfo(source.name, source.spec, source.content, (_TENSOR,), (_TENSOR,)),
                self._durations.tasks(source.name),
                Footprint(1),
                float_type="float32",
                framework="mock",
                references=(),
                segments=(),
                module="",
                examples="",
            )
        results: dict[StepKind, StepResult] = {
            StepKind.CHECK: Checked(0.0, 1e-3, False, ""),
            StepKind.BUILD_FINALISTS: Finalists(()),
            StepKind.SELECT_WINNERS: Winners(0),
            StepKind.COMPILE: Compiled(""),
            StepKind.VERIFY: Verified(0.0),
            StepKind.PUBLISH: Published(request.key.owner),
            StepKind.MEASURE: Measured((), {}),
        }
        return results[request.kind]


class MockFleet(LocalFleet):
    """This machine's host and processor, and more devices of its kind; no worker starts."""

    def __init__(self, context: BenchmarkContext, devices: int, durations: KnownDurations) -> None:
        super().__init__(context.layout, context.home)
        self._more = devices - 1
        self._durations = durations

    def slots(self, kind: str) -> tuple[DeviceSlot, ...]:
        elsewhere = DeviceSpec(rpc=RpcAddress("127.0.0.1", 9))
        return tuple(DeviceSlot(f"mock{n}", elsewhere) for n in range(self._more))

    def _executor(
        self, shell: Shell, resource: Resource, pools: Sequence[Any], remote: Any = None
    ) -> Executor:
        runner: Any = MockRunner(self.store, self._durations)
        return LocalExecutor(
            resource, (), runner, self.store, self.leases, shell.report, shell.tell
        )


def serve(home: Path, devices: int, seed: int, port: int) -> int:
    """Be the service of a home until standard input ends."""
    from tunefleet.compiler.toolchain import programs
    from tunefleet.service.app import ServiceSettings
    from tunefleet.service.running import HttpService, Listening

    # What reads the files of steps: these have none.
    programs.moved_bytes = lambda program: 1
    NetworkRun.has_output = lambda self, run: True  # type: ignore[method-assign]
    NetworkRun.told = NetworkRun.result  # type: ignore[method-assign]
    durations = KnownDurations(seed)
    mocked: Any = serving
    mocked.fleet_of = lambda *contexts: MockFleet(contexts[0], devices, durations)
    server = serving.Server(BenchmarkContext(home=home, threads=1), say=_say)

    def stop() -> None:
        sys.stdin.read()
        server.stop()

    threading.Thread(target=stop, daemon=True).start()
    with HttpService(home, Listening(port=port), ServiceSettings(), server.look) as service:
        print(f"answering at {service.url}", flush=True)
        server.run()
    return 0


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
