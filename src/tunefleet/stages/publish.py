"""The publish step: the artifact with its report, whole or not at all."""

from __future__ import annotations

from tunefleet.artifacts.artifact import (
    REPORT,
    Artifact,
    read_artifact,
    update_result,
    write_artifact,
)
from tunefleet.core.step import Imported, Published, Remark, StepKind
from tunefleet.errors import InternalError
from tunefleet.report import render_html
from tunefleet.stages.delivered import delivered_module
from tunefleet.stages.place import Delivery, StepRequest, Workplace
from tunefleet.stages.prepared import prepared_of, result_of
from tunefleet.stages.result import build_result, records_used


def run(place: Workplace, request: StepRequest) -> tuple[Published, tuple[Remark, ...]]:
    """Write the artifact folder; its result is what is known by now (`tell` adds to it)."""
    delivery = request.delivery
    if delivery is None:
        raise InternalError("nothing is published without a delivery")
    artifact = artifact_of(place, delivery)
    write_artifact(
        artifact,
        module=delivered_module(place, request),
        untuned=prepared_of(place, request.preparation).untuned,
        records=records_used(place.store, delivery.job),
        report=render_html(artifact.result),
    )
    return Published(delivery.run_id), ()


def artifact_of(place: Workplace, delivery: Delivery) -> Artifact:
    """The artifact of a run, not yet written; its result names where it will lie."""
    from tunefleet.compiler.toolchain.host import instructions

    preparation, path = delivery.preparation, place.home.artifacts / delivery.run_id
    imported = result_of(place, preparation.id, StepKind.IMPORT, Imported)
    result = build_result(place, delivery)
    return Artifact(
        path=path,
        network=imported.info,
        target=preparation.target,
        device=preparation.device,
        toolchain=preparation.toolchain,
        result=result | {"artifact": str(path), "report": str(path / REPORT)},
        instructions=instructions(preparation.target),
        spec=preparation.source.spec,
        spec_digest=preparation.source.content,
    )


def tell(place: Workplace, delivery: Delivery) -> Artifact:
    """Write the result as it is now, and its report, to the published artifact; its modules
    stay."""
    from dataclasses import replace

    published = read_artifact(place.home.artifacts / delivery.run_id)
    updated = replace(published, result=build_result(place, delivery))
    return update_result(updated, render_html(updated.result))
