"""Runs and measures saved artifacts."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tunefleet.context import default_home
from tunefleet.errors import InputError

if TYPE_CHECKING:
    from tunefleet.compiler.artifact import Artifact


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

    artifact = open_artifact(path_or_id, home)
    _check_inputs(artifact, arrays)
    set_threads(artifact.target.threads)
    return LoadedNetwork(str(artifact.module)).run(list(arrays))


def _check_inputs(artifact: Artifact, arrays: Sequence[Any]) -> None:
    wanted = artifact.network.inputs
    listed = ", ".join(str(spec) for spec in wanted)
    if len(arrays) != len(wanted):
        raise InputError(
            f"{artifact.network.name} takes {len(wanted)} inputs, {len(arrays)} were given",
            cure=f"give {listed}",
        )
    for spec, array in zip(wanted, arrays, strict=True):
        if tuple(array.shape) != spec.shape or str(array.dtype) != spec.dtype:
            got = f"{array.dtype}[{', '.join(map(str, array.shape))}]"
            raise InputError(f"input {spec.name} is {got}", cure=f"give {listed}")


def evaluate_artifact(
    path_or_id: str | Path, home: Path | None = None, rounds: int = 12
) -> dict[str, Any]:
    """Measure a saved artifact on this machine again, beside its untuned module."""
    from tunefleet.compiler.executable import LoadedNetwork, time_interleaved
    from tunefleet.compiler.toolchain import set_threads
    from tunefleet.core.statistics import interval

    artifact = open_artifact(path_or_id, home)
    set_threads(artifact.target.threads)
    inputs = _random_inputs(artifact)
    paths = [str(artifact.module)]
    if artifact.untuned.is_file():
        paths.append(str(artifact.untuned))
    found = time_interleaved(paths, inputs, rounds, round_s=0.25)
    kernels = LoadedNetwork(paths[0]).kernel_times(inputs, 20)
    value: dict[str, Any] = {
        "artifact": str(artifact.path),
        "network": artifact.network.name,
        "target": str(artifact.target),
        "threads": artifact.target.threads,
        "latency_ms": interval(found[0]).scaled(1e3).to_json(),
        "untuned_ms": None,
        "speedup": None,
        "kernels": [
            {"name": name, "ms": seconds * 1e3}
            for name, seconds in sorted(kernels.items(), key=lambda item: -item[1])
        ],
    }
    if len(found) == 2:
        value["untuned_ms"] = interval(found[1]).scaled(1e3).to_json()
        ratios = [u / t for t, u in zip(*found, strict=True)]
        value["speedup"] = interval(ratios).to_json()
    return value


def _random_inputs(artifact: Artifact) -> list[Any]:
    import numpy as np

    generator = np.random.default_rng(0)
    arrays = []
    for spec in artifact.network.inputs:
        if spec.dtype.startswith("float"):
            arrays.append(generator.standard_normal(spec.shape).astype(spec.dtype))
        else:  # indices must stay inside any table
            arrays.append(generator.integers(0, 2, spec.shape).astype(spec.dtype))
    return arrays
