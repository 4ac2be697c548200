"""Runs and measures saved artifacts."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tunefleet.context import default_home
from tunefleet.errors import InputError, TunefleetError

if TYPE_CHECKING:
    from tunefleet.compiler.artifact import Artifact
    from tunefleet.compiler.frontends import Reference


def open_artifact(path_or_id: str | Path, home: Path | None = None) -> Artifact:
    """The artifact in a directory or of a 32-character run id.

    Raises InputError when there is none, or when its code cannot run on this machine.
    """
    from tunefleet.compiler.artifact import read_artifact
    from tunefleet.compiler.host import check_runs_here

    text = str(path_or_id)
    path = Path(text)
    if re.fullmatch(r"[0-9a-f]{32}", text) and not path.is_dir():
        path = (home or default_home()) / "artifacts" / text
    artifact = read_artifact(path)
    check_runs_here(artifact.target)
    return artifact


def run_artifact(
    path_or_id: str | Path, arrays: Sequence[Any], home: Path | None = None
) -> list[Any]:
    """Outputs of the delivered module, as NumPy arrays, for NumPy inputs in the network's order.

    Shapes and dtypes must agree; a missing conversion is not guessed.
    """
    from tunefleet.compiler.executable import LoadedNetwork
    from tunefleet.compiler.toolchain import set_threads
    from tunefleet.compiler.variants import entry_name

    artifact = open_artifact(path_or_id, home)
    entry = entry_name(_signature_of(artifact, arrays))
    set_threads(artifact.target.threads)
    return LoadedNetwork(str(artifact.module), entry).run(list(arrays))


def _signature_of(artifact: Artifact, arrays: Sequence[Any]) -> int:
    """Which of a network's shapes the arrays have. Raises InputError that lists all it takes."""
    signatures = artifact.network.signatures
    takes = [", ".join(str(spec) for spec in signature.inputs) for signature in signatures]
    cure = f"give {takes[0]}" if len(takes) == 1 else f"give one of: {'; '.join(takes)}"
    wanted = signatures[0].inputs
    if len(arrays) != len(wanted):
        raise InputError(
            f"{artifact.network.name} takes {len(wanted)} inputs, {len(arrays)} were given",
            cure=cure,
        )
    given = [(tuple(array.shape), str(array.dtype)) for array in arrays]
    for index, signature in enumerate(signatures):
        if given == [(spec.shape, spec.dtype) for spec in signature.inputs]:
            return index
    wrong = next(i for i, s in enumerate(wanted) if given[i] != (s.shape, s.dtype))
    shape, dtype = given[wrong]
    got = f"{dtype}[{', '.join(map(str, shape))}]"
    raise InputError(f"input {wanted[wrong].name} is {got}", cure=cure)


def evaluate_artifact(
    path_or_id: str | Path, home: Path | None = None, rounds: int = 12
) -> dict[str, Any]:
    """Measure a saved artifact on this machine again, at each of its shapes, beside its source
    framework, if what it was imported from is still there, and untuned TVM."""
    from tunefleet.compiler.executable import LoadedNetwork
    from tunefleet.compiler.frontends.examples import seeded_inputs
    from tunefleet.compiler.toolchain import set_threads

    artifact = open_artifact(path_or_id, home)
    set_threads(artifact.target.threads)
    sources, missing = _sources(artifact)
    shapes = [_measured(artifact, i, sources, rounds) for i in range(len(sources))]
    inputs = seeded_inputs(artifact.network.inputs)
    kernels = LoadedNetwork(str(artifact.module)).kernel_times(inputs, 20)
    warnings = [w for shape in shapes for w in shape["warnings"]]
    value: dict[str, Any] = {
        "artifact": str(artifact.path),
        "network": artifact.network.name,
        "target": str(artifact.target),
        "threads": artifact.target.threads,
        **shapes[0],
        "warnings": list(dict.fromkeys([*missing, *warnings])),
        "kernels": [
            {"name": name, "ms": seconds * 1e3}
            for name, seconds in sorted(kernels.items(), key=lambda item: -item[1])
        ],
    }
    return value | ({"shapes": shapes} if len(shapes) > 1 else {})


def _sources(artifact: Artifact) -> tuple[list[Reference | None], list[str]]:
    """The source framework's network for each shape, and why there is none where there is not."""
    import tempfile

    from tunefleet.compiler.frontends import ImportRequest, load_network, network_digest
    from tunefleet.core.shapes import ShapeRequest

    found: list[Reference | None] = []
    for signature in artifact.network.signatures:
        shapes = ShapeRequest.of(
            [(spec.name, spec.shape) for spec in signature.inputs],
            constants=artifact.network.constants,
        )
        is_zoo = artifact.network.source == "zoo"
        with tempfile.TemporaryDirectory(prefix="tunefleet-evaluate-") as folder:
            request = ImportRequest(Path(folder), ShapeRequest() if is_zoo else shapes)
            try:
                if network_digest(artifact.spec) != artifact.spec_digest:
                    raise InputError(f"{artifact.spec} has changed since it was tuned")
                found.append(load_network(artifact.spec, request).reference)
            except TunefleetError as error:
                return [None] * len(artifact.network.signatures), [
                    f"not measured beside its source framework: {error.what}"
                ]
    return found, []


def _measured(
    artifact: Artifact, index: int, sources: Sequence[Reference | None], rounds: int
) -> dict[str, Any]:
    from tunefleet.compiler.frontends.examples import seeded_inputs
    from tunefleet.compiler.variants import entry_name
    from tunefleet.fleet.comparison import SOURCE, TUNED, UNTUNED, Comparison, told
    from tunefleet.fleet.work import time_networks

    signature, source = artifact.network.signatures[index], sources[index]
    contenders: dict[str, str | Reference] = {}
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
    comparison = Comparison(dict(zip(contenders, latencies, strict=True)), disturbed)
    framework = source.framework if source is not None else ""
    return told(comparison, framework, [str(t) for t in signature.inputs])
