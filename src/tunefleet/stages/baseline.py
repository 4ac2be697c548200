"""The baseline step: the source framework alone, before the search of a job for which a speed-up
over it is agreed."""

from __future__ import annotations

from tunefleet.core.step import Remark, SourceMeasured
from tunefleet.core.undisturbed import NOT_MEASURABLE
from tunefleet.errors import InternalError, JobError
from tunefleet.scheduler.job_plan import MOST_AGAIN
from tunefleet.stages.measure import SOURCE, Contender, compare, rounds_of
from tunefleet.stages.place import StageContext, StepRequest
from tunefleet.stages.prepared import expectation_of, prepared_of


def run(place: StageContext, request: StepRequest) -> tuple[SourceMeasured, tuple[Remark, ...]]:
    """Measure the source framework at each of the network's shapes, as the measure step does."""
    delivery = request.delivery
    if delivery is None:
        raise InternalError("a baseline is that of a job")
    prepared = prepared_of(place, request.preparation)
    if not place.is_here:
        raise JobError(
            f"{prepared.info.name}: {prepared.imported.framework} does not run on this device: a "
            "speed-up over it cannot be measured",
            cure="agree on a latency instead: --target-latency-ms",
        )
    inputs = expectation_of(place, request.preparation, prepared).inputs
    place.grant(prepared.imported.footprint)
    rounds = rounds_of(delivery, len(inputs))
    comparisons = tuple(
        compare([Contender(SOURCE, prepared.references[index])], given, place, rounds, index)
        for index, given in enumerate(inputs)
    )
    reasons = dict.fromkeys(each.why_disturbed for each in comparisons if each.why_disturbed)
    told = f"the search goes on; it is measured again between rounds, {MOST_AGAIN} times at most"
    remarks = (Remark(f"{NOT_MEASURABLE}: {why}: {told}", warning=True) for why in reasons)
    return SourceMeasured(comparisons), tuple(remarks)
