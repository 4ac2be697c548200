"""Where and when the stages of a run ran, as one JSON value: what `tunefleet timeline` shows."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, takewhile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tunefleet.core.home import SHORTEST_ID, default_home
from tunefleet.core.stage import STAGE_ORDER, StageKey, StageKind, StageSpan
from tunefleet.core.step import StepKey, StepKind, StepSpan
from tunefleet.errors import InputError
from tunefleet.report.timeline import Bar, Timeline, tracks
from tunefleet.scheduler import bounds
from tunefleet.scheduler.durations import LaneName, Replay
from tunefleet.scheduler.values import ROLE_OF, Role

if TYPE_CHECKING:
    from tunefleet.core.job import Job
    from tunefleet.store import Store

SCHEMA = "tunefleet-timeline/2"
#: Seconds without any stage from which on a run counts as interrupted.
PAUSE_S = 60.0
#: Longer than a job takes, in seconds: of one that is older and ran no stage, nothing ran.
_LONGEST_S = 30 * 86_400.0
#: The kind under which a job's steps are counted.
_STEPS = "steps"
#: What has a start and an end, in seconds since the epoch.
_Busy = StageSpan | StepSpan


def run_timeline(run: str, home: Path | str | None = None) -> dict[str, Any]:
    """The timeline of a tuning run, named by the start of its job id or run id.

    All stages and steps (imports, deliveries) of all jobs between the first and the last of the
    run, since they share its resources; what reaches beyond is cut there. Times are seconds of
    tuning since the first: pauses of more than a minute in which nothing ran are cut out and
    listed. Raises InputError for a run that is not known or
    has no stage.
    """
    from tunefleet.store import open_store

    home = Path(home or default_home())
    if not home.is_dir():  # looking must not create a store
        raise InputError(f"no runs in {home}", cure="choose another home")
    store = open_store(home)
    try:
        return build_timeline(store, find_job(store, str(run)))
    finally:
        store.close()


def find_job(store: Store, run: str) -> Job:
    """The one job whose id, or whose run's id, begins so. Raises InputError."""
    from tunefleet.store import each_job

    cure = "see `tunefleet jobs`"
    if len(run) < SHORTEST_ID:
        raise InputError(f"{run!r} is too short for a run", cure=f"give {SHORTEST_ID} characters")
    jobs = store.jobs.page(prefix=run) or [
        job for job in each_job(store.jobs) if _run_id(store, job).startswith(run)
    ]
    if not jobs:
        raise InputError(f"no run {run}", cure=cure)
    if len(jobs) > 1:
        names = ", ".join(job.job_id for job in jobs)
        raise InputError(f"{run} names {len(jobs)} runs: {names}", cure="give more characters")
    return jobs[0]


def _run_id(store: Store, job: Job) -> str:
    return str((store.jobs.summary(job.job_id) or {}).get("run") or "")


def build_timeline(store: Store, job: Job) -> dict[str, Any]:
    """Raises InputError for a job without stages."""
    own: list[_Busy] = [run.span for run in store.work.stages(job.job_id)]
    if not own:
        raise InputError(f"job {job.job_id} has no finished stage", cure="let it tune first")
    own += _steps_of(store, job)
    start, end = min(s.started_at for s in own), max(s.ended_at for s in own)
    stages = store.work.stages_between(start, end)
    steps = {
        other.job_id: [
            s for s in _steps_of(store, other) if s.started_at <= end and s.ended_at >= start
        ]
        for other in _jobs_between(store, start, end, {s.key.job_id for s in stages})
    }
    clock = _TuningClock.of([*stages, *chain.from_iterable(steps.values())], start, end)
    spans = _placed(stages, clock) + _placed_steps(steps, clock)
    spans.sort(key=lambda span: (span.start_s, span.end_s))
    timeline = _timeline(spans)
    return {
        "schema": SCHEMA,
        "job": job.job_id,
        "network": job.spec.network.name,
        "state": str(job.state),
        "started_at": start,
        "tuning_s": timeline.end_s,
        "pauses": clock.to_json(),
        "resources": _resources(timeline),
        "unplaced": sum(not span.resource_id for span in stages),
        "jobs": _jobs(store, job, spans),
        "waiting": _waiting(spans),
        "spans": _spans_to_json(store, spans),
    }


def _jobs_between(store: Store, start: float, end: float, with_stages: set[str]) -> list[Job]:
    """The jobs that may have steps in a window: those `with_stages` in it, and those that were
    opened in it or not long before."""
    from tunefleet.store import each_job

    opened = takewhile(lambda job: job.created_at >= start - _LONGEST_S, each_job(store.jobs))
    jobs = {job.job_id: job for job in opened if job.created_at <= end}
    return [*jobs.values(), *(store.jobs.get(job_id) for job_id in with_stages - set(jobs))]


def without_other_names(timeline: Mapping[str, Any]) -> dict[str, Any]:
    """The timeline for whoever is given the artifact: stages of other jobs keep their places and
    times, and lose the names of their networks and tasks."""
    others = [job["job"] for job in timeline["jobs"] if job["job"] != timeline["job"]]
    names = {job: f"other job {number}" for number, job in enumerate(others, 1)}

    def renamed(value: Mapping[str, Any], hidden: Mapping[str, Any]) -> Mapping[str, Any]:
        name = names.get(value["job"])
        return value if name is None else {**value, **hidden, "job": name}

    jobs = [renamed(job, {"label": names.get(job["job"], "")}) for job in timeline["jobs"]]
    spans = [
        renamed(span, {"task": "", "task_id": "other" if span["task_id"] else ""})
        for span in timeline["spans"]
    ]
    return {**timeline, "jobs": jobs, "spans": spans}


def replay_of(timeline: Mapping[str, Any]) -> Replay:
    """The run's own stages as recorded rounds, for the simulator; only whole rounds count.

    Raises InputError when there is none.
    """
    rounds: dict[LaneName, dict[int, dict[str, float]]] = {}
    for span in timeline["spans"]:
        if span["job"] == timeline["job"] and span["stage"] in STAGE_ORDER:
            lane = rounds.setdefault((span["job"], span["task_id"]), {})
            seconds = lane.setdefault(span["iteration"], {})
            seconds[span["stage"]] = round(span["end_s"] - span["start_s"], 6)
    lanes = {}
    for name, lane in rounds.items():
        whole = [lane[i] for i in sorted(lane) if len(lane[i]) == len(STAGE_ORDER)]
        if whole:
            lanes[name] = tuple((s["select"], s["build"], s["profile"], s["update"]) for s in whole)
    if not lanes:
        raise InputError(f"job {timeline['job']} has no whole round", cure="let it tune longer")
    return Replay(lanes)


@dataclass(frozen=True, slots=True)
class _TuningClock:
    """From seconds since the epoch to seconds of tuning; `pauses` are (start, end) in order."""

    start: float
    end: float
    pauses: tuple[tuple[float, float], ...]

    @classmethod
    def of(cls, spans: Iterable[_Busy], start: float, end: float) -> _TuningClock:
        pauses = []
        busy_until = start
        for span in sorted(spans, key=lambda span: span.started_at):
            if span.started_at - busy_until > PAUSE_S:
                pauses.append((busy_until, span.started_at))
            busy_until = max(busy_until, span.ended_at)
        return cls(start, end, tuple(pauses))

    def __call__(self, time: float) -> float:
        """A time outside the window is that of its edge."""
        inside = min(max(time, self.start), self.end)
        paused_s = sum(end - start for start, end in self.pauses if end <= inside)
        return inside - self.start - paused_s

    def extent(self, span: _Busy) -> tuple[float, float]:
        """Start and end to the microsecond, the start rounded up and the end down: seconds since
        the epoch are no finer than 0.2 µs, and stages that touch must not seem to overlap."""
        start = math.ceil(self(span.started_at) * 1e6) / 1e6
        end = math.floor(self(span.ended_at) * 1e6) / 1e6
        return start, max(start, end)

    def to_json(self) -> list[dict[str, float]]:
        return [
            {"at_s": round(self(end), 6), "seconds": round(end - start, 6)}
            for start, end in self.pauses
        ]


@dataclass(frozen=True, slots=True)
class _Placed:
    """A stage, or a step without a task, on a resource in seconds of tuning; `waited_s` is None
    where nobody can tell."""

    job_id: str
    task_id: str
    iteration: int
    kind: str
    role: Role
    resource_id: str
    attempt: int
    start_s: float
    end_s: float
    waited_s: float | None


def _placed(spans: Sequence[StageSpan], clock: _TuningClock) -> list[_Placed]:
    extents = {span.key: clock.extent(span) for span in spans}
    ends = {key: end for key, (_, end) in extents.items()}
    return [
        _Placed(
            span.key.job_id,
            span.key.task_id,
            span.key.iteration,
            str(span.key.kind),
            ROLE_OF[span.key.kind],
            span.resource_id or str(ROLE_OF[span.key.kind]),
            span.attempt,
            *extents[span.key],
            _waited(span, extents[span.key][0], ends),
        )
        for span in spans
    ]


def _steps_of(store: Store, job: Job) -> list[StepSpan]:
    """When and where the steps of a job ran: as it told when it ended, or as committed so far."""
    told = (store.jobs.summary(job.job_id) or {}).get("steps")
    if told is None:
        owners = [job.job_id, *([job.spec.preparation.id] if job.spec.source is not None else [])]
        spans = [run.span for owner in owners for run in store.work.steps(owner)]
    else:
        spans = [
            StepSpan(
                StepKey(job.job_id, StepKind(s["step"])),
                s["resource"],
                s["attempt"],
                s["started_at"],
                s["seconds"],
            )
            for s in told
        ]
    # A preparation may be older: it was another job's.
    return [span for span in spans if span.started_at >= job.created_at]


def _placed_steps(steps: Mapping[str, Sequence[StepSpan]], clock: _TuningClock) -> list[_Placed]:
    return [
        _Placed(
            job_id,
            "",
            0,
            str(span.key.kind),
            ROLE_OF[span.key.kind],
            span.resource_id or str(ROLE_OF[span.key.kind]),
            span.attempt,
            *clock.extent(span),
            None,
        )
        for job_id, of_job in steps.items()
        for span in of_job
    ]


def _waited(span: StageSpan, start_s: float, ends: Mapping[StageKey, float]) -> float | None:
    """Seconds since the stage before it in its round and the same one of the round before.

    Of a selection nobody knows when its round could have begun, and before a later attempt there
    was not only waiting.
    """
    key = span.key
    if key.kind is StageKind.SELECT or span.attempt > 1:
        return None
    before = STAGE_ORDER[STAGE_ORDER.index(key.kind) - 1]
    ready = ends.get(StageKey(key.job_id, key.task_id, key.iteration, before))
    if ready is None:
        return None
    same = ends.get(StageKey(key.job_id, key.task_id, key.iteration - 1, key.kind), ready)
    return max(0.0, round(start_s - max(ready, same), 6))


def _timeline(spans: Sequence[_Placed]) -> Timeline:
    """Hosts above devices, each by name."""
    devices = {s.resource_id for s in spans if s.role is Role.DEVICE}
    names = sorted({s.resource_id for s in spans}, key=lambda name: (name in devices, name))
    bars = tuple(Bar(s.resource_id, s.job_id, s.kind, s.task_id, s.start_s, s.end_s) for s in spans)
    plain = Timeline(bars, tuple(names))
    slots = {name: len(tracks(row)) for name, row in plain.rows().items()}
    return Timeline(bars, tuple(names), slots=slots)


def _resources(timeline: Timeline) -> list[dict[str, Any]]:
    """`slots` is the most stages that ran there at once, of which utilisation is the share."""
    used = timeline.utilisation()
    return [
        {
            "resource": name,
            "slots": timeline.slots[name],
            "stages": sum(bool(bar.task) for bar in bars),
            "busy_s": round(sum(bar.end_s - bar.start_s for bar in bars), 6),
            "utilisation": used[name],
        }
        for name, bars in timeline.rows().items()
    ]


def _jobs(store: Store, own: Job, spans: Sequence[_Placed]) -> list[dict[str, Any]]:
    """The run's own job first, then the others in the order in which they started."""
    of_jobs: dict[str, list[_Placed]] = {own.job_id: []}
    for span in spans:
        of_jobs.setdefault(span.job_id, []).append(span)
    networks = {job_id: store.jobs.get(job_id).spec.network.name for job_id in of_jobs}
    return [
        {
            "job": job_id,
            "label": f"{networks[job_id]} {job_id[:8]}",
            "stages": {kind: len(of_kind) for kind, of_kind in _by_kind(placed).items()},
            "seconds": {
                kind: round(sum(s.end_s - s.start_s for s in of_kind), 6)
                for kind, of_kind in _by_kind(placed).items()
            },
            "retried": sum(s.attempt > 1 for s in placed),
        }
        for job_id, placed in of_jobs.items()
    ]


def _by_kind(spans: Iterable[_Placed]) -> dict[str, list[_Placed]]:
    kinds = (*(str(kind) for kind in STAGE_ORDER), _STEPS)
    by_kind: dict[str, list[_Placed]] = {kind: [] for kind in kinds}
    for span in spans:
        by_kind[span.kind if span.task_id else _STEPS].append(span)
    return by_kind


def _waiting(spans: Iterable[_Placed]) -> dict[str, float]:
    """Over the stages of which it is known."""
    known = [span.waited_s for span in spans if span.waited_s is not None]
    waiting = bounds.waiting(known)
    return {"stages": len(known), "median_s": waiting.median_s, "p95_s": waiting.p95_s}


def _spans_to_json(store: Store, spans: Sequence[_Placed]) -> list[dict[str, Any]]:
    names = {
        (job_id, weighted.task.task_id): weighted.task.name
        for job_id in {span.job_id for span in spans}
        for weighted in store.work.tasks(job_id)
    }
    return [
        {
            "resource": span.resource_id,
            "job": span.job_id,
            "task_id": span.task_id,
            "task": names.get((span.job_id, span.task_id), span.task_id[:8]),
            "iteration": span.iteration,
            "stage": span.kind,
            "attempt": span.attempt,
            "start_s": span.start_s,
            "end_s": span.end_s,
            "waited_s": span.waited_s,
        }
        for span in spans
    ]
