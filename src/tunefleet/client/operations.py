"""The local API's operations on networks and artifacts, done by a service: generators of calls."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tunefleet.client import calls
from tunefleet.client.calls import Call, Calls
from tunefleet.errors import InputError
from tunefleet.report.result import read_evaluation
from tunefleet.runs.calling import output_paths
from tunefleet.system.scratch import scratch_folder

if TYPE_CHECKING:
    from tunefleet.core.result import Evaluation


def place(
    network: str | Path, devices: Sequence[str] | Mapping[str, str], asked: Mapping[str, Any]
) -> Calls[dict[str, Any]]:
    """Where each task of a network should run."""
    chosen = dict(devices) if isinstance(devices, Mapping) else {name: "cpu" for name in devices}
    return (yield from _done(calls.submit(network, {**asked, "kind": "place", "devices": chosen})))


def evaluate_artifact(artifact: str, rounds: int) -> Calls[Evaluation]:
    """Measure an artifact again."""
    asked = {"kind": "evaluate", "artifact": artifact, "rounds": rounds}
    return read_evaluation((yield from _done(calls.submit_named(asked))))


def call_artifact(
    artifact: str, inputs: Sequence[str | Path], repeat: int | None, out: Path | None
) -> Calls[dict[str, Any]]:
    """Call an artifact on files, and download its outputs if `out` is given."""
    digests = []
    for file in inputs:
        digests.append((yield from calls.digest_of(file)))
    asked = {"kind": "run", "artifact": artifact, "inputs": digests, "repeat": repeat}
    view = yield from _ended(calls.submit_named(asked))
    value = calls.value_of_job(view)
    outputs = value["outputs"]
    places = output_paths(out, len(outputs)) if out is not None else [None] * len(outputs)
    for place, output in zip(places, outputs, strict=True):
        name, output["path"] = output["path"], None
        if place is None:
            continue
        answer = yield Call("GET", f"/v1/jobs/{view['id']}/outputs/{name}")
        try:
            place.write_bytes(answer.content)
        except OSError as error:
            raise InputError(
                f"cannot write {place}: {error.strerror}", cure="choose another --output"
            ) from error
        output["path"] = str(place)
    return value


def run_artifact(artifact: str, arrays: Sequence[Any]) -> Calls[list[Any]]:
    """Outputs for arrays."""
    import numpy as np

    with scratch_folder("arrays") as folder:
        files = [Path(folder, f"input-{number}.npy") for number in range(len(arrays))]
        for file, array in zip(files, arrays, strict=True):
            np.save(file, np.asarray(array), allow_pickle=False)
        value = yield from call_artifact(artifact, files, None, Path(folder, "output.npy"))
        return [np.load(output["path"], allow_pickle=False) for output in value["outputs"]]


def _ended(submitted: Calls[dict[str, Any]]) -> Calls[dict[str, Any]]:
    return (yield from calls.ended(str((yield from submitted)["id"])))


def _done(submitted: Calls[dict[str, Any]]) -> Calls[dict[str, Any]]:
    """The result of a job, once it has ended."""
    return calls.value_of_job((yield from _ended(submitted)))
