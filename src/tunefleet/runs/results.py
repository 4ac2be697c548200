"""The result of a run as one JSON value: what `--json`, the artifact and the report contain."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tunefleet.core.forms import is_winograd
from tunefleet.core.job import Job
from tunefleet.core.stage import ProfileResult, StageKind
from tunefleet.core.target import Target
from tunefleet.core.task import WeightedTask
from tunefleet.core.trial import Failure, Trial

if TYPE_CHECKING:
    from tunefleet.runs.context import BenchmarkContext
    from tunefleet.stages.comparison import Comparison
    from tunefleet.stages.network_work import PreparedNetwork
    from tunefleet.store import Store

SCHEMA = "tunefleet-result/2"

#: How many times as long one way of measuring a network may say it takes as another. On a quiet
#: machine they were within 0.95 and 1.4 of each other: caches are cold in one, warm in another.
_CONTRADICTS = 1.6
#: A network of a few kernels takes this long to be called.
_LEAST_GAP_MS = 0.05
#: Different texts of one kind of failure that are kept.
_MOST_TEXTS = 3


def build_result(
    *,
    context: BenchmarkContext,
    prepared: PreparedNetwork,
    machine_target: Target,
    store: Store | None,
    job: Job | None,
    resumed: bool,
    stopped: str,
    delivered: str,
    why_plain: str,
    difference: float | None,
    comparisons: Sequence[Comparison],
    kernels: dict[str, float],
    peak_gflops: float | None,
    artifact: Path | None,
) -> dict[str, Any]:
    """Whatever is known by now; what is not is None."""
    from tunefleet.compiler.toolchain import toolchain_identity
    from tunefleet.hardware.processor import device_identity

    info = prepared.info
    trials = store.trials(job.job_id) if store and job else []
    wall = _wall(context, store, job)
    value: dict[str, Any] = {
        "schema": SCHEMA,
        "run": context.run_id,
        "job": job.job_id if job else None,
        "resumed": resumed,
        "network": {
            "name": info.name,
            "source": info.source,
            "digest": info.digest,
            "inputs": [str(t) for t in info.inputs],
            "outputs": [str(t) for t in info.outputs],
        },
        "target": str(machine_target),
        "threads": machine_target.threads,
        "device": device_identity(context.device_key).to_json(),
        "toolchain": toolchain_identity().to_json(),
        "budget": _budget(job),
        "stopped": stopped,
        "trials": len(trials),
        "failures": failures_by_kind(trials),
        "failure_texts": failure_texts(trials),
        "wall_s": sum(wall.values()),
        "wall": wall,
        "errands": [errand.to_json() for errand in context.errands],
        "delivered": delivered or None,
        "why_plain": why_plain or None,
        "verified": difference is not None and delivered == "tuned",
        "difference": {"plain": prepared.difference, "tuned": difference},
        "tolerance": prepared.tolerance,
        "peak_gflops": peak_gflops,
        "kernels_ms": sum(kernels.values()) * 1e3 if kernels else None,
        "tuned_ms": None,
        "speedup": None,
        "baselines": [],
        "warnings": list(prepared.caveats),
        "outside": prepared.tasked.outside(kernels),
        "artifact": str(artifact) if artifact else None,
        "report": str(artifact / "report.html") if artifact else None,
    }
    if comparisons:
        from tunefleet.stages.comparison import told

        framework = prepared.tasked.variants[0].reference.framework
        shapes = [
            told(comparison, framework, [str(t) for t in signature.inputs])
            for comparison, signature in zip(comparisons, info.signatures, strict=True)
        ]
        disturbed = [warning for shape in shapes for warning in shape["warnings"]]
        value |= shapes[0]
        value["warnings"] = list(dict.fromkeys([*prepared.caveats, *disturbed]))
        if len(shapes) > 1:
            value["shapes"] = shapes
    if store and job:
        value["warnings"] += _troubles(prepared.tasked.tasks, store, job)
        rows = _task_rows(prepared.tasked.tasks, store, job, peak_gflops)
        value["tasks"] = rows
        value["warnings"] += contradictions(value)
        value["reused"] = sum(1 for row in rows if row["source"] == "reused")
        value["curve"] = tuning_curve(store, job)
    return value


def contradictions(result: Mapping[str, Any]) -> list[str]:
    """A warning where the latency end to end, that of all kernels one by one and that of all tasks
    in the search lie so far apart that one of them must have been disturbed."""
    rows = result["tasks"]
    found = {"end to end": (result["tuned_ms"] or {}).get("median")}
    if result["outside"] is None:
        found["by its kernels one by one"] = result["kernels_ms"]
        if all(row["latency_us"] for row in rows):
            found["by its tasks in the search"] = sum(
                row["latency_us"] * row["weight"] / 1e3 for row in rows
            )
    known = {how: ms for how, ms in found.items() if ms}
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


def search_failed(result: Mapping[str, Any]) -> str:
    """Why a search found nothing: no trial was made, or every one failed; "" where it did find."""
    if not result.get("tasks") or result.get("reused"):
        return ""
    trials, failures = result.get("trials"), result.get("failures") or {}
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


def _wall(context: BenchmarkContext, store: Store | None, job: Job | None) -> dict[str, float]:
    """Seconds by stage; `other` is what the tune step took beyond its stages."""
    wall = {k: v for k, v in context.seconds.items() if k != "tune"}
    if store and job:
        stages = {str(kind): 0.0 for kind in StageKind}
        for run in store.stages(job.job_id):
            stages[str(run.key.kind)] += run.seconds
        wall |= stages
        # The stages of an earlier, interrupted process are in the store, its overhead is not.
        wall["other"] = max(0.0, context.seconds.get("tune", 0.0) - sum(stages.values()))
    return wall


def _task_rows(
    tasks: list[WeightedTask], store: Store, job: Job, peak_gflops: float | None
) -> list[dict[str, Any]]:
    winners = store.winners(job.job_id)
    rows: list[dict[str, Any]] = []
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
                "winograd": winner is not None and is_winograd(winner.candidate.trace),
            }
        )
    # A kernel that is faster than the measured peak shows that the peak was measured too low, but
    # Winograd's does fewer operations than its task counts.
    every = [row for row in rows if not row["winograd"]]
    peak = max([peak_gflops or 0.0, *(r["gflops"] or 0.0 for r in every)])
    for row in rows:
        known = peak_gflops and row["gflops"] and not row["winograd"]
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
        found = [m.latency_s for _, m, _ in run.result.measured]
        if found:
            task_id = run.key.task_id
            best[task_id] = min([*found, best.get(task_id, float("inf"))])
        total = sum(best[i] * w for i, w in weights.items()) if len(best) == len(weights) else None
        points.append(
            {
                "trials": trials,
                "wall_s": seconds,
                "latency_ms": total * 1e3 if total is not None else None,
            }
        )
    return points


def records_used(store: Store | None, job: Job) -> list[dict[str, Any]]:
    """The winning record of each tuned task, as the artifact keeps them: for TVM alone too."""
    if store is None:
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
