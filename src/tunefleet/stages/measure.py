"""End-to-end latencies on the device, in turn: a baseline and the module that is delivered."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from tunefleet.artifacts.network import entry_name
from tunefleet.core.forms import has_peak_of_floats
from tunefleet.core.result import Baseline, MeasuredShape
from tunefleet.core.step import Comparison, Measured, Remark, Rounds
from tunefleet.core.undisturbed import MOST_MOVED, NOT_MEASURABLE
from tunefleet.errors import InternalError, JobError
from tunefleet.stages import work
from tunefleet.stages.check import peak_gflops
from tunefleet.stages.compile_ import GRAPHS
from tunefleet.stages.delivered import delivered_module, tuned_module
from tunefleet.stages.place import Delivery, StageContext, StepRequest
from tunefleet.stages.prepared import PreparedNetwork, expectation_of, on_device, prepared_of
from tunefleet.stages.profile import drift_since, reference_latency

#: Names of the contenders of an evaluation.
SOURCE, UNTUNED, TUNED = "source", "untuned", "tuned"
#: Behind the name of a source framework that is measured beside a GPU.
ON_CPU = " on the CPU"

#: Share of a budget in seconds for a comparison, and the seconds that there are in any case.
_SHARE, _LEAST_S = 0.02, 5.0
#: How often a disturbed measurement is made, as that of candidates.
_ATTEMPTS = 2
#: Inferences whose kernels are timed one by one, and the share of a comparison's time for them.
_KERNEL_RUNS, _KERNEL_SHARE = 20, 0.25


@dataclass(frozen=True, slots=True)
class Contender:
    """What is to be measured: a module, or the source framework (`frontends.references`)."""

    name: str
    runs: Path | Mapping[str, Any]


def run(place: StageContext, request: StepRequest) -> tuple[Measured, tuple[Remark, ...]]:
    """The measure step: the source framework, on another machine the plain module, and what is
    delivered, at each of the network's shapes; then its kernels one by one."""
    delivery = request.delivery
    if delivery is None:
        raise InternalError("nothing is measured without a delivery")
    prepared = prepared_of(place, request.preparation)
    expectation = expectation_of(place, request.preparation, prepared)
    module = delivered_module(place, request)
    place.grant(prepared.imported.footprint)
    rounds = rounds_of(delivery, len(expectation.inputs))
    remarks: list[Remark] = []
    comparisons: list[Comparison] = []
    for variant, inputs in enumerate(expectation.inputs):
        comparison = _compared(prepared, module, inputs, place, rounds, variant, remarks)
        if comparison is not None:
            comparisons.append(comparison)
    if len(comparisons) < len(expectation.inputs):
        comparisons = []
    reasons = dict.fromkeys(each.why_disturbed for each in comparisons if each.why_disturbed)
    remarks += [Remark(f"{NOT_MEASURABLE}: {reason}", warning=True) for reason in reasons]
    kernels: dict[str, float] = {}
    try:
        # Of the same module without CUDA graphs, which launch all kernels at once.
        singly = tuned_module(place, request) if module.name == GRAPHS else module
        runs = _KERNEL_RUNS
        if comparisons:
            takes_s = comparisons[0].latency(TUNED).median
            runs = min(runs, int(rounds.limit_s * _KERNEL_SHARE / takes_s))
        kernels = kernel_times(singly, expectation.inputs[0], place, runs)
    except JobError as error:
        remarks.append(Remark(str(error), warning=True))
    peak = expectation.checked.peak_gflops
    if peak is not None and _exceeds(place, delivery, peak):
        # It was disturbed when it was measured.
        peak = max(peak, peak_gflops(place) or 0.0)
    on_cpu = _source_on_cpu(place, prepared)
    if on_cpu:
        framework = prepared.imported.framework
        remarks.append(Remark(f"{framework} was measured on the CPU: it has no CUDA here"))
    measured = Measured(
        tuple(comparisons),
        kernels,
        peak,
        expectation.checked.bandwidths,
        source_on_cpu=on_cpu,
        estimated_s=delivery.estimated_s,
    )
    return measured, tuple(remarks)


def rounds_of(delivery: Delivery, shapes: int) -> Rounds:
    """The rounds of each of a network's shapes: those that are asked for, or the settings' number
    as far as the job's budget has time for them."""
    if delivery.rounds is not None:
        return Rounds(delivery.rounds)
    rounds = Rounds(delivery.settings.measure.end_to_end_rounds)
    seconds = delivery.job.spec.budget.seconds if delivery.job is not None else None
    if seconds is None:
        return rounds
    limit_s = max(_LEAST_S, seconds * _SHARE / shapes)
    return replace(rounds, limit_s=min(rounds.limit_s, limit_s))


def _source_on_cpu(place: StageContext, prepared: PreparedNetwork) -> bool:
    """Whether the source framework is measured on the CPU beside a GPU."""
    if place.gpu_here is None:
        return False
    what, source = "asking the source framework failed", prepared.references[0]
    return not on_device(place, what, work.framework_on_gpu, source)


def _compared(
    prepared: PreparedNetwork,
    module: Path,
    inputs: Sequence[Any],
    place: StageContext,
    rounds: Rounds,
    variant: int,
    remarks: list[Remark],
) -> Comparison | None:
    """What is delivered beside the baselines; alone where these cannot be measured, and None
    where nothing can: what was saved stays."""
    # Elsewhere there is no source framework.
    here = Contender(SOURCE, prepared.references[variant])
    baseline = here if place.is_here else Contender(UNTUNED, prepared.plain)
    contenders = [baseline, Contender(TUNED, module)]
    for chosen in (contenders, contenders[-1:]):
        try:
            return compare(chosen, inputs, place, rounds, variant)
        except JobError as error:
            remarks.append(Remark(str(error), warning=True))
    return None


def _exceeds(place: StageContext, delivery: Delivery, peak: float) -> bool:
    """Whether a kernel of the job is faster than the peak that was measured."""
    if delivery.job is None:
        return False
    tasks = {w.task.task_id: w.task for w in place.store.work.tasks(delivery.job.job_id)}
    for task_id, (winner, checks) in place.store.records.winners(delivery.job.job_id).items():
        latency = (checks or {}).get("latency_s" if winner else "default_s")
        comparable = winner is None or has_peak_of_floats(winner.candidate.trace)
        if latency and comparable and tasks[task_id].flops / latency / 1e9 > peak:
            return True
    return False


def compare(
    contenders: Sequence[Contender],
    inputs: Sequence[Any],
    place: StageContext,
    rounds: Rounds,
    variant: int = 0,
    attempts: int = _ATTEMPTS,
) -> Comparison:
    """Measure contenders end to end at one of the network's shapes, A B C A B C ..., on the
    device. What was disturbed is measured again in half the time, and the quieter measurement
    counts."""
    quietest: Comparison | None = None
    for attempt in range(attempts):
        before = reference_latency(place)
        latencies, disturbed = on_device(
            place,
            "measuring the network failed",
            work.time_networks,
            [str(c.runs) if isinstance(c.runs, Path) else c.runs for c in contenders],
            entry_name(variant),
            list(inputs),
            place.framework_threads,
            replace(rounds, limit_s=rounds.limit_s / (1 + attempt)),
        )
        named = {c.name: tuple(of) for c, of in zip(contenders, latencies, strict=True)}
        moved = abs(drift_since(partial(reference_latency, place), before, MOST_MOVED))
        held_down = on_device(place, "asking the device failed", work.held_down)
        comparison = Comparison(named, disturbed, moved, held_down)
        if quietest is None or disturbed < quietest.disturbed or not comparison.why_disturbed:
            quietest = comparison
        if not quietest.why_disturbed:
            break
    assert quietest is not None
    return quietest


def kernel_times(
    path: Path, inputs: Sequence[Any], place: StageContext, runs: int = _KERNEL_RUNS
) -> dict[str, float]:
    """Seconds per inference by kernel, at the first of the network's shapes: medians of so many
    inferences, of three at least."""
    what = "timing the kernels one by one failed"
    return on_device(place, what, work.kernel_times, str(path), list(inputs), runs)


def figures_of(comparison: Comparison, framework: str, inputs: Iterable[str]) -> MeasuredShape:
    """The latencies at one of a network's shapes, and the gain over each baseline where the
    measurement supports one. `framework` is the name of the source framework."""
    names = {SOURCE: framework, UNTUNED: "untuned"}
    baselines = tuple(
        _baseline(comparison, kind, name)
        for kind, name in names.items()
        if kind in comparison.rounds
    )
    first = baselines[0] if baselines else None
    return MeasuredShape(
        inputs=tuple(inputs),
        tuned_ms=comparison.latency(TUNED).scaled(1e3),
        speedup=first.speedup if first else None,
        why_no_speedup=first.why_no_speedup if first else "nothing else was measured",
        baselines=baselines,
        disturbed=comparison.disturbed,
        why_disturbed=comparison.why_no_latency(TUNED) or None,
    )


def _baseline(comparison: Comparison, kind: str, name: str) -> Baseline:
    why = comparison.why_no_ratio(kind, TUNED)
    return Baseline(
        name=name,
        kind=kind,
        latency_ms=comparison.latency(kind).scaled(1e3),
        speedup=None if why else comparison.ratio(kind, TUNED),
        why_no_speedup=why or None,
    )
