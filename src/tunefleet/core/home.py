"""Paths of all durable files: the only module that names files and folders below a home."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from tunefleet.core.ids import digest
from tunefleet.core.importing import NetworkSource
from tunefleet.errors import SetupError

#: Characters allowed in the id of a run or a job.
SHORTEST_ID = 6
#: What in a reference to a source framework may be a path.
_PATHS = ("path", "spec")


def default_home() -> Path:
    """`~/.tunefleet`, the default home. Raises SetupError when the user has no home folder, as in
    some containers."""
    try:
        return Path.home() / ".tunefleet"
    except RuntimeError as error:
        raise SetupError(
            "this user has no home folder", cure="name one: --home DIR, or TUNEFLEET_HOME"
        ) from error


@dataclass(frozen=True, slots=True)
class Home:
    """The paths below a home folder; none of them is created here."""

    root: Path

    @property
    def store(self) -> Path:
        """The database of jobs and records."""
        return self.root / "store.sqlite"

    @property
    def artifacts(self) -> Path:
        """A folder per run that delivered an artifact, named by the run's id."""
        return self.root / "artifacts"

    @property
    def cost_models(self) -> Path:
        """Versions of cost models."""
        return self.root / "costmodels"

    @property
    def quantized(self) -> Path:
        """Networks quantised by tunefleet, each in a folder named by the digest of its inputs."""
        return self.root / "quantized"

    @property
    def networks(self) -> Path:
        """Copies of the files of networks and inputs of jobs, kept by content."""
        return self.root / "networks"

    def relative(self, path: str) -> str:
        """A path as jobs and steps have it: from this home on where it lies below."""
        place, root = Path(path).absolute(), self.root.absolute()
        return str(place.relative_to(root)) if place.is_relative_to(root) else path

    def absolute(self, path: str) -> str:
        """Where a path of `relative` lies; a name of the zoo, and any other path, stays."""
        below = Path(path).parts[0] in [folder.name for folder in self._of_networks]
        return str(self.root.absolute() / path) if below else path

    def resolved(self, source: NetworkSource) -> NetworkSource:
        """A network before its import, as it is read here."""
        inputs = [replace(file, path=self.absolute(file.path)) for file in source.options.inputs]
        options = replace(source.options, inputs=tuple(inputs))
        return replace(source, spec=self.absolute(source.spec), options=options)

    def relative_reference(self, reference: Mapping[str, Any]) -> dict[str, Any]:
        """How a source framework is opened (`frontends.references`), as steps have it."""
        named = {key: self.relative(reference[key]) for key in _PATHS if key in reference}
        return {**reference, **named}

    def absolute_reference(self, reference: Mapping[str, Any], spec: str) -> dict[str, Any]:
        """The same as it is opened here for the network `spec`: another job, of a file of another
        name and equal content, may have left it."""
        named = {
            key: self.absolute(spec if Path(path).parts[:1] == (self.networks.name,) else path)
            for key, path in reference.items()
            if key in _PATHS
        }
        return {**reference, **named}

    @property
    def _of_networks(self) -> tuple[Path, ...]:
        return self.networks, self.modules, self.quantized

    @property
    def modules(self) -> Path:
        """Exported torch modules and inputs that were passed from Python, each in a folder named by
        its digest."""
        return self.root / "modules"

    @property
    def objects(self) -> Path:
        """Intermediate modules and libraries, a folder per preparation and run."""
        return self.root / "objects"

    @property
    def devices(self) -> Path:
        """The registered devices."""
        return self.root / "devices.json"

    def neighbours(self, host: str) -> Path:
        """Which cores of a machine, named by its host name, slow each other down."""
        return self.root / "neighbours" / f"{host}.json"

    @property
    def uploads(self) -> Path:
        """Files that users of the service send in parts, a folder for each of them."""
        return self.root / "uploads"

    @property
    def audit_log(self) -> Path:
        """What users of the service did, a JSON line each."""
        return self.root / "audit.jsonl"

    @property
    def server_socket(self) -> Path:
        """The socket of the server of this home."""
        return self.root / "serve.sock"

    @property
    def server_log(self) -> Path:
        """What a server says that no terminal shows."""
        return self.root / "serve.log"

    @property
    def logs(self) -> Path:
        """What runs did: a file for each, named by its id, and older parts of long ones."""
        return self.root / "logs"

    @property
    def outputs(self) -> Path:
        """Outputs of jobs of kind `run`, by their tenant and job."""
        return self.root / "outputs"

    def outputs_of(self, tenant: str) -> Path:
        """Outputs of a tenant's jobs, a folder for each of them."""
        return self.outputs / digest(["outputs", tenant])

    @property
    def bugs(self) -> Path:
        """Reports of internal errors."""
        return self.root / "bugs"
