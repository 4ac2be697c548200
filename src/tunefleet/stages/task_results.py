"""The tasks of a run after its search: their winners, their shares, and the machine's limits."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from tunefleet.core.forms import has_peak_of_floats, intrinsic_of, is_winograd
from tunefleet.core.result import TaskResult
from tunefleet.core.roofline import Bandwidth, least_seconds
from tunefleet.core.task import WeightedTask
from tunefleet.core.trial import Failure, Trial


def task_results(
    tasks: Sequence[WeightedTask],
    winners: Mapping[str, tuple[Trial | None, Any]],
    trials_of: Callable[[str], list[Trial]],
    peak_gflops: float | None,
    bandwidths: Sequence[Bandwidth],
) -> tuple[TaskResult, ...]:
    """The tasks with their winners, and with their shares once all of them were measured.
    `winners` are as `Store.winners` gives them, `trials_of` the trials of the job by task id."""
    rows: list[TaskResult] = []
    beyond: set[str] = set()
    for weighted in tasks:
        winner, checks = winners.get(weighted.task.task_id, (None, None))
        trace = winner.candidate.trace if winner is not None else ""
        if not has_peak_of_floats(trace):
            beyond.add(weighted.task.task_id)
        trials = trials_of(weighted.task.task_id)
        rows.append(_task_row(weighted, trials, winner, checks or {}))
    # A kernel that is faster than the measured peak shows that the peak was measured too low.
    within = [row.gflops or 0.0 for row in rows if row.task_id not in beyond]
    peak = max([peak_gflops or 0.0, *within]) if peak_gflops else None
    latencies = [row.latency_us * row.weight for row in rows if row.latency_us]
    total = sum(latencies) if len(latencies) == len(rows) else None
    return tuple(
        replace(
            row,
            peak_share=row.gflops / peak
            if peak and row.gflops and row.task_id not in beyond
            else None,
            limit_share=None if row.task_id in beyond else _limit_share(row, peak, bandwidths),
            network_share=row.latency_us * row.weight / total if total and row.latency_us else None,
        )
        for row in rows
    )


def _limit_share(
    row: TaskResult, peak: float | None, bandwidths: Sequence[Bandwidth]
) -> float | None:
    """How near to the least time it is: at most 1, since what is faster shows that the bandwidth
    was measured too low."""
    if row.latency_us is None or row.bytes is None or row.flops is None:
        return None
    least_s = least_seconds(row.flops, row.bytes, peak, bandwidths)
    return None if least_s is None else min(1.0, least_s * 1e6 / row.latency_us)


def _task_row(
    weighted: WeightedTask, trials: list[Trial], winner: Trial | None, checks: Mapping[str, Any]
) -> TaskResult:
    from tunefleet.compiler.toolchain.programs import moved_bytes

    task, default = weighted.task, checks.get("default_s")
    latency = checks.get("latency_s") if winner else default
    source, trace = "default", ""
    if winner is not None:
        own = {t.candidate.candidate_id for t in trials}
        source = "tuned" if winner.candidate.candidate_id in own else "reused"
        trace = winner.candidate.trace
    return TaskResult(
        task_id=task.task_id,
        name=task.name,
        shapes=task.shapes,
        weight=weighted.weight,
        flops=task.flops,
        trials=len(trials),
        failed=sum(isinstance(t.outcome, Failure) for t in trials),
        latency_us=latency * 1e6 if latency else None,
        default_us=default * 1e6 if default else None,
        gflops=task.flops / latency / 1e9 if latency else None,
        bytes=moved_bytes(task.program),
        source=source,
        winograd=is_winograd(trace),
        intrinsic=intrinsic_of(trace),
    )
