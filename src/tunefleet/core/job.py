"""A job: one request that a store holds, such as tuning a network for a target under a budget."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum

from tunefleet.core.agreement import NOTHING_AGREED, Agreed
from tunefleet.core.budget import Budget
from tunefleet.core.identity import DeviceIdentity, ToolchainIdentity
from tunefleet.core.ids import digest
from tunefleet.core.importing import NetworkSource
from tunefleet.core.network import NetworkInfo
from tunefleet.core.settings import TuneSettings
from tunefleet.core.step import Preparation
from tunefleet.core.target import Target

#: Why a search ended that had no tasks, or no more programs of them.
NOTHING_TO_TUNE = "nothing of this network can be tuned"
NOTHING_LEFT = "nothing is left to try"

#: What is said of the trials of a job whose stages share a device.
BESIDE_OTHERS = "its trials were measured at the same time as those of other jobs, on purpose"
#: Behind the kind of a device that stages share.
_SHARED = ", shared"


class JobState(StrEnum):
    """What the store says of a job. One is RUNNING until it is closed, whether a process works on
    it or not; `runs.jobs` says which it is. EXPIRED: its deadline passed before it had a result."""

    RUNNING = "running"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELLED = "cancelled"
    EXPIRED = "expired"


class JobKind(StrEnum):
    """What a job is to bring: a tuned network, a module of what is known, records, which device
    each task of a network is to run on, the figures of an artifact measured again, or the time of
    its calls on given inputs. An import brought records of elsewhere."""

    TUNE = "tune"
    BUILD = "build"
    COLLECT = "collect"
    PLACE = "place"
    EVALUATE = "evaluate"
    RUN = "run"
    IMPORT = "import"


@dataclass(frozen=True, slots=True)
class JobTerms:
    """On which terms a job is done; the same request with other terms is the same job.

    `owner` is the user's name. Of a higher `priority` more is done. A search ends so long before
    its `deadline` (seconds since the epoch) that its delivery can follow, where earlier runs say
    how long that takes; before, the predictive policy brings it forward.
    `look_ahead` lets an idle host select and build a task's next batch before the current one is
    measured; None leaves that to the policy. `served`: the server of its home does it, without the
    process that asked for it. `devices` names those that are measured on, and
    `device_kind` all of a kind; none where that is this machine.
    """

    owner: str = ""
    priority: int = 0
    deadline: float | None = None
    look_ahead: bool | None = None
    served: bool = False
    devices: tuple[str, ...] = ()
    device_kind: str = ""


@dataclass(frozen=True, slots=True)
class Collecting:
    """What a collection measures: only tasks with tensor instructions where `tensorised`. Its
    budget counts the trials of each task."""

    tensorised: bool = False


@dataclass(frozen=True, slots=True)
class Building:
    """What a build is made of: the programs that the job `from_job` verified, or the best of all
    jobs. `measure`: it is measured end to end too."""

    from_job: str = ""
    measure: bool = False


@dataclass(frozen=True, slots=True)
class PlacedOn:
    """A device that a network may be divided over, and the target that it is tuned for there."""

    device: str
    target: str
    threads: int | None = None
    device_key: str = ""


@dataclass(frozen=True, slots=True)
class Evaluated:
    """An artifact of the home that is measured again, by the id of its run; each side so many
    `rounds`."""

    artifact: str
    rounds: int


@dataclass(frozen=True, slots=True)
class Called:
    """An artifact of the home that is called on inputs, by the id of its run: `.npy` files in the
    order of its inputs, as paths below home. `repeat`: so many calls are timed too."""

    artifact: str
    inputs: tuple[str, ...]
    repeat: int | None = None


@dataclass(frozen=True, slots=True)
class JobSpec:
    """What was asked for, and on which terms. `fingerprint` says when the same command means the
    same job.

    `network` is what is known without an import; `source` is None in jobs of earlier versions.
    `agreed` has the terms other than the target latency of the budget. `shared`: its candidates are
    measured at the same time as those of other such jobs, and never serve another job. `tenant` is
    the user of a service whose records it uses and adds to; none is the home's own.
    """

    network: NetworkInfo
    target: Target
    device: DeviceIdentity
    toolchain: ToolchainIdentity
    budget: Budget
    settings: TuneSettings
    source: NetworkSource | None = None
    kind: JobKind = JobKind.TUNE
    terms: JobTerms = JobTerms()
    collecting: Collecting | None = None
    agreed: Agreed = NOTHING_AGREED
    building: Building | None = None
    divided: tuple[PlacedOn, ...] = ()
    evaluated: Evaluated | None = None
    called: Called | None = None
    shared: bool = False
    tenant: str = ""

    @property
    def measured_on(self) -> str:
        """The kind of resource on which its candidates are measured."""
        return shared_kind(self.device.hardware) if self.shared else self.device.hardware

    @property
    def agreement(self) -> Agreed:
        """What is agreed, with the target latency of the budget."""
        target_s = self.budget.target_latency_s
        return replace(self.agreed, latency_ms=target_s and target_s * 1e3)

    @property
    def preparation(self) -> Preparation:
        """What its import and check are found by. Raises ValueError for a job of an earlier
        version."""
        if self.source is None:
            raise ValueError(f"{self.network.name}: its job does not say where it came from")
        return Preparation(self.source, self.target, self.device, self.toolchain)

    @property
    def fingerprint(self) -> str:
        """A command repeated after a crash finds its job by this."""
        return digest(
            [
                self.network.digest,
                str(self.target),
                self.device.exact,
                self.toolchain.exact,
                self.budget.parts,
                self.settings.to_json(),
                *self.agreed.parts,
                *["shared"] * self.shared,
                *[{"tenant": self.tenant}] * bool(self.tenant),
            ]
        )


def shared_kind(kind: str) -> str:
    """The kind of the resources by which stages share a device of a kind: where one of them runs,
    none runs that needs the device alone."""
    return kind + _SHARED


@dataclass(frozen=True, slots=True)
class Job:
    job_id: str
    spec: JobSpec
    state: JobState
    created_at: float
    elapsed_s: float = 0.0
