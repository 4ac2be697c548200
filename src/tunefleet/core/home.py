"""Where everything durable lies: the one place that names files and folders below a home."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from tunefleet.errors import SetupError

#: Characters by which a run or a job can be named.
SHORTEST_ID = 6


def default_home() -> Path:
    """`~/.tunefleet`: where everything durable lives unless the user says otherwise. Raises
    SetupError for a user who has no home folder, as some containers run one."""
    try:
        return Path.home() / ".tunefleet"
    except RuntimeError as error:
        raise SetupError(
            "this user has no home folder", cure="name one: --home DIR, or TUNEFLEET_HOME"
        ) from error


@dataclass(frozen=True, slots=True)
class Home:
    """The paths below a home folder; it makes none of them."""

    root: Path

    @property
    def store(self) -> Path:
        """The database of jobs and records."""
        return self.root / "store.sqlite"

    @property
    def artifacts(self) -> Path:
        """A folder for each run that delivered, by its id."""
        return self.root / "artifacts"

    @property
    def runs(self) -> Path:
        """A file for each run, by its id."""
        return self.root / "runs"

    @property
    def locks(self) -> Path:
        """A file for each job that a process works on."""
        return self.root / "locks"

    @property
    def control(self) -> Path:
        """What users ask of jobs that run."""
        return self.root / "control"

    @property
    def cost_models(self) -> Path:
        """Versions of cost models."""
        return self.root / "costmodels"

    @property
    def quantized(self) -> Path:
        """Networks that were quantised here, each in a folder named by what decides it."""
        return self.root / "quantized"

    @property
    def modules(self) -> Path:
        """Torch modules that were given from Python, exported."""
        return self.root / "modules"

    @property
    def objects(self) -> Path:
        """Modules and libraries on their way, a folder for each preparation and run."""
        return self.root / "objects"

    @property
    def devices(self) -> Path:
        """The devices that the user has named."""
        return self.root / "devices.json"

    @property
    def bugs(self) -> Path:
        """What is to be reported of internal errors."""
        return self.root / "bugs"
