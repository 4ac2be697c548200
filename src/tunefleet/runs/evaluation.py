"""Measures a saved artifact again, beside the framework that its network comes from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tunefleet.core.result import Evaluation, KernelTime, MeasuredShape, of_shape
from tunefleet.errors import InputError, TunefleetError, raise_mistake
from tunefleet.runs.request import check_rounds
from tunefleet.system.scratch import scratch_folder

if TYPE_CHECKING:
    from tunefleet.artifacts.artifact import Artifact


def evaluate_artifact(
    path_or_id: str | Path,
    home: Path | str | None = None,
    rounds: int = 12,
    signed_by: Path | str | None = None,
) -> Evaluation:
    """Measure a saved artifact on this machine again, at each of its shapes, beside its source
    framework, if what it was imported from is still there, and untuned TVM."""
    from tunefleet.artifacts.artifact import check_files
    from tunefleet.artifacts.module import check_runs_here
    from tunefleet.artifacts.opening import open_artifact
    from tunefleet.artifacts.runtime import with_pool

    check_rounds(rounds)
    artifact = open_artifact(path_or_id, home, signed_by)
    check_runs_here(artifact)
    check_files(artifact, artifact.module)
    if artifact.untuned.is_file():
        check_files(artifact, artifact.untuned)
    return with_pool(_evaluated, artifact, rounds)


def _evaluated(artifact: Artifact, rounds: int) -> Evaluation:
    from tunefleet.artifacts.network import LoadedNetwork
    from tunefleet.artifacts.runtime import set_threads
    from tunefleet.compiler.frontends.examples import seeded_inputs

    set_threads(artifact.target.threads)
    sources, missing = _sources(artifact)
    shapes = [_measured(artifact, i, sources, rounds) for i in range(len(sources))]
    inputs = seeded_inputs(artifact.network.inputs)
    kernels = LoadedNetwork(str(artifact.module)).kernel_times(inputs, 20)
    return Evaluation(
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


def _sources(artifact: Artifact) -> tuple[Sequence[Mapping[str, Any] | None], list[str]]:
    """The source framework's network for each shape, and why there is none where there is not."""
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
            if network_digest(artifact.spec) != artifact.spec_digest:
                raise InputError(f"{artifact.spec} has changed since it was tuned")
            return source_networks(artifact.spec, Path(folder), requests), []
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
    from tunefleet.core.step import Comparison
    from tunefleet.stages.measure import SOURCE, TUNED, UNTUNED, figures_of
    from tunefleet.stages.work import time_networks

    signature, source = artifact.network.signatures[index], sources[index]
    contenders: dict[str, str | Mapping[str, Any]] = {}
    if source is not None:
        contenders[SOURCE] = source
    if artifact.untuned.is_file():
        contenders[UNTUNED] = str(artifact.untuned)
    contenders[TUNED] = str(artifact.module)
    latencies, disturbed = time_networks(
        list(contenders.values()),
        entry_name(index),
        list(seeded_inputs(signature.inputs)),
        artifact.target.threads,
        rounds,
        0.25,
    )
    named = {name: tuple(of) for name, of in zip(contenders, latencies, strict=True)}
    comparison = Comparison(named, disturbed)
    framework = reference_of(source).framework if source is not None else ""
    return figures_of(comparison, framework, map(str, signature.inputs))
