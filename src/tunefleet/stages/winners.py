"""The two steps that choose what each task delivers: the best few are built again, then measured in
turn and checked on the device, and one wins."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from tunefleet.artifacts.blobs import Blobs, LostBlobError
from tunefleet.core.events import Progressed
from tunefleet.core.identity import Tier
from tunefleet.core.job import Job
from tunefleet.core.stage import StageKey, StageKind
from tunefleet.core.step import Finalist, Finalists, Remark, StepKey, StepKind, Winners
from tunefleet.core.target import Target
from tunefleet.core.task import TaskWeights, WeightedTask
from tunefleet.core.trial import Built, Failure, FailureKind, Measurement, Trial
from tunefleet.errors import InternalError
from tunefleet.stages import work
from tunefleet.stages.build import kept
from tunefleet.stages.place import JobTask, StageContext, StepRequest, Workplace
from tunefleet.stages.prepared import object_of, result_of
from tunefleet.stages.profile import built_in, closest, latency_of
from tunefleet.stages.records import known_records
from tunefleet.stages.weights import weights_of
from tunefleet.workers.pool import CallFailure

#: A default schedule whose one run took this many times the winner's latency cannot win.
_DEFAULT_IN_REACH = 1.5
#: One run tells the latency of a default schedule that takes longer: of a shorter one it tells
#: mostly how long a call takes.
_ONE_RUN_TELLS_S = 5e-3
_CHECK_TIMEOUT_S = 120.0
#: Share of a budget in seconds for the choice among finalists, and the seconds that one takes
#: besides its runs.
_SHARE, _FINALIST_S = 0.02, 0.25
#: Trials that are tried where all finalists compute something else, or cannot be built again.
_SUCCESSORS = 3
#: In the checks of a winner: how many trials of its task there were. Earlier versions do not say.
_TRIALS = "trials"


def run_build(place: StageContext, request: StepRequest) -> tuple[Finalists, tuple[Remark, ...]]:
    """Build the plain schedule of every task that has no winner yet, and those of its finalists
    that are not there, with the host's workers."""
    job = _job(request)
    decided = _decided(place, job)
    tasks = [w for w in place.store.work.tasks(job.job_id) if w.task.task_id not in decided]
    finalists = _finalists(place, job, tasks)
    there = {w.task.task_id: _there(place, job, w, trials) for w, trials in finalists}
    remarks: list[Remark] = []
    objects = place.objects(request.key.owner)
    with objects.draft() as draft:
        jobs: list[tuple[Any, ...]] = []
        for weighted, trials in finalists:
            task = weighted.task
            jobs.append((work.build_default, (task.program, place.target, "default", draft)))
            missing = (t for t in trials if t.candidate.candidate_id not in there[task.task_id])
            jobs += [_call_of(task.program, place.target, trial, draft) for trial in missing]
        settings = job.spec.settings.build
        builders = place.machine.builders(settings)
        results = iter(builders.map(work.call, jobs, settings.timeout_s * 3))
        built = []
        for weighted, trials in finalists:
            task_id, name = weighted.task.task_id, weighted.task.name
            default = _kept(next(results), f"{name}: its plain schedule", objects, remarks)
            entries = []
            for trial in trials:
                candidate_id = trial.candidate.candidate_id
                own = there[task_id].get(candidate_id)
                if own is None:
                    own = _kept(next(results), f"{name}: a finalist", objects, remarks)
                entries.append(Finalist(candidate_id, own))
            built.append((task_id, tuple(entries), default))
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
                (trials[f.candidate_id], _placed(place, request, f.built))
                for f in built
                if f.built is not None and f.candidate_id in trials
            ]
            plain = None if default is None else _placed(place, request, default)
            tried = {trial.candidate.candidate_id for trial, _ in entries}
            others = [trial for name, trial in trials.items() if name not in tried]
            contest = _Contest(weighted, entries, plain, weights[task_id], others[:_SUCCESSORS])
            _decide(place, job, contest, request, remarks)
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


_Entry = tuple[Trial, Built]


@dataclass(frozen=True, slots=True)
class _Contest:
    """One task: its finalists with their libraries, and the trials after them."""

    weighted: WeightedTask
    entries: Sequence[_Entry]
    default: Built | None
    weights: TaskWeights
    others: Sequence[Trial]


def _job(request: StepRequest) -> Job:
    if request.delivery is None or request.delivery.job is None:
        raise InternalError("winners are those of a job")
    return request.delivery.job


def _finalists(
    place: StageContext, job: Job, tasks: Sequence[WeightedTask]
) -> list[tuple[WeightedTask, list[Trial]]]:
    """The fastest trials of each task that are close to its best. Beyond the first a task has at
    most one for each percent that it has of the network's latency, since choosing among them gains
    some percent of that, and its part of those that the budget has time for."""
    measured = [_measured_trials(place, job, weighted) for weighted in tasks]
    latencies = [
        latency_of(trials[0]) * weighted.weight if trials else 0.0
        for weighted, trials in zip(tasks, measured, strict=True)
    ]
    whole = sum(latencies) or 1.0
    settings, seconds = job.spec.settings.measure, job.spec.budget.seconds
    found = []
    for weighted, trials, latency in zip(tasks, measured, latencies, strict=True):
        best_s = latency_of(trials[0]) if trials else 0.0
        in_all = 100.0
        if seconds is not None:
            takes_s = _FINALIST_S + settings.final_repeats * best_s
            in_all = min(in_all, seconds * _SHARE / takes_s)
        most = 1 + round(in_all * latency / whole)
        found.append((weighted, closest(trials, settings)[:most]))
    return found


def _measured_trials(place: StageContext, job: Job, weighted: WeightedTask) -> list[Trial]:
    """The measured trials of this job and of earlier ones, the fastest first."""
    task_id = weighted.task.task_id
    trials = {t.candidate.candidate_id: t for t in place.store.records.trials(job.job_id, task_id)}
    for record in known_records(place.store, JobTask(job, weighted.task), Tier.EXACT):
        trial = Trial(record.candidate, -1, record.measurement)
        trials.setdefault(record.candidate.candidate_id, trial)
    return sorted((t for t in trials.values() if t.latency_s is not None), key=latency_of)


def _there(
    place: StageContext, job: Job, weighted: WeightedTask, trials: Sequence[Trial]
) -> dict[str, Built]:
    """What the search built of some trials and has kept. What earlier versions built does not say
    how its weights are packed, nor where its code is."""
    objects = place.objects(job.job_id)
    key = StageKey(job.job_id, weighted.task.task_id, 0, StageKind.BUILD)
    rounds = {trial.iteration for trial in trials if trial.iteration >= 0}
    built = built_in(place, key, rounds)
    return {each.candidate_id: each for each in built if each.code and objects.has(each.path)}


def _call_of(program: str, target: Target, trial: Trial, draft: str) -> tuple[Any, ...]:
    candidate = trial.candidate
    args = (program, target, candidate.candidate_id, candidate.trace, draft)
    return work.build_candidate, args


def _kept(outcome: Any, what: str, objects: Blobs, remarks: list[Remark]) -> Built | None:
    """What was built, its files by the names of their content; a remark names what was not."""
    if isinstance(outcome, Built):
        return kept(outcome, objects)
    remarks.append(Remark(f"{what} cannot be built: {outcome.text}", warning=True))
    return None


def codes_of(place: Workplace, owner: str, job: Job) -> dict[str, Path]:
    """The object files of winners, by task, where these are kept."""
    run = place.store.work.step(StepKey(owner, StepKind.BUILD_FINALISTS))
    if run is None or not isinstance(run.result, Finalists):
        return {}
    winners = place.store.records.winners(job.job_id)
    found = {}
    for task_id, own, _ in run.result.of_tasks:
        winner, _ = winners.get(task_id, (None, None))
        for each in own:
            won = winner is not None and each.candidate_id == winner.candidate.candidate_id
            if won and each.built is not None and each.built.code:
                with suppress(LostBlobError):
                    found[task_id] = place.objects(owner).path(each.built.code)
    return found


def _placed(place: StageContext, request: StepRequest, built: Built) -> Built:
    """Where the library lies here."""
    path = object_of(place, request.key.owner, built.path, StepKind.BUILD_FINALISTS)
    return replace(built, path=str(path))


def _decide(
    place: StageContext, job: Job, contest: _Contest, request: StepRequest, remarks: list[Remark]
) -> None:
    entries, default = contest.entries, contest.default
    task_id = contest.weighted.task.task_id
    trials = len(place.store.records.trials(job.job_id, task_id))
    checks: dict[str, Any] = {"finalists": len(entries), "default_s": None, _TRIALS: trials}
    rejected: list[tuple[str, Failure]] = []
    winner: Trial | None = None
    if default is not None:
        latencies: list[float | None] = [None]
        if len(entries) > 1:  # a single one is measured once it is known to compute the same
            latencies = _measured(place, job, contest, [built for _, built in entries], remarks)
        order = sorted(range(len(entries)), key=lambda i: latencies[i] or float("inf"))
        tried = [i for i in order if len(entries) == 1 or latencies[i] is not None]
        ranked = [(entries[i], latencies[i]) for i in tried]
        winner = _first_right(place, job, contest, ranked, checks, rejected, remarks)
        if winner is None and contest.others and len(rejected) == len(ranked):
            with place.objects(request.key.owner).draft() as draft:
                built = [(e, None) for e in _built_now(place, job, contest, draft)]
                winner = _first_right(place, job, contest, built, checks, rejected, remarks)
    checks["rejected"] = [[i, f.text] for i, f in rejected]
    place.store.records.select_winner(job.job_id, task_id, winner, checks, rejected)


def _built_now(place: StageContext, job: Job, contest: _Contest, draft: str) -> list[_Entry]:
    """The trials after the finalists, built here: that all of these are wrong is rare."""
    settings = job.spec.settings.build
    program = contest.weighted.task.program
    jobs = [_call_of(program, place.target, trial, draft) for trial in contest.others]
    outcomes = place.machine.builders(settings).map(work.call, jobs, settings.timeout_s * 3)
    pairs = zip(contest.others, outcomes, strict=True)
    return [(trial, outcome) for trial, outcome in pairs if isinstance(outcome, Built)]


def _first_right(
    place: StageContext,
    job: Job,
    contest: _Contest,
    ranked: Sequence[tuple[_Entry, float | None]],
    checks: dict[str, Any],
    rejected: list[tuple[str, Failure]],
    remarks: list[Remark],
) -> Trial | None:
    """The first entry that computes the same as the default schedule and is faster; None where the
    default wins, or all compute something else. Entries have their latencies where these are known.
    """
    default = contest.default
    assert default is not None
    for (trial, built), latency in ranked:
        check = place.measuring(job.spec.settings.measure).call(
            work.check_output, default, built, 1, timeout_s=_CHECK_TIMEOUT_S
        )
        if isinstance(check, CallFailure) or check.difference:
            why = f"check: {check.text}" if isinstance(check, CallFailure) else check.difference
            rejected.append((trial.candidate.candidate_id, Failure(FailureKind.WRONG_ANSWER, why)))
            if not isinstance(check, CallFailure):
                text = f"{contest.weighted.task.name}: a candidate's {why}"
                remarks.append(Remark(text, warning=True))
            continue
        likely_s = latency if latency is not None else latency_of(trial)
        in_reach = check.default_s < max(likely_s * _DEFAULT_IN_REACH, _ONE_RUN_TELLS_S)
        default_s: float | None = check.default_s
        if latency is None or in_reach:
            pair = [built, default] if in_reach else [built]
            both = _measured(place, job, contest, pair, remarks)
            latency, default_s = both[0], both[-1] if in_reach else default_s
        checks |= {"latency_s": latency, "default_s": default_s, "verified": True}
        if latency is None or (default_s is not None and default_s <= latency):
            return None  # the default schedule is at least as fast
        return trial
    return None


def _measured(
    place: StageContext, job: Job, contest: _Contest, built: list[Built], remarks: list[Remark]
) -> list[float | None]:
    """Latencies of programs measured in turn, long where several finalists are close; None for one
    that failed."""
    if not built:
        return []
    settings, weights = job.spec.settings.measure, contest.weights
    if len(contest.entries) == 1:
        settings = replace(settings, final_repeats=min(settings.repeats, settings.final_repeats))
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
