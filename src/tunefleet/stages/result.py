"""The result of a run as one JSON value: what `--json`, the artifact and the report contain. It is
made of what stages and steps committed, and of nothing else."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, TypeVar

from tunefleet.artifacts.artifact import REPORT
from tunefleet.core.forms import has_peak_of_floats, intrinsic_of, is_winograd
from tunefleet.core.identity import Tier
from tunefleet.core.job import Job
from tunefleet.core.stage import ProfileResult, StageKind
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
from tunefleet.core.trial import Failure, Trial
from tunefleet.errors import InternalError
from tunefleet.stages.importing import outside
from tunefleet.stages.measure import told
from tunefleet.stages.place import Delivery, Workplace
from tunefleet.stages.steering import remarks
from tunefleet.store import Store

R = TypeVar("R", bound=StepResult)

SCHEMA = "tunefleet-result/3"

#: How many times as long one way of measuring a network may say it takes as another. On a quiet
#: machine they were within 0.95 and 1.4 of each other: caches are cold in one, warm in another.
_CONTRADICTS = 1.6
#: A network of a few kernels takes this long to be called.
_LEAST_GAP_MS = 0.05
#: Different texts of one kind of failure that are kept.
_MOST_TEXTS = 3


def build_result(place: Workplace, delivery: Delivery) -> dict[str, Any]:
    """Whatever is committed by now of a run; what is not is None."""
    store, job, preparation = place.store, delivery.job, delivery.preparation
    prepared = {run.key.kind: run for run in store.steps(preparation.id)}
    steps = prepared | {run.key.kind: run for run in store.steps(delivery.run_id)}
    imported = _result(steps, StepKind.IMPORT, Imported)
    checked = _result(steps, StepKind.CHECK, Checked)
    if imported is None or checked is None:
        raise InternalError("there is no result of a network that was not checked")
    verified = _result(steps, StepKind.VERIFY, Verified)
    measured = _result(steps, StepKind.MEASURE, Measured)
    artifact = _artifact(place, delivery) if StepKind.PUBLISH in steps else None
    info, target = imported.info, preparation.target
    trials = store.trials(job.job_id) if job else []
    wall = _wall(steps.values(), store, job)
    kernels = measured.kernels if measured else {}
    peak = measured.peak_gflops if measured else checked.peak_gflops
    warnings = [*_of_import(steps, warnings=True), *checked.caveats]
    value: dict[str, Any] = {
        "schema": SCHEMA,
        "run": delivery.run_id,
        "job": job.job_id if job else None,
        "resumed": delivery.resumed,
        "network": {
            "name": info.name,
            "source": info.source,
            "digest": info.digest,
            "inputs": [str(t) for t in info.inputs],
            "outputs": [str(t) for t in info.outputs],
        },
        "target": str(target),
        "threads": target.threads,
        "device": preparation.device.to_json(),
        "toolchain": preparation.toolchain.to_json(),
        "budget": _budget(job),
        "stopped": delivery.stopped,
        "trials": len(trials),
        "failures": failures_by_kind(trials),
        "failure_texts": failure_texts(trials),
        "wall_s": sum(wall.values()),
        "wall": wall,
        "steps": [_told_step(run) for run in sorted(steps.values(), key=lambda r: r.started_at)],
        "delivered": verified.delivered if verified else None,
        "why_plain": (verified.why_plain or None) if verified else None,
        "verified": verified is not None and verified.delivered == "tuned",
        "difference": {
            "plain": checked.difference,
            "tuned": verified.difference if verified else None,
        },
        "tolerance": checked.tolerance,
        "difference_measure": checked.measure,
        "peak_gflops": peak,
        "kernels_ms": sum(kernels.values()) * 1e3 if kernels else None,
        "tuned_ms": None,
        "speedup": None,
        "baselines": [],
        "notes": _of_import(steps, warnings=False),
        "warnings": warnings,
        "outside": outside(imported.segments, imported.flops, kernels),
        "artifact": str(artifact) if artifact else None,
        "report": str(artifact / REPORT) if artifact else None,
    }
    if measured is not None and measured.comparisons:
        shapes = [
            told(comparison, imported.framework, [str(t) for t in signature.inputs])
            for comparison, signature in zip(measured.comparisons, info.signatures, strict=True)
        ]
        disturbed = [warning for shape in shapes for warning in shape["warnings"]]
        value |= shapes[0]
        value["warnings"] = list(dict.fromkeys([*warnings, *disturbed]))
        if len(shapes) > 1:
            value["shapes"] = shapes
    if job:
        tasks = list(imported.tasks)
        value["notes"] += remarks(place.models, job.spec, [weighted.task for weighted in tasks])
        value["warnings"] += _troubles(tasks, store, job)
        rows = _task_rows(tasks, store, job, peak)
        value["tasks"] = rows
        value["warnings"] += contradictions(value)
        value["reused"] = sum(1 for row in rows if row["source"] == "reused")
        value["known"] = sum(_is_known(weighted.task.task_id, store, job) for weighted in tasks)
        value["curve"] = tuning_curve(store, job)
    return value


def _result(steps: Mapping[StepKind, StepRun], kind: StepKind, expected: type[R]) -> R | None:
    run = steps.get(kind)
    return run.result if run is not None and isinstance(run.result, expected) else None


def _of_import(steps: Mapping[StepKind, StepRun], *, warnings: bool) -> list[str]:
    """What the import said of the network: what was changed in it, and what that lost."""
    run = steps.get(StepKind.IMPORT)
    return [remark.text for remark in run.remarks if remark.warning == warnings] if run else []


def _told_step(run: StepRun) -> dict[str, Any]:
    """When and where a step ran; `started_at` in seconds since the epoch."""
    return {
        "step": str(run.key.kind),
        "resource": run.resource_id,
        "attempt": run.attempt,
        "started_at": run.started_at,
        "seconds": run.seconds,
    }


def _artifact(place: Workplace, delivery: Delivery) -> Path:
    return place.home.artifacts / delivery.run_id


def contradictions(result: Mapping[str, Any]) -> list[str]:
    """A warning where the latency end to end, that of all kernels one by one and that of all tasks
    in the search lie so far apart that one of them must have been disturbed."""
    rows = result["tasks"]
    latencies = {"end to end": (result["tuned_ms"] or {}).get("median")}
    if result["outside"] is None:
        latencies["by its kernels one by one"] = result["kernels_ms"]
        if all(row["latency_us"] for row in rows):
            latencies["by its tasks in the search"] = sum(
                row["latency_us"] * row["weight"] / 1e3 for row in rows
            )
    known = {how: ms for how, ms in latencies.items() if ms}
    if len(known) < 2:
        return []
    least, most = min(known.values()), max(known.values())
    if most < _CONTRADICTS * least or most - least < _LEAST_GAP_MS:
        return []
    told = ", ".join(f"{ms:.3g} ms {how}" for how, ms in known.items())
    return [f"one inference takes {told}: these do not fit together, measure on a quiet machine"]


def _troubles(tasks: list[WeightedTask], store: Store, job: Job) -> list[str]:
    """What selecting candidates and fitting the cost model failed by: the search went on."""
    names = {t.task.task_id: t.task.name for t in tasks}
    told = Counter(
        f"{names.get(run.key.task_id, run.key.task_id)}: {run.key.kind}: {run.note}"
        for run in store.stages(job.job_id)
        if run.note and run.key.kind in (StageKind.SELECT, StageKind.UPDATE)
    )
    return list(told)


def failures_by_kind(trials: list[Trial]) -> dict[str, int]:
    counts: dict[str, int] = {}
    for trial in trials:
        if isinstance(trial.outcome, Failure):
            kind = str(trial.outcome.kind)
            counts[kind] = counts.get(kind, 0) + 1
    return counts


def failure_texts(trials: list[Trial]) -> dict[str, list[list[Any]]]:
    """What failed trials of each kind said most often, each with how many said it."""
    said: dict[str, Counter[str]] = {}
    for trial in trials:
        if isinstance(trial.outcome, Failure):
            said.setdefault(str(trial.outcome.kind), Counter())[trial.outcome.text] += 1
    return {
        kind: [[text, count] for text, count in texts.most_common(_MOST_TEXTS)]
        for kind, texts in said.items()
    }


def _is_known(task_id: str, store: Store, job: Job) -> bool:
    """Whether programs of a task were measured that the job starts from."""
    spec = job.spec
    if not spec.settings.transfer:
        return False
    return bool(store.records(task_id, spec.device, spec.toolchain, tier=Tier.EXACT, limit=1))


def search_failed(result: Mapping[str, Any]) -> str:
    """Why a search found nothing: no trial was made, or every one failed; "" where it did find. It
    did not fail where earlier jobs had tried every program."""
    if not result.get("tasks") or result.get("reused"):
        return ""
    trials, failures = result.get("trials"), result.get("failures") or {}
    if not trials and result.get("known"):
        return ""
    if not trials:
        return f"no program could be tried: {result.get('stopped') or 'none was selected'}"
    if sum(failures.values()) < trials:
        return ""
    kind = max(failures, key=lambda k: int(failures[k]))
    text = result["failure_texts"][kind][0][0]
    return f"all {trials} trials failed, most often by {kind.replace('_', ' ')}: {text}"


def _budget(job: Job | None) -> dict[str, Any] | None:
    if job is None:
        return None
    budget = job.spec.budget
    return {
        "trials": budget.trials,
        "seconds": budget.seconds,
        "target_latency_s": budget.target_latency_s,
    }


def _wall(steps: Iterable[StepRun], store: Store, job: Job | None) -> dict[str, float]:
    """Seconds by stage and step; `other` is what the search took beyond its stages."""
    wall = {str(run.key.kind): run.seconds for run in steps}
    if job:
        stages = {str(kind): 0.0 for kind in StageKind}
        for run in store.stages(job.job_id):
            stages[str(run.key.kind)] += run.seconds
        elapsed_s = next(j.elapsed_s for j in store.jobs() if j.job_id == job.job_id)
        wall |= stages
        wall["other"] = max(0.0, elapsed_s - sum(stages.values()))
    return wall


def _task_rows(
    tasks: list[WeightedTask], store: Store, job: Job, peak_gflops: float | None
) -> list[dict[str, Any]]:
    winners = store.winners(job.job_id)
    rows: list[dict[str, Any]] = []
    beyond: set[str] = set()
    for weighted in tasks:
        task = weighted.task
        trials = store.trials(job.job_id, task.task_id)
        winner, checks = winners.get(task.task_id, (None, None))
        checks = checks or {}
        latency = checks.get("latency_s") if winner else checks.get("default_s")
        source = "default"
        if winner is not None:
            own = {t.candidate.candidate_id for t in trials}
            source = "tuned" if winner.candidate.candidate_id in own else "reused"
        gflops = task.flops / latency / 1e9 if latency else None
        trace = winner.candidate.trace if winner is not None else ""
        if not has_peak_of_floats(trace):
            beyond.add(task.task_id)
        rows.append(
            {
                "task_id": task.task_id,
                "name": task.name,
                "shapes": task.shapes,
                "weight": weighted.weight,
                "flops": task.flops,
                "trials": len(trials),
                "failed": sum(isinstance(t.outcome, Failure) for t in trials),
                "latency_us": latency * 1e6 if latency else None,
                "gflops": gflops,
                "source": source,
                "winograd": is_winograd(trace),
                "intrinsic": intrinsic_of(trace),
            }
        )
    # A kernel that is faster than the measured peak shows that the peak was measured too low.
    within = [row for row in rows if row["task_id"] not in beyond]
    peak = max([peak_gflops or 0.0, *(r["gflops"] or 0.0 for r in within)])
    for row in rows:
        known = peak_gflops and row["gflops"] and row["task_id"] not in beyond
        row["peak_share"] = row["gflops"] / peak if known else None
    total = sum((r["latency_us"] or 0.0) * r["weight"] for r in rows) or 1.0
    for row in rows:
        row["network_share"] = (row["latency_us"] or 0.0) * row["weight"] / total
    return rows


def tuning_curve(store: Store, job: Job) -> list[dict[str, Any]]:
    """After each profile stage: trials and stage seconds so far, and the tasks' summed latency.

    The sum is None until every task has a measurement of this job.
    """
    weights = {t.task.task_id: t.weight for t in store.tasks(job.job_id)}
    best: dict[str, float] = {}
    points: list[dict[str, Any]] = []
    trials, seconds = 0, 0.0
    for run in store.stages(job.job_id):
        seconds += run.seconds
        if not isinstance(run.result, ProfileResult):
            trials += len(getattr(run.result, "failed", ()))
            continue
        trials += len(run.result.measured) + len(run.result.failed)
        latencies = [p.measurement.latency_s for p in run.result.measured]
        if latencies:
            task_id = run.key.task_id
            best[task_id] = min([*latencies, best.get(task_id, float("inf"))])
        total = sum(best[i] * w for i, w in weights.items()) if len(best) == len(weights) else None
        points.append(
            {
                "trials": trials,
                "wall_s": seconds,
                "latency_ms": total * 1e3 if total is not None else None,
            }
        )
    return points


def records_used(store: Store, job: Job | None) -> list[dict[str, Any]]:
    """The winning record of each tuned task, as the artifact keeps them: for TVM alone too."""
    if job is None:
        return []
    from tunefleet.compiler.code.replay import completed

    tasks = {t.task.task_id: t.task for t in store.tasks(job.job_id)}
    used = []
    for task_id, (winner, checks) in sorted(store.winners(job.job_id).items()):
        if winner is None:
            continue
        latencies = getattr(winner.outcome, "latencies_s", ())
        task, trace = tasks[task_id], winner.candidate.trace
        used.append(
            {
                "schema": "tunefleet-record/1",
                "task_id": task_id,
                "name": task.name,
                "shapes": task.shapes,
                "target": str(job.spec.target),
                "device": job.spec.device.exact,
                "toolchain": job.spec.toolchain.exact,
                "candidate_id": winner.candidate.candidate_id,
                "trace": completed(task.program, job.spec.target, trace),
                "latencies_s": list(latencies),
                "checks": checks,
            }
        )
    return used
