"""The result of a run, made of what its stages and steps committed, and of nothing else."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, TypeVar

from tunefleet.artifacts.artifact import REPORT, TIMELINE
from tunefleet.core.agreement import judge
from tunefleet.core.identity import Tier
from tunefleet.core.job import BESIDE_OTHERS, Job
from tunefleet.core.known import RECORD
from tunefleet.core.layout import format_cores
from tunefleet.core.result import (
    Differences,
    MeasuredShape,
    ResultNetwork,
    RunResult,
    StepTime,
    of_shape,
)
from tunefleet.core.roofline import Bandwidth
from tunefleet.core.stage import StageKind
from tunefleet.core.step import (
    Checked,
    Imported,
    Measured,
    StepKind,
    StepResult,
    StepRun,
    Verified,
)
from tunefleet.core.task import WeightedTask
from tunefleet.errors import InternalError
from tunefleet.stages.failures import failure_texts, failures_by_kind
from tunefleet.stages.importing import outside
from tunefleet.stages.known import programs_of
from tunefleet.stages.measure import ON_CPU, figures_of
from tunefleet.stages.place import Delivery, Workplace
from tunefleet.stages.steering import remarks
from tunefleet.stages.task_results import task_results
from tunefleet.stages.times import tuning_curve, wall_of
from tunefleet.store import Store

R = TypeVar("R", bound=StepResult)

#: How many times as long one way of measuring a network may say it takes as another. On a quiet
#: machine they were within 0.95 and 1.4 of each other: caches are cold in one, warm in another.
_CONTRADICTS = 1.6
#: A network of a few kernels takes this long to be called.
_LEAST_GAP_MS = 0.05


@dataclass(frozen=True, slots=True)
class _Committed:
    """The results of a run's steps so far."""

    steps: Mapping[StepKind, StepRun]
    imported: Imported
    checked: Checked
    verified: Verified | None
    measured: Measured | None

    @property
    def peak_gflops(self) -> float | None:
        return self.measured.peak_gflops if self.measured else self.checked.peak_gflops

    @property
    def bandwidths(self) -> tuple[Bandwidth, ...]:
        return self.measured.bandwidths if self.measured else self.checked.bandwidths

    @property
    def kernels(self) -> Mapping[str, float]:
        return self.measured.kernels if self.measured else {}

    @property
    def shapes(self) -> list[MeasuredShape]:
        """What was measured at each of the network's shapes."""
        if self.measured is None or not self.measured.comparisons:
            return []
        pairs = zip(self.measured.comparisons, self.imported.info.signatures, strict=True)
        framework = self.imported.framework
        if self.measured.source_on_cpu:
            framework += ON_CPU
        return [
            figures_of(comparison, framework, map(str, signature.inputs))
            for comparison, signature in pairs
        ]

    def remarks(self, *, warnings: bool) -> tuple[str, ...]:
        """What the import changed in the network, and what that lost."""
        of_import = self.steps[StepKind.IMPORT].remarks
        return tuple(remark.text for remark in of_import if remark.warning == warnings)


def build_result(place: Workplace, delivery: Delivery) -> RunResult:
    """Whatever is committed by now of a run; what is not is None."""
    committed, preparation = _committed(place.store, delivery), delivery.preparation
    imported, checked, verified = committed.imported, committed.checked, committed.verified
    steps = sorted(committed.steps.values(), key=lambda run: run.started_at)
    artifact = place.home.artifacts / delivery.run_id
    published = StepKind.PUBLISH in committed.steps
    searched_s = place.store.jobs.get(delivery.job.job_id).elapsed_s if delivery.job else 0.0
    runs = place.store.work.stages(delivery.job.job_id) if delivery.job else []
    shapes = committed.shapes
    first = shapes[0] if shapes else MeasuredShape()
    result = RunResult(
        **of_shape(first),
        run=delivery.run_id,
        resumed=delivery.resumed,
        network=ResultNetwork.of(imported.info),
        target=str(preparation.target),
        threads=preparation.target.threads,
        device=preparation.device,
        host_cores=format_cores(place.machine.layout.host_cores),
        device_cores=format_cores(place.machine.layout.device_cores),
        toolchain=preparation.toolchain,
        stopped=delivery.stopped or None,
        wall_s=sum(run.seconds for run in steps) + searched_s,
        wall=wall_of(steps, runs, searched_s),
        steps=tuple(map(StepTime.of, steps)),
        delivered=verified.delivered if verified else None,
        why_plain=(verified.why_plain or None) if verified else None,
        # The plain module was compared with the source framework by the check.
        verified=verified is not None,
        difference=Differences(
            plain=checked.difference, tuned=verified.difference if verified else None
        ),
        tolerance=checked.tolerance,
        difference_measure=checked.measure,
        peak_gflops=committed.peak_gflops,
        bandwidths=committed.bandwidths,
        kernels_ms=sum(committed.kernels.values()) * 1e3 or None,
        notes=committed.remarks(warnings=False),
        warnings=(*committed.remarks(warnings=True), *checked.caveats),
        outside=outside(imported, committed.kernels),
        shapes=tuple(shapes) if len(shapes) > 1 else (),
        artifact=str(artifact) if published else None,
        report=str(artifact / REPORT) if published else None,
        timeline=str(artifact / TIMELINE) if (artifact / TIMELINE).is_file() else None,
    )
    if delivery.job is None:
        return _with_known(result, place, delivery, imported.tasks, verified)
    return _with_search(result, place, delivery, delivery.job, imported)


def _with_known(
    result: RunResult,
    place: Workplace,
    delivery: Delivery,
    tasks: tuple[WeightedTask, ...],
    verified: Verified | None,
) -> RunResult:
    """The result with what earlier jobs verified of its tasks."""
    known = programs_of(place.store, delivery, tasks)
    return replace(
        result,
        tasks=task_results(
            tasks,
            {task_id: (program.trial, program.checks) for task_id, program in known.items()},
            lambda task_id: [],
            result.peak_gflops,
            result.bandwidths,
        ),
        reused=len(known),
        known=len(known),
        tuned_tasks=len(known),
        known_share=verified.known_share if verified else None,
    )


def _with_search(
    result: RunResult, place: Workplace, delivery: Delivery, job: Job, imported: Imported
) -> RunResult:
    """The result with what its job searched."""
    tasks = imported.tasks
    store, trials = place.store, place.store.records.trials(job.job_id)
    rows = task_results(
        tasks,
        store.records.winners(job.job_id),
        partial(store.records.trials, job.job_id),
        result.peak_gflops,
        result.bandwidths,
    )
    known = {each.task.task_id for each in tasks if _is_known(each.task.task_id, store, job)}
    steering = remarks(place.models, job.spec, [weighted.task for weighted in tasks])
    searched = replace(
        result,
        job=job.job_id,
        shared=job.spec.shared,
        budget=job.spec.budget,
        agreement=judge(
            job.spec.agreement,
            result.measured_shapes,
            difference_of(result, imported.lost),
            trials=len(trials),
            impossible=delivery.impossible,
        ),
        trials=len(trials),
        failures=failures_by_kind(trials),
        failure_texts=failure_texts(trials),
        notes=(*result.notes, *steering),
        tasks=rows,
        reused=sum(1 for row in rows if row.source == "reused"),
        known=len(known),
        tuned_tasks=sum(row.trials > row.failed or row.task_id in known for row in rows),
        curve=tuning_curve(store, job),
    )
    experiment = f"an experiment: {BESIDE_OTHERS}; what is delivered was measured alone"
    warnings = (
        *([experiment] if job.spec.shared else ()),
        *result.warnings,
        *_troubles(tasks, store, job),
        *untuned(searched, job.spec.settings.search.first_batch),
        *contradictions(searched),
    )
    return replace(searched, warnings=warnings)


def difference_of(result: RunResult, lost: float) -> float | None:
    """How far what is delivered is from the source framework, and that from the network in float32
    where it was quantised."""
    of = result.difference
    difference = of.tuned if result.delivered == "tuned" else of.plain
    return None if difference is None else max(difference, lost)


def _committed(store: Store, delivery: Delivery) -> _Committed:
    prepared = {run.key.kind: run for run in store.work.steps(delivery.preparation.id)}
    steps = prepared | {run.key.kind: run for run in store.work.steps(delivery.run_id)}
    imported = _result(steps, StepKind.IMPORT, Imported)
    checked = _result(steps, StepKind.CHECK, Checked)
    if imported is None or checked is None:
        raise InternalError("there is no result of a network that was not checked")
    verified = _result(steps, StepKind.VERIFY, Verified)
    measured = _result(steps, StepKind.MEASURE, Measured)
    return _Committed(steps, imported, checked, verified, measured)


def _result(steps: Mapping[StepKind, StepRun], kind: StepKind, expected: type[R]) -> R | None:
    run = steps.get(kind)
    return run.result if run is not None and isinstance(run.result, expected) else None


def contradictions(result: RunResult) -> list[str]:
    """A warning where the latency end to end, that of all kernels one by one and that of all tasks
    in the search lie so far apart that one of them must have been disturbed. None where the
    first one is known to be."""
    if result.why_disturbed:
        return []
    latencies = {"end to end": result.tuned_ms.median if result.tuned_ms else None}
    if result.outside is None:
        latencies["by its kernels one by one"] = result.kernels_ms
        latencies["by its tasks in the search"] = result.tasks_ms
    known = {how: ms for how, ms in latencies.items() if ms}
    if len(known) < 2:
        return []
    least, most = min(known.values()), max(known.values())
    if most < _CONTRADICTS * least or most - least < _LEAST_GAP_MS:
        return []
    told = ", ".join(f"{ms:.3g} ms {how}" for how, ms in known.items())
    return [f"one inference takes {told}: these do not fit together, measure on a quiet machine"]


def untuned(result: RunResult, first_batch: int) -> list[str]:
    """A warning where the budget ended before every task had its first batch."""
    missing = len(result.tasks) - result.tuned_tasks
    if not missing or not result.tuned_tasks:
        return []
    least = len(result.tasks) * first_batch
    return [
        f"{result.tuned_tasks} of {len(result.tasks)} tasks tuned: no program of the others was "
        f"measured, and they keep TVM's own schedule; a first batch of each takes {least} trials"
    ]


def _troubles(tasks: Sequence[WeightedTask], store: Store, job: Job) -> list[str]:
    """What selecting candidates and fitting the cost model failed by: the search went on."""
    names = {t.task.task_id: t.task.name for t in tasks}
    told = Counter(
        f"{names.get(run.key.task_id, run.key.task_id)}: {run.key.kind}: {run.note}"
        for run in store.work.stages(job.job_id)
        if run.note and run.key.kind in (StageKind.SELECT, StageKind.UPDATE)
    )
    return list(told)


def _is_known(task_id: str, store: Store, job: Job) -> bool:
    """Whether programs of a task were measured that the job starts from."""
    spec = job.spec
    if not spec.settings.transfer:
        return False
    return bool(
        store.records.fastest(
            task_id,
            spec.device,
            spec.toolchain,
            tier=Tier.EXACT,
            limit=1,
            tenant=spec.tenant,
        )
    )


def records_used(
    store: Store, delivery: Delivery, weighted_tasks: Sequence[WeightedTask]
) -> list[dict[str, Any]]:
    """The record of each task that does not keep its plain schedule, as the artifact keeps them:
    for TVM alone too."""
    from tunefleet.compiler.code.replay import completed

    of, tasks = delivery.preparation, {t.task.task_id: t.task for t in weighted_tasks}
    used = []
    for task_id, program in sorted(programs_of(store, delivery, weighted_tasks).items()):
        latencies = getattr(program.trial.outcome, "latencies_s", ())
        task = tasks[task_id]
        used.append(
            {
                "schema": RECORD,
                "task_id": task_id,
                "name": task.name,
                "shapes": task.shapes,
                "target": str(of.target),
                "device": of.device.exact,
                "toolchain": of.toolchain.exact,
                "candidate_id": program.trial.candidate.candidate_id,
                "trace": completed(task.program, of.target, program.trace),
                "latencies_s": list(latencies),
                "checks": program.checks,
                **({"shared": True} if getattr(program.trial.outcome, "shared", False) else {}),
            }
        )
    return used
