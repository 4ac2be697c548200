"""The publish step: the artifact with its report, whole or not at all."""

from __future__ import annotations

from dataclasses import replace

from tunefleet.artifacts.artifact import (
    REPORT,
    Artifact,
    add_timeline,
    read_artifact,
    update_result,
    write_artifact,
)
from tunefleet.core.result import RunResult
from tunefleet.core.step import Imported, Published, Remark, StepKind
from tunefleet.errors import InternalError
from tunefleet.report import render_html
from tunefleet.stages.delivered import delivered_module
from tunefleet.stages.place import Delivery, StepRequest, Workplace
from tunefleet.stages.prepared import result_of
from tunefleet.stages.result import build_result, records_used


def run(place: Workplace, request: StepRequest) -> tuple[Published, tuple[Remark, ...]]:
    """Write the artifact folder; its result is what is known by now (`tell` adds to it)."""
    delivery = request.delivery
    if delivery is None:
        raise InternalError("nothing is published without a delivery")
    result = _published(build_result(place, delivery), place, delivery)
    imported = result_of(place, delivery.preparation.id, StepKind.IMPORT, Imported)
    write_artifact(
        artifact_of(place, delivery, result),
        module=delivered_module(place, request),
        records=records_used(place.store, delivery, imported.tasks),
        report=render_html(result),
    )
    return Published(delivery.run_id), ()


def _published(result: RunResult, place: Workplace, delivery: Delivery) -> RunResult:
    """The result with the place where the artifact will lie."""
    path = place.home.artifacts / delivery.run_id
    return replace(result, artifact=str(path), report=str(path / REPORT))


def artifact_of(place: Workplace, delivery: Delivery, result: RunResult) -> Artifact:
    """The artifact of a run, not yet written."""
    from tunefleet.compiler.toolchain.host import instructions

    preparation, path = delivery.preparation, place.home.artifacts / delivery.run_id
    imported = result_of(place, preparation.id, StepKind.IMPORT, Imported)
    return Artifact(
        path=path,
        network=imported.info,
        target=preparation.target,
        device=preparation.device,
        toolchain=preparation.toolchain,
        result=result.to_dict(),
        instructions=instructions(preparation.target),
        spec=preparation.source.spec,
        spec_digest=preparation.source.content,
    )


def tell(place: Workplace, delivery: Delivery, timeline: str = "") -> RunResult:
    """Write the result as it is now, its report, and the page of its timeline where there is one,
    to the published artifact; its modules stay. Returns that result."""
    published = read_artifact(place.home.artifacts / delivery.run_id)
    if timeline:
        published = add_timeline(published, timeline)
    result = build_result(place, delivery)
    update_result(replace(published, result=result.to_dict()), render_html(result))
    return result
