"""An artifact: a directory with everything needed to run a tuned network and to trust it.

module.so       code and byte code of what is delivered, a function for each shape it takes
module.safetensors  its weights
segments/       what stays in the source framework, if anything does
artifact.json   schema, network, target, device, toolchain, instructions, result, and the SHA-256 of
                every other file
records.jsonl   the records used, one per tuned task
report.html     for people
timeline.html   where and when its stages ran; of a job
README.md       how to run it
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from tunefleet.artifacts.cuda import INSTALL_CUDART
from tunefleet.artifacts.segments import FOLDER
from tunefleet.artifacts.signature import SUFFIX, check_signature
from tunefleet.artifacts.weights import weights_path
from tunefleet.core.identity import DeviceIdentity, ToolchainIdentity
from tunefleet.core.network import IntegerRange, NetworkInfo, Signature, TensorSpec
from tunefleet.core.printing import printable
from tunefleet.core.target import CudaTarget, Target
from tunefleet.errors import InputError, SetupError
from tunefleet.system.files import check_regular
from tunefleet.system.scratch import scratch_folder

SCHEMA = "tunefleet-artifact/2"

#: Who an artifact is for: programs, and people.
MANIFEST, REPORT, TIMELINE = "artifact.json", "report.html", "timeline.html"

#: Of the manifest: it holds names, shapes and figures.
_MOST_BYTES = 64 << 20
_CURE = "give the directory that `tunefleet tune` printed, or its run id"


@dataclass(frozen=True, slots=True)
class Artifact:
    path: Path
    network: NetworkInfo
    target: Target
    device: DeviceIdentity
    toolchain: ToolchainIdentity
    result: dict[str, Any]
    #: Instruction sets that the code uses, by the kernel's names for them.
    instructions: tuple[str, ...] = ()
    #: What the network was imported from: a path, or a name of the zoo.
    spec: str = ""
    #: Digest of that source, whatever shapes were chosen: it may have changed since.
    spec_digest: str = ""
    #: SHA-256 of each file, by its path below `path`; known of a published artifact.
    files: tuple[tuple[str, str], ...] = ()

    @property
    def module(self) -> Path:
        return self.path / "module.so"

    @property
    def manifest(self) -> Path:
        return self.path / MANIFEST

    @property
    def report(self) -> Path:
        return self.path / REPORT


def write_artifact(
    artifact: Artifact,
    *,
    module: Path,
    records: list[dict[str, Any]],
    report: str,
) -> Artifact:
    """Publish under `artifact.path` in one step: a reader sees all of it or nothing."""
    parent = artifact.path.parent
    try:
        parent.mkdir(parents=True, exist_ok=True)
        folder = scratch_folder("draft", parent)
    except OSError as error:
        raise SetupError(
            f"cannot write artifacts to {parent}: {error.strerror}", cure="use --home DIR"
        ) from error
    with folder:
        draft = Path(folder.name, artifact.path.name)
        try:
            published = _write(artifact, draft, module, records, report)
            if artifact.path.exists():
                shutil.rmtree(artifact.path)
            draft.rename(artifact.path)
        except OSError as error:
            raise SetupError(
                f"cannot write artifact {artifact.path}: {error.strerror}",
                cure="free some disk space",
            ) from error
    return published


def _write(
    artifact: Artifact,
    draft: Path,
    module: Path,
    records: list[dict[str, Any]],
    report: str,
) -> Artifact:
    """Write all files of an artifact to `draft`."""
    draft.mkdir()
    _copy_module(module, draft / "module.so")
    segments = module.parent / FOLDER
    if segments.is_dir():
        shutil.copytree(segments, draft / FOLDER)
    lines = [json.dumps(record, sort_keys=True) for record in records]
    (draft / "records.jsonl").write_text("".join(line + "\n" for line in lines), encoding="utf-8")
    (draft / REPORT).write_text(report, encoding="utf-8")
    (draft / "README.md").write_text(_readme(artifact), encoding="utf-8")
    files = tuple((str(p.relative_to(draft)), _sha256(p)) for p in sorted(_files(draft)))
    published = replace(artifact, files=files)
    (draft / MANIFEST).write_text(json.dumps(_to_json(published), indent=1), encoding="utf-8")
    return published


def _copy_module(module: Path, place: Path) -> None:
    shutil.copy(module, place)
    if weights_path(module).is_file():
        shutil.copy(weights_path(module), weights_path(place))


def update_result(artifact: Artifact, report: str) -> Artifact:
    """Replace the result and the report of a published artifact."""
    _replace(artifact.report, report)
    files = dict(artifact.files) | {REPORT: _sha256(artifact.report)}
    updated = replace(artifact, files=tuple(sorted(files.items())))
    _replace(artifact.manifest, json.dumps(_to_json(updated), indent=1))
    return updated


def add_timeline(artifact: Artifact, page: str) -> Artifact:
    """Put the page of the timeline beside the report; `update_result` then names its digest."""
    path = artifact.path / TIMELINE
    _replace(path, page)
    files = dict(artifact.files) | {TIMELINE: _sha256(path)}
    return replace(artifact, files=tuple(sorted(files.items())))


def _replace(path: Path, text: str) -> None:
    draft = path.with_name(f".{path.name}.draft")
    draft.write_text(text, encoding="utf-8")
    os.replace(draft, path)


def check_files(artifact: Artifact, module: Path) -> None:
    """Raises InputError where what running a module reads is not what was published."""
    root = artifact.path
    read = [module, weights_path(module), *_files(root / FOLDER)]
    _compare(artifact, [str(path.relative_to(root)) for path in read])


def check_all_files(artifact: Artifact) -> None:
    """Raises InputError where any file was changed, removed or added since it was published."""
    there = {str(path.relative_to(artifact.path)) for path in _files(artifact.path)}
    published = {name for name, _ in artifact.files}
    _compare(artifact, sorted(published | there - {MANIFEST, MANIFEST + SUFFIX}))


def _compare(artifact: Artifact, names: Iterable[str]) -> None:
    expected = dict(artifact.files)
    for name in names:
        path = artifact.path / name
        if name not in expected and not path.exists():
            continue
        if name not in expected:
            raise InputError(f"{path} is not of this artifact", cure="remove it, or tune again")
        try:
            digest = _sha256(path)
        except OSError as error:
            raise InputError(
                f"cannot read {path}: {error.strerror}", cure="copy the artifact again"
            ) from error
        if digest != expected[name]:
            raise InputError(
                f"{path} is not the file that was verified: it was damaged or replaced",
                cure="copy the artifact again, or tune again",
            )


def _files(root: Path) -> Iterable[Path]:
    return (p for p in root.rglob("*") if p.is_file())


def _sha256(path: Path) -> str:
    check_regular(path)
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _readme(artifact: Artifact) -> str:
    inputs = ", ".join(f'np.zeros({list(t.shape)}, "{t.dtype}")' for t in artifact.network.inputs)
    return f"""# {printable(" ".join(artifact.network.name.split()))}

{_runs_on(artifact)}

    pip install "tunefleet-{artifact.toolchain.tunefleet}-py3-none-any.whl[runtime]"
{_more(artifact)}
```python
import numpy as np
import tunefleet

with tunefleet.load("{artifact.path.name}") as module:
    print(module.signatures)
    outputs = module({inputs})
```

`report.html` shows how fast it is and what was verified, `records.jsonl` the schedule of each task.
Loading it runs its code: take it from people whom you trust.
"""


def _runs_on(artifact: Artifact) -> str:
    if isinstance(artifact.target, CudaTarget):
        return (
            f"Tuned by tunefleet for {artifact.device.name}. It runs on GPUs of this architecture "
            f"({artifact.target.arch}), with a driver for CUDA 13; no toolkit is needed."
        )
    return (
        f"Tuned by tunefleet for {artifact.device.name}, {artifact.target.threads} threads.\n"
        "It runs on processors with the same instructions; `artifact.json` names them."
    )


def _more(artifact: Artifact) -> str:
    return f"    {INSTALL_CUDART}\n" if isinstance(artifact.target, CudaTarget) else ""


def read_artifact(path: Path, signed_by: Path | None = None) -> Artifact:
    """Raises InputError naming what is wrong with the directory; with a public key, also where the
    artifact is not signed by its owner, or any of its files is not the one that was."""
    if not os.path.isdir(path):  # no error for what cannot be a path
        raise InputError(f"no artifact at {path}", cure=_CURE)
    check_regular(path / MANIFEST, _MOST_BYTES)
    try:
        content = (path / MANIFEST).read_bytes()
        if signed_by is not None:
            check_signature(content, path / MANIFEST, signed_by)
        value = json.loads(content)
    except FileNotFoundError:
        raise InputError(f"{path} is no artifact: it has no {MANIFEST}", cure=_CURE) from None
    except (OSError, ValueError, RecursionError) as error:
        raise InputError(f"{path}/{MANIFEST} cannot be read: {error}", cure=_CURE) from error
    schema = value.get("schema") if isinstance(value, dict) else None
    if schema != SCHEMA:
        raise InputError(
            f"{path} has schema {schema!r}, this tunefleet reads {SCHEMA!r}",
            cure="use the tunefleet that wrote it, or tune again, from its records",
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
                ranges=tuple(
                    None if within is None else IntegerRange(*map(int, within))
                    for within in network.get("ranges", ())
                ),
            ),
            target=Target.from_json(value["target"]),
            device=DeviceIdentity.from_json(value["device"]),
            toolchain=ToolchainIdentity.from_json(value["toolchain"]),
            result=dict(value["result"].items()),
            instructions=tuple(map(str, value["instructions"])),
            files=tuple((str(k), str(v)) for k, v in value["files"].items()),
            spec=value.get("spec", ""),
            spec_digest=value.get("spec_digest", ""),
        )
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise InputError(
            f"{path}/{MANIFEST} is damaged: it lacks what artifacts say", cure=_CURE
        ) from error
    if not artifact.module.is_file():
        raise InputError(f"{path} has no module.so", cure=_CURE)
    if signed_by is not None:
        check_all_files(artifact)
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
            "ranges": [within and [within.least, within.most] for within in network.ranges],
        },
        "spec": artifact.spec,
        "spec_digest": artifact.spec_digest,
        "target": artifact.target.to_json(),
        "device": artifact.device.to_json(),
        "toolchain": artifact.toolchain.to_json(),
        "instructions": list(artifact.instructions),
        "files": dict(artifact.files),
        "result": artifact.result,
    }


def _listed(specs: tuple[TensorSpec, ...]) -> list[Any]:
    return [[t.name, list(t.shape), t.dtype] for t in specs]


def _tensors(values: list[Any]) -> tuple[TensorSpec, ...]:
    return tuple(TensorSpec(name, tuple(shape), dtype) for name, shape, dtype in values)
