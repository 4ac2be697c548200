"""An artifact: a directory with everything needed to run a tuned network and to trust it.

module.so       code and byte code of what is delivered, a function for each shape it takes
module.safetensors  its weights
segments/       what stays in the source framework, if anything does
untuned.so      the same network as TVM alone compiles it, for comparison, unless that would take
                seconds to run; with its weights
artifact.json   schema, network, target, device, toolchain, threads, result
records.jsonl   the records used, one per tuned task
report.html     for people
"""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tunefleet.core.identity import DeviceIdentity, ToolchainIdentity
from tunefleet.core.network import NetworkInfo, Signature, TensorSpec
from tunefleet.core.target import Target
from tunefleet.errors import InputError, SetupError

SCHEMA = "tunefleet-artifact/1"

#: The folder of segments beside a module, and the ending of its weights.
FOLDER = "segments"
WEIGHTS_SUFFIX = ".safetensors"


@dataclass(frozen=True, slots=True)
class Artifact:
    path: Path
    network: NetworkInfo
    target: Target
    device: DeviceIdentity
    toolchain: ToolchainIdentity
    result: dict[str, Any]
    #: What the network was imported from: a path, or a name of the zoo.
    spec: str = ""
    #: Digest of that source, whatever shapes were chosen: it may have changed since.
    spec_digest: str = ""

    @property
    def module(self) -> Path:
        return self.path / "module.so"

    @property
    def untuned(self) -> Path:
        return self.path / "untuned.so"


def write_artifact(
    artifact: Artifact,
    *,
    module: Path,
    untuned: Path | None,
    records: list[dict[str, Any]],
    report: str,
) -> None:
    """Publish under `artifact.path` in one step: a reader sees all of it or nothing."""
    parent = artifact.path.parent
    try:
        parent.mkdir(parents=True, exist_ok=True)
        draft = Path(tempfile.mkdtemp(prefix=".draft-", dir=parent))
    except OSError as error:
        raise SetupError(
            f"cannot write artifacts to {parent}: {error.strerror}", cure="use --home DIR"
        ) from error
    try:
        _copy_module(module, draft / "module.so")
        if untuned is not None:
            _copy_module(untuned, draft / "untuned.so")
        segments = module.parent / FOLDER
        if segments.is_dir():
            shutil.copytree(segments, draft / FOLDER)
        lines = [json.dumps(record, sort_keys=True) for record in records]
        (draft / "records.jsonl").write_text("".join(line + "\n" for line in lines))
        (draft / "report.html").write_text(report)
        (draft / "artifact.json").write_text(json.dumps(_to_json(artifact), indent=1))
        draft.chmod(0o755)
        if artifact.path.exists():
            shutil.rmtree(artifact.path)
        draft.rename(artifact.path)
    except OSError as error:
        shutil.rmtree(draft, ignore_errors=True)
        raise SetupError(
            f"cannot write artifact {artifact.path}: {error.strerror}", cure="free some disk space"
        ) from error


def _copy_module(module: Path, place: Path) -> None:
    shutil.copy(module, place)
    weights = module.with_suffix(WEIGHTS_SUFFIX)
    if weights.is_file():
        shutil.copy(weights, place.with_suffix(WEIGHTS_SUFFIX))


def update_result(artifact: Artifact, report: str) -> None:
    """Replace the result and the report of a published artifact."""
    for name, text in (
        ("artifact.json", json.dumps(_to_json(artifact), indent=1)),
        ("report.html", report),
    ):
        draft = artifact.path / f".{name}.draft"
        draft.write_text(text)
        os.replace(draft, artifact.path / name)


def read_artifact(path: Path) -> Artifact:
    """Raises InputError naming what is wrong with the directory."""
    cure = "give the directory that `tunefleet tune` printed, or its run id"
    if not path.is_dir():
        raise InputError(f"no artifact at {path}", cure=cure)
    try:
        value = json.loads((path / "artifact.json").read_text())
    except FileNotFoundError:
        raise InputError(f"{path} is not an artifact: it has no artifact.json", cure=cure) from None
    except (OSError, ValueError) as error:
        raise InputError(f"{path}/artifact.json cannot be read: {error}", cure=cure) from error
    if value.get("schema") != SCHEMA:
        raise InputError(
            f"{path} has schema {value.get('schema')!r}, this tunefleet reads {SCHEMA!r}",
            cure="use the tunefleet that wrote it, or tune again",
        )
    try:
        network = value["network"]
        artifact = Artifact(
            path=path,
            network=NetworkInfo(
                name=network["name"],
                source=network["source"],
                digest=network["digest"],
                inputs=_tensors(network["inputs"]),
                outputs=_tensors(network["outputs"]),
                others=tuple(
                    Signature(_tensors(inputs), _tensors(outputs))
                    for inputs, outputs in network.get("others", ())
                ),
                constants=tuple((n, tuple(v)) for n, v in network.get("constants", ())),
            ),
            target=Target.from_json(value["target"]),
            device=DeviceIdentity.from_json(value["device"]),
            toolchain=ToolchainIdentity.from_json(value["toolchain"]),
            result=value["result"],
            spec=value.get("spec", ""),
            spec_digest=value.get("spec_digest", ""),
        )
    except (KeyError, TypeError, ValueError) as error:
        raise InputError(f"{path}/artifact.json is damaged: {error!r}", cure=cure) from error
    if not artifact.module.is_file():
        raise InputError(f"{path} has no module.so", cure=cure)
    return artifact


def _to_json(artifact: Artifact) -> dict[str, Any]:
    network = artifact.network
    return {
        "schema": SCHEMA,
        "network": {
            "name": network.name,
            "source": network.source,
            "digest": network.digest,
            "inputs": _listed(network.inputs),
            "outputs": _listed(network.outputs),
            "others": [[_listed(s.inputs), _listed(s.outputs)] for s in network.others],
            "constants": [[name, list(values)] for name, values in network.constants],
        },
        "spec": artifact.spec,
        "spec_digest": artifact.spec_digest,
        "target": artifact.target.to_json(),
        "device": artifact.device.to_json(),
        "toolchain": artifact.toolchain.to_json(),
        "result": artifact.result,
    }


def _listed(specs: tuple[TensorSpec, ...]) -> list[Any]:
    return [[t.name, list(t.shape), t.dtype] for t in specs]


def _tensors(values: list[Any]) -> tuple[TensorSpec, ...]:
    return tuple(TensorSpec(name, tuple(shape), dtype) for name, shape, dtype in values)
