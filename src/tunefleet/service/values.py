"""Requests and responses of the API, as models of the OpenAPI document."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

#: The SHA-256 of a file, in small hexadecimal digits.
Digest = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
#: A finite number above 0.
Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
Count = Annotated[int, Field(ge=1, le=10**9)]
Name = Annotated[str, Field(min_length=1, max_length=200)]


class ServiceState(StrEnum):
    """The state of a job. The list is closed; `reason` has the details."""

    QUEUED = "queued"
    RUNNING = "running"
    PAUSED = "paused"
    CANCELLING = "cancelling"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELLED = "cancelled"
    EXPIRED = "expired"


class JobColumn(StrEnum):
    """Sort columns of lists of jobs."""

    NETWORK = "network"
    STATE = "state"
    DEVICE = "device"
    LATENCY = "latency"
    FORECAST = "forecast"
    SPEEDUP = "speedup"
    TRIALS = "trials"
    SEARCHED = "searched"
    SUBMITTED = "submitted"


class AskedBody(BaseModel):
    """The body of a request; unknown fields are refused."""

    model_config = ConfigDict(extra="forbid")


class AskedUpload(AskedBody):
    """The announcement of a file: its SHA-256, its name with the suffix of its format, its size
    in bytes."""

    digest: Digest
    name: Annotated[str, Field(min_length=1, max_length=128)]
    size: Annotated[int, Field(ge=1)]


class NetworkEntry(BaseModel):
    """An uploaded file: a network, or arrays for calibration or measurement."""

    digest: str
    name: str
    kind: Literal["network", "arrays"]
    bytes: int
    created_at: float


class UploadStatus(BaseModel):
    """The bytes received of a file; `network` is set once it is complete and accepted."""

    digest: str
    offset: int
    size: int
    network: NetworkEntry | None = None


class AskedBudget(AskedBody):
    """The budget of a search, by default 1,000 trials. The search ends at the first limit that
    it reaches."""

    trials: Count | None = None
    trials_per_task: Count | None = None
    minutes: Positive | None = None
    device_minutes: Positive | None = None


class AskedAgreement(AskedBody):
    """What the delivered module must reach. The search ends as soon as it does."""

    latency_ms: Positive | None = None
    speedup: Positive | None = None
    most_lost: Positive | None = None


class AskedJob(AskedBody):
    """A job. `network` is the digest of an upload or the name of a network of the zoo;
    `evaluate` and `run` have an `artifact` instead. `calibrate` (for int8) and `inputs` are
    digests of arrays: for checks and measurements a `.npz` file for each shape; for `run` a
    `.npy` file for each input, with `repeat` timed calls. `place` needs at least two `devices`,
    each with its target, `cpu` for its own. `deadline` is in seconds since the epoch."""

    kind: Literal["tune", "build", "evaluate", "run", "place"] = "tune"
    network: Annotated[str, Field(max_length=200)] = ""
    artifact: Annotated[str, Field(pattern=r"^[0-9a-f]{6,32}$")] | None = None
    device: Name | None = None
    target: Annotated[str, Field(max_length=400)] = "cpu"
    threads: Annotated[int, Field(ge=1, le=4096)] | None = None
    shapes: dict[str, list[int] | list[list[int]]] = {}
    dims: dict[str, int | list[int]] = {}
    constants: dict[str, float | list[float]] = {}
    precision: Literal["float32", "bfloat16", "float16", "int8"] = "float32"
    calibrate: Digest | None = None
    inputs: Annotated[list[Digest], Field(max_length=16)] = []
    whole: bool = False
    budget: AskedBudget = AskedBudget()
    agreement: AskedAgreement = AskedAgreement()
    deadline: Annotated[float, Field(allow_inf_nan=False)] | None = None
    priority: Annotated[int, Field(ge=-100, le=100)] = 0
    transfer_learning: bool = True
    from_job: Annotated[str, Field(pattern=r"^[0-9a-f]{6,32}$")] | None = None
    measure: bool = False
    rounds: Annotated[int, Field(ge=1, le=1000)] = 12
    devices: Annotated[dict[Name, Annotated[str, Field(max_length=400)]], Field(max_length=16)] = {}
    repeat: Annotated[int, Field(ge=1, le=100_000)] | None = None


class Reason(BaseModel):
    """Why a job makes no progress, or how it ended: a code for programs, a sentence for people."""

    code: str
    text: str


class JobForecast(BaseModel):
    """The newest forecast of a running search: the 10, 50 and 90 % quantiles of its latency at
    the end of its budget, the time of that end, and the `probability` to reach its target by
    then."""

    low_ms: float
    median_ms: float
    high_ms: float
    ends_at: float
    probability: float | None = None


class QueueView(BaseModel):
    """When a new job would start and end, and the number of `jobs` under way, counted up to 50;
    null where earlier runs give no estimate. Without a job `ends_at` is when the last of them
    ends."""

    jobs: int
    starts_at: float
    ends_at: float | None


class JobView(BaseModel):
    """A job. Times are seconds since the epoch; `result` is that of `tune --json`, once there is
    one; `queue` is set in the response to its submission. `error` is the kind of error that
    ended a job, such as InputError, where it is known."""

    id: str
    kind: str
    network: str
    owner: str
    state: ServiceState
    reason: Reason | None = None
    error: str | None = None
    outcome: str | None = None
    created_at: float
    elapsed_s: float
    deadline: float | None = None
    priority: int = 0
    device: str
    target: str
    budget: dict[str, Any]
    agreement: dict[str, Any]
    trials: int
    latency_ms: float | None = None
    speedup: float | None = None
    artifact: str | None = None
    forecast: JobForecast | None = None
    queue: QueueView | None = None
    result: dict[str, Any] | None = None


class Page(BaseModel):
    """`next` is the cursor of the following page, null after the last one."""

    next: str | None = None


class JobPage(Page):
    """`of_newest` is the number of the newest jobs that a sorted list, or one filtered by a
    text, covers; it has no further page."""

    of_newest: int | None = None
    jobs: list[JobView]


class NetworkPage(Page):
    networks: list[NetworkEntry]


class KeptEventView(BaseModel):
    """`seq` is a number over the events of all jobs; `event` is the kind, whose fields follow."""

    model_config = ConfigDict(extra="allow")

    seq: int
    job: str
    at: float
    event: str | None


class EventPage(Page):
    events: list[KeptEventView]


class CurveSample(BaseModel):
    """The estimated latency of the network, from the best latencies of its tasks, after so many
    trials and seconds of the search."""

    trials: int
    seconds: float
    latency_ms: float


class CurveForecast(BaseModel):
    """The forecast for the end of the budget, made after so many trials and seconds: the 10, 50
    and 90 % quantiles of the latency, and the `probability` to reach the target by then."""

    trials: int
    seconds: float
    low_ms: float
    median_ms: float
    high_ms: float
    probability: float | None = None


class JobCurve(BaseModel):
    """The improvements of the estimate, and its last value; empty until each task has been
    measured. `forecast` is set while the search runs."""

    samples: list[CurveSample]
    forecast: CurveForecast | None = None


class ArtifactFile(BaseModel):
    name: str
    bytes: int
    sha256: str


class ArtifactView(BaseModel):
    """An artifact of a job, with the list of its files."""

    id: str
    job: str
    network: str
    target: str
    files: list[ArtifactFile]


class ArtifactPage(Page):
    artifacts: list[ArtifactView]


class DeviceView(BaseModel):
    """A device. `state` is free, measuring, busy (with a session of another client), unreachable
    or quarantined, with the reason in `detail`; `job` is set for one's own. `drift` is what the
    last measurement reported of its reference kernel; `quarantine_reason` and times, in seconds
    since the epoch, are those of the last quarantine; `quarantines` counts the recent ones."""

    name: str
    address: str
    what: str
    cores: int
    memory_gib: float
    machine: str
    state: Literal["free", "measuring", "busy", "unreachable", "quarantined"]
    detail: str = ""
    job: str | None = None
    ping_ms: float | None = None
    drift: str = ""
    drift_at: float | None = None
    quarantines: int = 0
    quarantine_reason: str = ""
    quarantined_at: float | None = None
    quarantined_until: float | None = None


class DeviceList(BaseModel):
    devices: list[DeviceView]


class RecordPage(Page):
    """Entries as in `tunefleet records best --json`."""

    records: list[dict[str, Any]]
