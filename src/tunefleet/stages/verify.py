"""The verify step: the tuned module computes the same and is faster, or the plain one is
delivered."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from tunefleet.core.job import NOTHING_TO_TUNE
from tunefleet.core.step import (
    Checked,
    Comparison,
    Compiled,
    Remark,
    Rounds,
    StepKind,
    Verified,
)
from tunefleet.errors import JobError
from tunefleet.stages.agreement import Arrays, difference_of
from tunefleet.stages.check import running
from tunefleet.stages.delivered import tuned_module
from tunefleet.stages.known import known_share, programs_of
from tunefleet.stages.measure import Contender, compare, kernel_times
from tunefleet.stages.place import StageContext, StepRequest
from tunefleet.stages.prepared import (
    PreparedNetwork,
    expectation_of,
    prepared_of,
    result_of,
)

#: Rounds of the comparison that decides what is delivered. One is enough for a module that is so
#: many times as fast as the plain one, and none where the winners are, each measured with its plain
#: schedule.
_ROUNDS, _CLEARLY, _SURELY = 3, 1.5, 2.0


def run(place: StageContext, request: StepRequest) -> tuple[Verified, tuple[Remark, ...]]:
    """Compare the tuned module with the source framework, and its latency with the plain one's.
    Where nothing was searched, see which share of that is known."""
    verified, remarks = _verified(place, request)
    if request.delivery is None or request.delivery.job is not None:
        return verified, remarks
    return replace(verified, known_share=_known_share(place, request)), remarks


def _known_share(place: StageContext, request: StepRequest) -> float | None:
    delivery, prepared = request.delivery, prepared_of(place, request.preparation)
    assert delivery is not None
    tasks = prepared.imported.tasks
    known = programs_of(place.store, delivery, tasks)
    compiled = result_of(place, request.key.owner, StepKind.COMPILE, Compiled)
    kernels: dict[str, float] = {}
    if known and compiled.plain:
        inputs = expectation_of(place, request.preparation, prepared).inputs[0]
        try:
            kernels = kernel_times(tuned_module(place, request), inputs, place)
        except JobError:
            return None  # the comparison above has said what the device is like
    return known_share(tasks, known, compiled, kernels)


def _verified(place: StageContext, request: StepRequest) -> tuple[Verified, tuple[Remark, ...]]:
    prepared = prepared_of(place, request.preparation)
    expectation = expectation_of(place, request.preparation, prepared)
    tuned = tuned_module(place, request)
    checked = expectation.checked
    module = running(prepared.info.name, tuned, place)
    place.grant(prepared.imported.footprint)
    difference = difference_of(
        expectation.expected, module, expectation.inputs, ordered=checked.ordered,
        measure=checked.measure,
    )  # fmt: skip
    if not difference <= _tolerance(request, checked):
        why = f"the tuned module differs from the source framework by {difference:.1e}"
        if difference <= checked.tolerance:
            why += ", more than is agreed"
        return Verified(difference, why), (_told(why),)
    if not prepared.imported.tasks:
        return Verified(difference, NOTHING_TO_TUNE), ()
    contenders = [Contender("plain", prepared.plain), Contender("tuned", tuned)]
    recorded = tuned_module(place, request, graphs=True)
    if recorded.exists() and _same(place, request, recorded):
        contenders.append(Contender("graphs", recorded))
    elif _is_surely_faster(place, request, prepared):
        return Verified(difference), ()
    try:
        comparison = _decided(contenders, expectation.inputs[0], place)
    except JobError as error:
        # It computes what it should: that it was not timed is no reason to lose a search.
        return Verified(difference), (Remark(f"{error}: delivered unmeasured", warning=True),)
    graphs = len(contenders) > 2 and comparison.ratio("tuned", "graphs").median > 1.0
    if comparison.ratio("plain", "graphs" if graphs else "tuned").median <= 1.0:
        why = "the tuned module is not faster than the plain one"
        return Verified(difference, why), (_told(why),)
    return Verified(difference, graphs=graphs), ()


def _is_surely_faster(place: StageContext, request: StepRequest, prepared: PreparedNetwork) -> bool:
    """Whether the job's winners together leave no doubt: the plain module of a large network takes
    seconds for a call."""
    job = request.delivery.job if request.delivery is not None else None
    if job is None:
        return False
    winners = place.store.records.winners(job.job_id)
    plain_s = tuned_s = 0.0
    for weighted in prepared.imported.tasks:
        winner, checks = winners.get(weighted.task.task_id, (None, None))
        default_s = (checks or {}).get("default_s")
        won_s = (checks or {}).get("latency_s") if winner is not None else default_s
        if default_s is None or won_s is None:
            return False
        plain_s += weighted.weight * default_s
        tuned_s += weighted.weight * won_s
    return plain_s >= _SURELY * tuned_s


def _decided(contenders: list[Contender], inputs: Arrays, place: StageContext) -> Comparison:
    """The plain module and the tuned ones, measured as long as it takes to decide."""
    if len(contenders) == 2:
        comparison = compare(contenders, inputs, place, Rounds(1), attempts=1)
        if comparison.ratio("plain", "tuned").median >= _CLEARLY:
            return comparison
    return compare(contenders, inputs, place, Rounds(_ROUNDS))


def _same(place: StageContext, request: StepRequest, recorded: Path) -> bool:
    """Whether the module with CUDA graphs computes what it should, also when it is called again."""
    prepared = prepared_of(place, request.preparation)
    expectation = expectation_of(place, request.preparation, prepared)
    # The first call records, the others launch what was recorded.
    module, checked = running(prepared.info.name, recorded, place, calls=3), expectation.checked
    try:
        difference = difference_of(
            expectation.expected, module, expectation.inputs, ordered=checked.ordered,
            measure=checked.measure,
        )  # fmt: skip
    except JobError:
        return False
    return difference <= _tolerance(request, checked)


def _tolerance(request: StepRequest, checked: Checked) -> float:
    """What the check accepts, and no more than is agreed."""
    job = request.delivery.job if request.delivery is not None else None
    most = job.spec.agreed.most_lost if job is not None else None
    return checked.tolerance if most is None else min(checked.tolerance, most)


def _told(why: str) -> Remark:
    return Remark(f"{why}: the plain module is delivered", warning=True)
