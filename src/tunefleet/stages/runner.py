"""Runs one stage or one step: inputs from the store by its key, work in the pools, a result to
commit.

Any of any job can be run by any runner; between two of them nothing
is remembered here but what the store and the objects can give back.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from tunefleet.core.stage import StageKey, StageKind, StageResult, StageRun
from tunefleet.core.step import Remark, StepKind, StepResult, StepRun
from tunefleet.stages import (
    baseline,
    build,
    check,
    compile_,
    importing,
    measure,
    profile,
    publish,
    select,
    update,
    verify,
    winners,
)
from tunefleet.stages.place import JobTask, StageContext, StepRequest, Workplace
from tunefleet.stages.records import Knowledge

Made = tuple[StepResult, tuple[Remark, ...]]

#: What every kind of step does. Each reads what it needs by the request alone.
STEPS: dict[StepKind, Callable[[StageContext, StepRequest], Made]] = {
    StepKind.SPLIT: importing.run_split,
    StepKind.IMPORT: importing.run,
    StepKind.CHECK: check.run,
    StepKind.BASELINE: baseline.run,
    StepKind.BUILD_FINALISTS: winners.run_build,
    StepKind.SELECT_WINNERS: winners.run_select,
    StepKind.COMPILE: compile_.run,
    StepKind.VERIFY: verify.run,
    StepKind.PUBLISH: publish.run,
    StepKind.MEASURE: measure.run,
}


class StageRunner:
    def __init__(self, place: Workplace) -> None:
        self.place = place
        self._knowledge = Knowledge(place)

    def run(self, lane: JobTask, key: StageKey, batch: int) -> StageRun:
        """Run a stage to its result; the caller commits it. `batch` is used by select only."""
        started_at, clock = time.time(), time.perf_counter()
        place, knowledge, note = self.place.for_target(lane.job.spec.target), self._knowledge, ""
        result: StageResult
        if key.kind is StageKind.SELECT:
            result, note = select.select(place, knowledge, lane, key, batch)
        elif key.kind is StageKind.BUILD:
            result = build.build(place, lane, key)
        elif key.kind is StageKind.PROFILE:
            result, note = profile.profile(place, knowledge, lane, key)
        else:
            profile.discard(place, lane, key)
            result, note = update.update(place, knowledge, lane, key)
        return StageRun(key, result, started_at, time.perf_counter() - clock, note)

    def run_step(self, request: StepRequest) -> StepRun:
        """Run a step to its result; the caller commits it."""
        started_at, clock = time.time(), time.perf_counter()
        place = self.place.for_target(request.preparation.target)
        result, remarks = STEPS[request.kind](place, request)
        seconds = time.perf_counter() - clock
        return StepRun(request.key, result, started_at, seconds, remarks)
