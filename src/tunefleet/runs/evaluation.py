"""Measures a saved artifact again, beside the framework that its network comes from."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tunefleet.core.device import here_for
from tunefleet.core.home import Home
from tunefleet.core.result import Evaluation, KernelTime, MeasuredShape, RunResult, of_shape
from tunefleet.core.target import CudaTarget
from tunefleet.errors import InputError, TunefleetError, raise_mistake
from tunefleet.system.scratch import scratch_folder

if TYPE_CHECKING:
    from tunefleet.artifacts.artifact import Artifact
    from tunefleet.core.identity import DeviceIdentity


def _unheard(text: str) -> None:
    """Nobody watches."""


def measured_again(
    artifact: Artifact, home: Path, rounds: int, tell: Callable[[str], None] = _unheard
) -> Evaluation:
    """What `errands.evaluate_artifact` answers, of an artifact that was opened."""
    from tunefleet.artifacts.artifact import check_files
    from tunefleet.artifacts.module import check_runs_here
    from tunefleet.artifacts.runtime import with_pool
    from tunefleet.stages import work

    check_runs_here(artifact)
    check_files(artifact, artifact.module)
    spec, threads = here_for(artifact.target), artifact.target.threads
    measured = (artifact, _network_of(artifact, home), rounds)
    with device_alone(artifact, home, "evaluation", tell):
        evaluation, identity = with_pool(work.on_device, spec, threads, None, _evaluated, measured)
    return fill_in(evaluation, artifact, identity, home)


def device_alone(
    artifact: Artifact, home: Path, purpose: str, tell: Callable[[str], None]
) -> AbstractContextManager[None]:
    """What an artifact runs on here, which no command of the home uses within the block."""
    from tunefleet.devices.neighbours import joined_cores
    from tunefleet.fleet.leases import measuring, units_alone
    from tunefleet.hardware.processor import machine_layout

    layout = machine_layout(pairs=joined_cores(home)).layout
    return measuring(home, units_alone("", here_for(artifact.target), layout), purpose, tell)


def _network_of(artifact: Artifact, home: Path) -> str:
    """What an artifact was made of: in the home where it lies, or in another one."""
    own = Home(artifact.path.parent.parent)
    there = own.absolute(artifact.spec)
    return there if own.networks.is_dir() else Home(home).absolute(artifact.spec)


def _evaluated(artifact: Artifact, network: str, rounds: int) -> tuple[Evaluation, DeviceIdentity]:
    """The figures, and the device that they are of."""
    from tunefleet.compiler.frontends.examples import seeded_inputs
    from tunefleet.stages.work import describe_device, kernel_times

    sources, missing = _sources(artifact, network)
    shapes = [_measured(artifact, i, sources, rounds) for i in range(len(sources))]
    inputs = seeded_inputs(artifact.network.inputs, artifact.network.ranges)
    kernels = kernel_times(str(artifact.module), list(inputs), 20)
    evaluation = Evaluation(
        **of_shape(shapes[0]),
        artifact=str(artifact.path),
        network=artifact.network.name,
        target=str(artifact.target),
        threads=artifact.target.threads,
        warnings=tuple(missing),
        kernels=tuple(
            KernelTime(name=name, ms=seconds * 1e3)
            for name, seconds in sorted(kernels.items(), key=lambda item: -item[1])
        ),
        shapes=tuple(shapes) if len(shapes) > 1 else (),
    )
    return evaluation, describe_device().identity


def fill_in(
    evaluation: Evaluation, artifact: Artifact, device: DeviceIdentity, home: Path
) -> Evaluation:
    """Write the figures where they are missing: to an artifact that is not signed, and to its job
    in the store of a home. Nothing is written that was measured on another `device`, without the
    source framework where that was measured before, or disturbed."""
    from tunefleet.report.result import read_result
    from tunefleet.stages.measure import SOURCE

    shapes = evaluation.shapes or (evaluation,)
    written = read_result(artifact.result, str(artifact.manifest))
    sources = [any(b.kind == SOURCE for b in of.baselines) for of in (written, evaluation)]
    if (
        not all(shape.is_complete for shape in shapes)
        or sources == [True, False]
        or artifact.device.exact != replace(device, key=artifact.device.key).exact
    ):
        return evaluation
    filled = []
    if written.lacks_figures and _filled_artifact(artifact, written.measured_again(shapes)):
        filled.append("report")
    if written.job is not None and _filled_job(written.job, shapes, home):
        filled.append("jobs")
    return replace(evaluation, filled_in=tuple(filled))


def _filled_artifact(artifact: Artifact, result: RunResult) -> bool:
    """False where the artifact is signed, or lies where nothing can be written."""
    from tunefleet.artifacts.artifact import update_result
    from tunefleet.artifacts.signature import is_signed
    from tunefleet.report import render_html

    if is_signed(artifact.manifest):
        return False
    here = replace(result, artifact=str(artifact.path), report=str(artifact.report))
    try:
        update_result(replace(artifact, result=here.to_dict()), render_html(here))
    except OSError:
        return False
    return True


def _filled_job(job_id: str, shapes: Sequence[MeasuredShape], home: Path) -> bool:
    """False where the store does not know the job, or has its figures."""
    from tunefleet.core.job import JobState
    from tunefleet.report.result import read_result
    from tunefleet.store import open_store, store_path

    if not store_path(home).is_file():
        return False
    store = open_store(home)
    try:
        if not store.jobs.page(prefix=job_id, state=JobState.SUCCEEDED, limit=1):
            return False
        known = read_result(store.jobs.summary(job_id) or {}, f"job {job_id}")
        if not known.lacks_figures:
            return False
        store.jobs.finish(job_id, JobState.SUCCEEDED, known.measured_again(shapes).to_dict())
        return True
    finally:
        store.close()


def _sources(
    artifact: Artifact, network: str
) -> tuple[Sequence[Mapping[str, Any] | None], list[str]]:
    """The source framework's network for each shape, from the file `network`, and why there is none
    where there is not."""
    from tunefleet.compiler.frontends import network_digest
    from tunefleet.core.shapes import ShapeRequest
    from tunefleet.stages.importing import source_networks

    signatures = artifact.network.signatures
    if artifact.network.source == "zoo":
        requests = [ShapeRequest()] * len(signatures)
    else:
        constants = artifact.network.constants
        requests = [
            ShapeRequest.of([(t.name, t.shape) for t in each.inputs], constants=constants)
            for each in signatures
        ]
    with scratch_folder("evaluate") as folder:
        try:
            if network_digest(network) != artifact.spec_digest:
                raise InputError(f"{network} has changed since it was tuned")
            return source_networks(network, Path(folder), requests), []
        except TunefleetError as error:
            raise_mistake(error)
            why = f"not measured beside its source framework: {error.what}"
            return [None] * len(signatures), [why]


def _measured(
    artifact: Artifact, index: int, sources: Sequence[Mapping[str, Any] | None], rounds: int
) -> MeasuredShape:
    from tunefleet.artifacts.network import entry_name
    from tunefleet.compiler.frontends.examples import seeded_inputs
    from tunefleet.compiler.frontends.references import reference_of
    from tunefleet.core.step import Comparison, Rounds
    from tunefleet.core.undisturbed import MOST_MOVED
    from tunefleet.hardware.processor import cpu_info
    from tunefleet.stages.measure import ON_CPU, SOURCE, TUNED, figures_of
    from tunefleet.stages.profile import drift_since
    from tunefleet.stages.work import (
        framework_on_gpu,
        held_down,
        measure_reference,
        time_networks,
    )

    signature, source = artifact.network.signatures[index], sources[index]
    on_gpu = isinstance(artifact.target, CudaTarget)
    contenders: dict[str, str | Mapping[str, Any]] = {}
    if source is not None:
        contenders[SOURCE] = source
    contenders[TUNED] = str(artifact.module)
    with scratch_folder("reference") as folder:
        reference = partial(measure_reference, artifact.target, folder)
        before = reference()
        latencies, disturbed = time_networks(
            list(contenders.values()),
            entry_name(index),
            list(seeded_inputs(signature.inputs, artifact.network.ranges)),
            len(cpu_info().granted) if on_gpu else artifact.target.threads,
            Rounds(rounds),
        )
        moved = abs(drift_since(reference, before, MOST_MOVED))
    named = {name: tuple(of) for name, of in zip(contenders, latencies, strict=True)}
    comparison = Comparison(named, disturbed, moved, held_down())
    framework = reference_of(source).framework if source is not None else ""
    if on_gpu and source is not None and not framework_on_gpu(source):
        framework += ON_CPU
    return figures_of(comparison, framework, map(str, signature.inputs))
