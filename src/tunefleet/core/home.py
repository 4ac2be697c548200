"""Paths of all durable files: the only module that names files and folders below a home."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from tunefleet.errors import SetupError

#: Characters allowed in the id of a run or a job.
SHORTEST_ID = 6


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
    def bugs(self) -> Path:
        """Reports of internal errors."""
        return self.root / "bugs"
