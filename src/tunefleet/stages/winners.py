"""The two steps that choose what each task delivers: the best few are built again, then measured in
turn and checked on the device, and one wins."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from tunefleet.artifacts.blobs import Blobs
from tunefleet.core.events import Progressed
from tunefleet.core.identity import Tier
from tunefleet.core.job import Job
from tunefleet.core.step import Finalist, Finalists, Remark, StepKind, Winners
from tunefleet.core.task import TaskWeights, WeightedTask
from tunefleet.core.trial import Built, Failure, FailureKind, Measurement, Trial
from tunefleet.errors import InternalError
from tunefleet.stages import work
from tunefleet.stages.place import JobTask, StageContext, StepRequest
from tunefleet.stages.prepared import object_of, result_of
from tunefleet.stages.records import known_records
from tunefleet.stages.weights import weights_of
from tunefleet.workers.pool import CallFailure

#: Candidates within this factor of the best may truly be faster; others are not worth the time.
_CLOSE = 1.12
#: A default schedule slower than this many times the winner's latency cannot win.
_DEFAULT_IN_REACH = 3.0
#: One run tells the latency of a default schedule that takes longer: of a shorter one it tells
#: mostly how long a call takes.
_ONE_RUN_TELLS_S = 5e-3
_CHECK_TIMEOUT_S = 120.0
#: In the checks of a winner: how many trials of its task there were. Earlier versions do not say.
_TRIALS = "trials"


def run_build(place: StageContext, request: StepRequest) -> tuple[Finalists, tuple[Remark, ...]]:
    """Build the finalists of every task that has no winner yet, with the host's workers."""
    job = _job(request)
    decided = _decided(place, job)
    tasks = [w for w in place.store.work.tasks(job.job_id) if w.task.task_id not in decided]
    finalists = _finalists(place, job, tasks)
    remarks: list[Remark] = []
    objects = place.objects(request.key.owner)
    with objects.draft() as draft:
        jobs = list(_jobs(place, finalists, draft))
        settings = job.spec.settings.build
        builders = place.machine.builders(settings)
        results = iter(builders.map(work.call, jobs, settings.timeout_s * 2))
        built = []
        for weighted, trials in finalists:
            name = weighted.task.name

            def kept(what: str) -> Built | None:
                return _kept(next(results), f"{name}: {what}", objects, remarks)  # noqa: B023

            default = kept("its plain schedule")
            built.append(
                (
                    weighted.task.task_id,
                    tuple(
                        Finalist(t.candidate.candidate_id, kept("a finalist"), kept("a finalist"))
                        for t in trials
                    ),
                    default,
                )
            )
    return Finalists(tuple(built)), tuple(remarks)


def run_select(place: StageContext, request: StepRequest) -> tuple[Winners, tuple[Remark, ...]]:
    """Measure what was built on the device, and take the best that computes the same. May be
    repeated after a crash: tasks that have a winner keep it."""
    job = _job(request)
    store = place.store
    finalists = result_of(place, request.key.owner, StepKind.BUILD_FINALISTS, Finalists)
    tasks = {w.task.task_id: w for w in store.work.tasks(job.job_id)}
    timeout = job.spec.settings.build.timeout_s
    weights = weights_of(list(tasks.values()), place.pool, timeout)
    done = _decided(place, job)
    remarks: list[Remark] = []
    for index, (task_id, built, default) in enumerate(finalists.of_tasks):
        weighted = tasks[task_id]
        place.tell(
            request.watcher, Progressed(index + 1, len(finalists.of_tasks), weighted.task.name)
        )
        if task_id not in done:
            trials = {t.candidate.candidate_id: t for t in _measured_trials(place, job, weighted)}
            entries = [
                (trials[f.candidate_id], _placed(place, request, f.packed),
                 _placed(place, request, f.checked))
                for f in built
                if f.packed is not None and f.checked is not None and f.candidate_id in trials
            ]  # fmt: skip
            plain = None if default is None else _placed(place, request, default)
            contest = _Contest(weighted, entries, plain, weights[task_id])
            _decide(place, job, contest, len(built), remarks)
    won = sum(winner is not None for winner, _ in store.records.winners(job.job_id).values())
    return Winners(won), tuple(remarks)


def _decided(place: StageContext, job: Job) -> set[str]:
    """The tasks that have a winner, and no trials since then."""
    store = place.store
    return {
        task_id
        for task_id, (_, checks) in store.records.winners(job.job_id).items()
        if (checks or {}).get(_TRIALS) in (None, len(store.records.trials(job.job_id, task_id)))
    }


@dataclass(frozen=True, slots=True)
class _Contest:
    """One task: its finalists with their libraries for measuring and for checking."""

    weighted: WeightedTask
    entries: Sequence[tuple[Trial, Built, Built]]
    default: Built | None
    weights: TaskWeights


def _job(request: StepRequest) -> Job:
    if request.delivery is None or request.delivery.job is None:
        raise InternalError("winners are those of a job")
    return request.delivery.job


def _finalists(
    place: StageContext, job: Job, tasks: Sequence[WeightedTask]
) -> list[tuple[WeightedTask, list[Trial]]]:
    """The fastest trials of each task that are close to its best. A task has one for each percent
    that it has of the network's latency: choosing among them gains some percent of that, and each
    takes half a second."""
    measured = [_measured_trials(place, job, weighted) for weighted in tasks]
    latencies = [
        _latency(trials[0]) * weighted.weight if trials else 0.0
        for weighted, trials in zip(tasks, measured, strict=True)
    ]
    whole = sum(latencies) or 1.0
    most = job.spec.settings.measure.finalists
    found = []
    for weighted, trials, latency in zip(tasks, measured, latencies, strict=True):
        limit = _latency(trials[0]) * _CLOSE if trials else 0.0
        close = [trial for trial in trials if _latency(trial) <= limit]
        # At least two, so that a winner that computes something else has a successor.
        size = min(most, max(2, round(100 * latency / whole)))
        found.append((weighted, (close if len(close) > 1 else trials[:2])[:size]))
    return found


def _measured_trials(place: StageContext, job: Job, weighted: WeightedTask) -> list[Trial]:
    """The measured trials of this job and of earlier ones, the fastest first."""
    task_id = weighted.task.task_id
    trials = {t.candidate.candidate_id: t for t in place.store.records.trials(job.job_id, task_id)}
    for record in known_records(place.store, JobTask(job, weighted.task), Tier.EXACT):
        trial = Trial(record.candidate, -1, record.measurement)
        trials.setdefault(record.candidate.candidate_id, trial)
    return sorted((t for t in trials.values() if t.latency_s is not None), key=_latency)


def _jobs(
    place: StageContext, finalists: Sequence[tuple[WeightedTask, Sequence[Trial]]], draft: str
) -> list[tuple[Any, ...]]:
    """The calls that build a task's plain schedule and each finalist in both forms."""
    target = place.target
    jobs: list[tuple[Any, ...]] = []
    for weighted, trials in finalists:
        program = weighted.task.program
        jobs.append((work.build_default, (program, target, "default", draft)))
        for trial in trials:
            c = trial.candidate
            args = (program, target, c.candidate_id, c.trace, draft)
            jobs += [(work.build_candidate, args), (work.build_checked, args)]
    return jobs


def _kept(outcome: Any, what: str, objects: Blobs, remarks: list[Remark]) -> Built | None:
    """What was built, by the name of its content; the user is told what was not."""
    if isinstance(outcome, Built):
        return replace(outcome, path=objects.put(Path(outcome.path)))
    remarks.append(Remark(f"{what} cannot be built: {outcome.text}", warning=True))
    return None


def _placed(place: StageContext, request: StepRequest, built: Built) -> Built:
    """Where the library lies here."""
    path = object_of(place, request.key.owner, built.path, StepKind.BUILD_FINALISTS)
    return replace(built, path=str(path))


def _decide(
    place: StageContext, job: Job, contest: _Contest, finalists: int, remarks: list[Remark]
) -> None:
    entries, weights = contest.entries, contest.weights
    latencies = _measured(place, job, [p for _, p, _ in entries], weights, remarks)
    order = sorted(range(len(entries)), key=lambda i: latencies[i] or float("inf"))
    rejected: list[tuple[str, Failure]] = []
    winner: Trial | None = None
    task_id = contest.weighted.task.task_id
    trials = len(place.store.records.trials(job.job_id, task_id))
    checks: dict[str, Any] = {"finalists": finalists, "default_s": None, _TRIALS: trials}
    for index in order:
        trial, packed, checked = entries[index]
        latency = latencies[index]
        if latency is None or contest.default is None:
            continue
        check = place.measuring(job.spec.settings.measure).call(
            work.check_output, contest.default, checked, 1, timeout_s=_CHECK_TIMEOUT_S
        )
        if isinstance(check, CallFailure):
            failure = Failure(FailureKind.WRONG_ANSWER, f"check: {check.text}")
            rejected.append((trial.candidate.candidate_id, failure))
            continue
        if check.difference:
            failure = Failure(FailureKind.WRONG_ANSWER, check.difference)
            rejected.append((trial.candidate.candidate_id, failure))
            text = f"{contest.weighted.task.name}: a candidate's {check.difference}"
            remarks.append(Remark(text, warning=True))
            continue
        checks |= {"latency_s": latency, "default_s": check.default_s, "verified": True}
        if check.default_s < max(latency * _DEFAULT_IN_REACH, _ONE_RUN_TELLS_S):
            both = _measured(place, job, [packed, contest.default], weights, remarks)
            checks["default_s"] = both[1]
            if both[0] is None or (both[1] is not None and both[1] <= both[0]):
                break  # the default schedule is at least as fast
        winner = trial
        break
    checks["rejected"] = [[i, f.text] for i, f in rejected]
    place.store.records.select_winner(job.job_id, task_id, winner, checks, rejected)


def _measured(
    place: StageContext, job: Job, built: list[Built], weights: TaskWeights, remarks: list[Remark]
) -> list[float | None]:
    """Latencies of programs measured long and in turn; None for one that failed."""
    if not built:
        return []
    settings = job.spec.settings.measure
    outcome = place.measuring(settings).call(
        work.profile_interleaved,
        built,
        settings,
        weights,
        timeout_s=settings.timeout_s * (1 + len(built)),
    )
    if isinstance(outcome, CallFailure):
        remarks.append(Remark(f"finalists cannot be measured: {outcome.text}", warning=True))
        return [None] * len(built)
    return [m.latency_s if isinstance(m, Measurement) else None for m in outcome]


def _latency(trial: Trial) -> float:
    return trial.latency_s if trial.latency_s is not None else float("inf")
