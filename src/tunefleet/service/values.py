"""What the API takes and gives, as models of the OpenAPI document."""

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


#: What webhooks are told of jobs.
EventType = Literal[
    "job.started",
    "job.succeeded",
    "job.failed",
    "job.cancelled",
    "job.expired",
    "job.interrupted",
]


class ServiceState(StrEnum):
    """What a job does. No more words will come; `reason` says why."""

    QUEUED = "queued"
    RUNNING = "running"
    PAUSED = "paused"
    CANCELLING = "cancelling"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELLED = "cancelled"
    EXPIRED = "expired"


class JobColumn(StrEnum):
    """What lists of jobs are sorted by."""

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
    """What a request says; an unknown field is refused."""

    model_config = ConfigDict(extra="forbid")


class AskedUpload(AskedBody):
    """A file that is to be sent: its SHA-256, its name with the ending of its format, its bytes."""

    digest: Digest
    name: Annotated[str, Field(min_length=1, max_length=128)]
    size: Annotated[int, Field(ge=1)]


class NetworkEntry(BaseModel):
    """A file that was uploaded: a network, or arrays to calibrate or measure with."""

    digest: str
    name: str
    kind: Literal["network", "arrays"]
    bytes: int
    created_at: float


class UploadStatus(BaseModel):
    """How much of a file has come; `network` is set where it is complete and was accepted."""

    digest: str
    offset: int
    size: int
    network: NetworkEntry | None = None


class AskedBudget(AskedBody):
    """Of a search; 1,000 trials where nothing is said. It ends with the first that is used up."""

    trials: Count | None = None
    trials_per_task: Count | None = None
    minutes: Positive | None = None
    device_minutes: Positive | None = None


class AskedAgreement(AskedBody):
    """What the delivered module has to reach. A search ends as soon as it does."""

    latency_ms: Positive | None = None
    speedup: Positive | None = None
    most_lost: Positive | None = None


class AskedJob(AskedBody):
    """A job. `network` is the digest of an upload or the name of a network of the zoo; for
    `evaluate` and `run` it is an `artifact` instead. `calibrate` (for int8) and `inputs` are
    digests of arrays: to check and measure with, a `.npz` file for each shape; for `run` a `.npy`
    file for each input, of which `repeat` calls are timed. `devices` of `place` are at least two,
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


class AskedWebhook(AskedBody):
    """Where one wants to be told of one's jobs, and of what: of all where nothing is named."""

    url: Annotated[str, Field(min_length=1, max_length=2000)]
    events: Annotated[list[EventType], Field(max_length=20)] = []


class ChangedWebhook(AskedBody):
    """Whether anything is sent."""

    disabled: bool


class WebhookView(BaseModel):
    """A webhook; `secret` is given once. `failures` of the next delivery in a row, which is tried
    again at `next_at`; `last` is what came of the last try; `disabled` why nothing is sent."""

    id: str
    url: str
    events: list[str]
    created_at: float
    failures: int
    next_at: float | None = None
    last: str = ""
    last_at: float | None = None
    disabled: str = ""
    secret: str | None = None


class WebhookList(BaseModel):
    webhooks: list[WebhookView]


class WebhookTest(BaseModel):
    """What came of a `ping`: the status that was answered, or why there was none."""

    delivered: bool
    status: int | None
    detail: str


class Reason(BaseModel):
    """Why a job does not go on, or why it ended so: a code for programs, a sentence for people."""

    code: str
    text: str


class JobForecast(BaseModel):
    """The newest forecast of a search that goes on: its latency at the end of its budget with 10,
    50 and 90 %, when that is, and the `probability` that its target is reached by then."""

    low_ms: float
    median_ms: float
    high_ms: float
    ends_at: float
    probability: float | None = None


class QueueView(BaseModel):
    """When a job that is entered now would begin and end, beside `jobs` that are under way, of
    which 50 are counted; null where earlier runs do not say. Without a job `ends_at` is when the
    last of them ends."""

    jobs: int
    starts_at: float
    ends_at: float | None


class JobView(BaseModel):
    """A job. Times are seconds since the epoch; `result` is that of `tune --json` once there is
    one; `queue` is given where the job was just entered."""

    id: str
    kind: str
    network: str
    owner: str
    state: ServiceState
    reason: Reason | None = None
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
    """`next` is the cursor of the page behind this one; null where there is none."""

    next: str | None = None


class JobPage(Page):
    """`of_newest`: that many of the newest jobs were looked at, where they were filtered by a text
    or sorted; then there is no page behind it."""

    of_newest: int | None = None
    jobs: list[JobView]


class NetworkPage(Page):
    networks: list[NetworkEntry]


class KeptEventView(BaseModel):
    """`seq` grows over all jobs; `event` is the kind, whose fields stand beside it."""

    model_config = ConfigDict(extra="allow")

    seq: int
    job: str
    at: float
    event: str | None


class EventPage(Page):
    events: list[KeptEventView]


class CurveSample(BaseModel):
    """The latency of the network as its tasks' best so far say it, after so many trials and seconds
    of the search."""

    trials: int
    seconds: float
    latency_ms: float


class CurveForecast(BaseModel):
    """What is expected at the end of the budget, after so many trials and seconds: with 10, 50 and
    90 % no more than these latencies; `probability` that a target is reached by then."""

    trials: int
    seconds: float
    low_ms: float
    median_ms: float
    high_ms: float
    probability: float | None = None


class JobCurve(BaseModel):
    """Where that became better, and the last of it; empty until each task has been measured. There
    is a forecast while the search goes on."""

    samples: list[CurveSample]
    forecast: CurveForecast | None = None


class ArtifactFile(BaseModel):
    name: str
    bytes: int
    sha256: str


class ArtifactView(BaseModel):
    """What a job delivered: its files, which are to be fetched one by one."""

    id: str
    job: str
    network: str
    target: str
    files: list[ArtifactFile]


class ArtifactPage(Page):
    artifacts: list[ArtifactView]


class DeviceView(BaseModel):
    """What measures. `state`: free, measuring, busy (with somebody else's session), unreachable or
    quarantined, for the reason in `detail`; `job` is given where it is one's own. `drift` is what
    was noted of its reference kernel beside the last measurement; of the last quarantine `reason`
    and times in seconds since the epoch; `quarantines` counts those lately."""

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
    """Entries as `tunefleet records best --json` has them."""

    records: list[dict[str, Any]]
