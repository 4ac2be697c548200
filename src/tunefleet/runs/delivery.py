"""What a run delivers: the programs that are compiled, and the artifact that is published."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tunefleet.core.job import Job, JobSpec
from tunefleet.core.task import WeightedTask

if TYPE_CHECKING:
    from tunefleet.artifacts.artifact import Artifact
    from tunefleet.runs.context import BenchmarkContext
    from tunefleet.stages.network_work import PreparedNetwork
    from tunefleet.store import Store


def winning_traces(store: Store, job: Job) -> dict[str, str]:
    """The trace of each task's winner of a job; the others keep the default schedule."""
    crowned = store.winners(job.job_id)
    return {i: w.candidate.trace for i, (w, _) in crowned.items() if w is not None}


def best_traces(store: Store, spec: JobSpec, tasks: Sequence[WeightedTask]) -> dict[str, str]:
    """The trace of each task's fastest winner of all jobs of the same device and toolchain."""
    found = {}
    for weighted in tasks:
        task_id = weighted.task.task_id
        record = store.best(task_id, spec.device, spec.toolchain)
        if record is not None:
            found[task_id] = record.candidate.trace
    return found


def artifact_of(
    context: BenchmarkContext, prepared: PreparedNetwork, result: dict[str, Any]
) -> Artifact:
    """The artifact of a run, not yet written."""
    from tunefleet.artifacts.artifact import Artifact
    from tunefleet.compiler.toolchain import toolchain_identity
    from tunefleet.compiler.toolchain.host import instructions
    from tunefleet.hardware.processor import device_identity

    return Artifact(
        path=context.artifact_path,
        network=prepared.info,
        target=context.target,
        device=device_identity(context.device_key),
        toolchain=toolchain_identity(),
        result=result,
        instructions=instructions(context.target),
        spec=str(context.values.get("spec", "")),
        spec_digest=str(context.values.get("spec_digest", "")),
    )


def publish(artifact: Artifact, module: Path, untuned: Path | None, records: list[Any]) -> Artifact:
    """Write an artifact with its report, whole or not at all."""
    from tunefleet.artifacts.artifact import write_artifact
    from tunefleet.report import render_html

    return write_artifact(
        artifact,
        module=module,
        untuned=untuned,
        records=records,
        report=render_html(artifact.result),
    )


def tell(artifact: Artifact) -> Artifact:
    """Write the result and the report of a published artifact anew."""
    from tunefleet.artifacts.artifact import update_result
    from tunefleet.report import render_html

    return update_result(artifact, render_html(artifact.result))
