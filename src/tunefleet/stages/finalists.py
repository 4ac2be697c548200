"""Chooses what each task delivers: the best few are measured again and checked, then one wins."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tunefleet.core.events import Note, Observer, Progressed
from tunefleet.core.identity import Tier
from tunefleet.core.job import Job
from tunefleet.core.task import TaskWeights, WeightedTask
from tunefleet.core.trial import Built, Failure, FailureKind, Measurement, Trial
from tunefleet.stages import work
from tunefleet.stages.runner import Lane, known_records
from tunefleet.stages.weights import weights_of
from tunefleet.store import Store
from tunefleet.workers.machine import Machine
from tunefleet.workers.pool import CallFailure

#: Candidates within this factor of the best may truly be faster; others are not worth the time.
_CLOSE = 1.12
#: A default schedule slower than this many times the winner's latency cannot win.
_DEFAULT_IN_REACH = 3.0
_CHECK_TIMEOUT_S = 120.0


@dataclass(frozen=True, slots=True)
class _Contest:
    """One task: its finalists, each built for measuring and, the task's own way, for checking."""

    weighted: WeightedTask
    finalists: list[Trial]
    packed: list[Built | None]
    checked: list[Built | None]
    default: Built | None


class Finalists:
    """Crowns the winner of every task of a job that has none yet; may be repeated after a crash."""

    def __init__(self, store: Store, machine: Machine, job: Job, observer: Observer) -> None:
        self._store = store
        self._machine = machine
        self._job = job
        self._observer = observer

    def build(self) -> None:
        """Build every task's finalists, with the host's workers."""
        crowned = self._store.winners(self._job.job_id)
        every = self._store.tasks(self._job.job_id)
        timeout = self._job.spec.settings.build.timeout_s
        self._weights = weights_of(every, self._machine.host, timeout)
        tasks = [t for t in every if t.task.task_id not in crowned]
        self._contests = list(self._built([(w, self._finalists(w)) for w in tasks]))

    def crown(self) -> None:
        """Measure what `build` built on the device, and crown the best that computes the same."""
        for index, contest in enumerate(self._contests):
            task = contest.weighted.task
            self._observer(Progressed(index + 1, len(self._contests), task.name))
            self._crown(contest, self._weights[task.task_id])

    def _finalists(self, weighted: WeightedTask) -> list[Trial]:
        """The fastest trials of this job and of earlier ones that are close to the best."""
        task_id = weighted.task.task_id
        found = {t.candidate.candidate_id: t for t in self._store.trials(self._job.job_id, task_id)}
        lane = Lane(self._job, weighted.task)
        for record in known_records(self._store, lane, Tier.EXACT):
            trial = Trial(record.candidate, -1, record.measurement)
            found.setdefault(record.candidate.candidate_id, trial)
        measured = sorted((t for t in found.values() if t.latency_s is not None), key=_latency)
        if not measured:
            return []
        limit = _latency(measured[0]) * _CLOSE
        close = [t for t in measured if _latency(t) <= limit]
        # At least two, so that a winner that computes something else has a successor.
        size = self._job.spec.settings.measure.finalists
        return (close if len(close) > 1 else measured[:2])[:size]

    def _built(self, contests: list[tuple[WeightedTask, list[Trial]]]) -> list[_Contest]:
        scratch, target = str(self._machine.scratch), self._machine.target
        jobs: list[tuple[Any, ...]] = []
        for weighted, finalists in contests:
            program = weighted.task.program
            jobs.append((work.build_default, (program, target, "default", scratch)))
            for trial in finalists:
                c = trial.candidate
                args = (program, target, c.candidate_id, c.trace, scratch)
                jobs += [(work.build_candidate, args), (work.build_checked, args)]
        timeout = self._job.spec.settings.build.timeout_s * 2
        results = iter(self._machine.host.map(work.call, jobs, timeout))
        built: list[_Contest] = []
        for weighted, finalists in contests:
            name = weighted.task.name
            default = self._built_or_told(next(results), f"{name}: its plain schedule")
            pairs = [
                tuple(self._built_or_told(next(results), f"{name}: a finalist") for _ in range(2))
                for _ in finalists
            ]
            packed, checked = [p for p, _ in pairs], [c for _, c in pairs]
            built.append(_Contest(weighted, finalists, packed, checked, default))
        return built

    def _built_or_told(self, outcome: Any, what: str) -> Built | None:
        """What was built; the user is told what was not."""
        if isinstance(outcome, Built):
            return outcome
        self._observer(Note(f"{what} cannot be built: {outcome.text}", warning=True))
        return None

    def _crown(self, contest: _Contest, weights: TaskWeights) -> None:
        entries = [
            (trial, packed, checked)
            for trial, packed, checked in zip(
                contest.finalists, contest.packed, contest.checked, strict=True
            )
            if packed is not None and checked is not None
        ]
        latencies = self._measured([p for _, p, _ in entries], weights)
        order = sorted(range(len(entries)), key=lambda i: latencies[i] or float("inf"))
        rejected: list[tuple[str, Failure]] = []
        winner: Trial | None = None
        checks: dict[str, Any] = {"finalists": len(contest.finalists), "default_s": None}
        for index in order:
            trial, packed, checked = entries[index]
            latency = latencies[index]
            if latency is None or contest.default is None:
                continue
            check = self._machine.device.call(
                work.check_output, contest.default, checked, 1, timeout_s=_CHECK_TIMEOUT_S
            )
            if isinstance(check, CallFailure):
                failure = Failure(FailureKind.WRONG_ANSWER, f"check: {check.text}")
                rejected.append((trial.candidate.candidate_id, failure))
                continue
            if check.difference:
                failure = Failure(FailureKind.WRONG_ANSWER, check.difference)
                rejected.append((trial.candidate.candidate_id, failure))
                self._observer(
                    Note(f"{contest.weighted.task.name}: a candidate's {check.difference}", True)
                )
                continue
            checks |= {"latency_s": latency, "default_s": check.default_s, "verified": True}
            if check.default_s < latency * _DEFAULT_IN_REACH:
                both = self._measured([packed, contest.default], weights)
                checks["default_s"] = both[1]
                if both[0] is None or (both[1] is not None and both[1] <= both[0]):
                    break  # the default schedule is at least as fast
            winner = trial
            break
        checks["rejected"] = [[i, f.text] for i, f in rejected]
        self._store.crown(self._job.job_id, contest.weighted.task.task_id, winner, checks, rejected)

    def _measured(self, built: list[Built], weights: TaskWeights) -> list[float | None]:
        """Latencies of programs measured long and in turn; None for one that failed."""
        if not built:
            return []
        settings = self._job.spec.settings.measure
        outcome = self._machine.device.call(
            work.profile_interleaved,
            built,
            settings,
            weights,
            timeout_s=settings.timeout_s * (1 + len(built)),
        )
        if isinstance(outcome, CallFailure):
            self._observer(Note(f"finalists cannot be measured: {outcome.text}", warning=True))
            return [None] * len(built)
        return [m.latency_s if isinstance(m, Measurement) else None for m in outcome]


def _latency(trial: Trial) -> float:
    return trial.latency_s if trial.latency_s is not None else float("inf")
