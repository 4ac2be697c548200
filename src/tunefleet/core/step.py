"""The steps of a network around its search, as schedulable units: import and check before, choosing
winners, compiling, verifying, measuring and publishing after.

A step is named by its key and nothing else. Whoever runs it reads what earlier steps committed from
the store, files by the names of their content, and commits its own result, once.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from tunefleet.core.identity import DeviceIdentity, ToolchainIdentity
from tunefleet.core.ids import digest
from tunefleet.core.importing import NetworkSource
from tunefleet.core.network import Footprint, NetworkInfo, SegmentCopies
from tunefleet.core.roofline import Bandwidth
from tunefleet.core.statistics import Interval, interval
from tunefleet.core.target import Target
from tunefleet.core.task import WeightedTask
from tunefleet.core.trial import Built
from tunefleet.core.undisturbed import why_not_measurable


class StepKind(StrEnum):
    SPLIT = "split"
    IMPORT = "import"
    CHECK = "check"
    BASELINE = "baseline"
    BUILD_FINALISTS = "build finalists"
    SELECT_WINNERS = "select winners"
    COMPILE = "compile"
    VERIFY = "verify"
    PUBLISH = "publish"
    MEASURE = "measure"


#: Before a search: these belong to a preparation, which jobs of the same network share.
PREPARATION = (StepKind.IMPORT, StepKind.CHECK)
#: After it: these belong to a run.
WINNERS = (StepKind.BUILD_FINALISTS, StepKind.SELECT_WINNERS)
DELIVERY = (StepKind.COMPILE, StepKind.VERIFY, StepKind.PUBLISH, StepKind.MEASURE)


@dataclass(frozen=True, slots=True, order=True)
class StepKey:
    """`owner` is the id of a preparation or of a run."""

    owner: str
    kind: StepKind

    def __str__(self) -> str:
        return f"{self.kind} of {self.owner[:8]}"


#: Raised where what an import leaves tells more than before: earlier ones are then not reused.
_IMPORT_VERSION = 2


@dataclass(frozen=True, slots=True)
class Preparation:
    """What import and check depend on: jobs that agree in it share their results."""

    source: NetworkSource
    target: Target
    device: DeviceIdentity
    toolchain: ToolchainIdentity

    @property
    def id(self) -> str:
        parts = [
            self.source.identity,
            str(self.target),
            self.device.exact,
            self.toolchain.exact,
            self.toolchain.tunefleet,
        ]
        return digest(["preparation", _IMPORT_VERSION, *parts], 32)


@dataclass(frozen=True, slots=True)
class Remark:
    """Something that the user should know; `warning` where it may change what they trust."""

    text: str
    warning: bool = False


@dataclass(frozen=True, slots=True)
class SplitTasks:
    """The tasks of a network that is not compiled as a whole: those of which records are
    collected."""

    tasks: tuple[WeightedTask, ...]


#: Why an operator stays outside that draws random numbers.
IS_RANDOM = "it is random"


@dataclass(frozen=True, slots=True)
class SegmentInfo:
    """A part of a network that stays in its source framework; `flops` is an estimate, 0 where
    nothing is known."""

    nodes: tuple[str, ...]
    reason: str
    framework: str
    flops: float = 0.0

    @property
    def is_random(self) -> bool:
        """Whether it puts out other numbers at the same inputs each time."""
        return IS_RANDOM in self.reason


@dataclass(frozen=True, slots=True)
class Imported:
    """A network as its import left it.

    `module` names the folder with its plain module and what compiling reads again; `examples` the
    file of the example inputs of each signature. `references` say how its source framework is
    opened at each. `float_type` is the coarsest type that it computes in. `quantised`: it
    multiplies 8-bit integers. `copies` are those for its segments at the first signature, None on
    a processor. `lost` is how far its source is from the network in float32 that tunefleet
    quantised.
    """

    info: NetworkInfo
    tasks: tuple[WeightedTask, ...]
    footprint: Footprint
    float_type: str
    framework: str
    references: tuple[dict[str, Any], ...]
    segments: tuple[SegmentInfo, ...]
    module: str
    examples: str
    quantised: bool = False
    copies: SegmentCopies | None = None
    lost: float = 0.0

    @property
    def flops(self) -> float:
        return sum(t.total_flops for t in self.tasks)


class DifferenceMeasure(StrEnum):
    """How outputs are compared: by the largest difference, relative to the largest output, or by
    the root of the mean square of differences, relative to that of the output."""

    LARGEST = "largest"
    MEAN = "root mean square"


@dataclass(frozen=True, slots=True)
class Checked:
    """How far the plain module is from the source framework.

    `difference` and `tolerance` are what `measure` says. `expected` names the file of
    the inputs that were compared and the source framework's outputs. `ordered` as in
    `stages.agreement`. `caveats` are why the comparison says less than that of other networks.
    `peak_gflops`: what the device's threads reach at best in float32, None where that failed.
    `bandwidths`: how fast they read from each level of the memory, from the smallest.
    """

    difference: float
    tolerance: float
    ordered: bool
    expected: str
    caveats: tuple[str, ...] = ()
    peak_gflops: float | None = None
    measure: DifferenceMeasure = DifferenceMeasure.LARGEST
    bandwidths: tuple[Bandwidth, ...] = ()


@dataclass(frozen=True, slots=True)
class Finalist:
    """A candidate that may win; None where it cannot be built again. Earlier versions recorded two
    forms of it: it is built again then."""

    candidate_id: str
    built: Built | None = None


@dataclass(frozen=True, slots=True)
class Finalists:
    """What may win: for each task that has no winner yet its finalists and its plain schedule."""

    of_tasks: tuple[tuple[str, tuple[Finalist, ...], Built | None], ...]


@dataclass(frozen=True, slots=True)
class Winners:
    """How many tasks have a winner other than their plain schedule; each is in the store."""

    tuned: int


@dataclass(frozen=True, slots=True)
class Compiled:
    """`module` names the folder of the tuned module, `plain` the kernels in it of tasks that keep
    their plain schedule."""

    module: str
    plain: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Verified:
    """What is delivered: the tuned module, or the plain one and why. `difference` is that of the
    tuned module from the source framework. `graphs`: its kernels are launched as a CUDA graph.
    `known_share` is the share of the tuned module's latency that tasks with a verified program
    take, where nothing was searched; None where it is not known."""

    difference: float
    why_plain: str = ""
    graphs: bool = False
    known_share: float | None = None

    @property
    def delivered(self) -> str:
        return "plain" if self.why_plain else "tuned"


@dataclass(frozen=True, slots=True)
class Published:
    """The artifact lies below home under the id of its run."""

    run_id: str


@dataclass(frozen=True, slots=True)
class Rounds:
    """How networks are measured in turn: in how many rounds, fewer where these take longer than
    `limit_s` seconds, and how many seconds of one network a round has at most."""

    number: int
    limit_s: float = 40.0
    turn_s: float = 0.25


@dataclass(frozen=True, slots=True)
class Comparison:
    """Latencies in seconds by contender, of each round in turn; a slow one may have fewer rounds,
    the first of those of the others. `disturbed` is the share of the
    cores' time that other processes took meanwhile, or that a container's limit withheld; `moved`
    the relative change of the reference kernel over the measurement; `held_down` what held a GPU's
    clocks down at its end."""

    rounds: dict[str, tuple[float, ...]]
    disturbed: float
    moved: float = 0.0
    held_down: str = ""

    def latency(self, name: str) -> Interval:
        return interval(self.rounds[name])

    def ratio(self, slow: str, fast: str) -> Interval:
        """How many times as long one takes as the other, of each round's pair."""
        pairs = zip(self.rounds[slow], self.rounds[fast], strict=False)
        return interval([a / b for a, b in pairs])

    def why_no_latency(self, name: str) -> str:
        """Why the latency of a contender is not to be judged, or ""."""
        return self._why(self.latency(name))

    def why_no_ratio(self, slow: str, fast: str) -> str:
        """Why there is no ratio of the two, or ""."""
        return self._why(self.ratio(slow, fast))

    def _why(self, figure: Interval) -> str:
        if self.held_down:
            return f"the GPU's clocks were held down by {self.held_down}"
        return why_not_measurable(self.disturbed, figure, self.moved)

    @property
    def why_disturbed(self) -> str:
        """Why a figure of this comparison is missing, or "": ratios are those to the last one."""
        *others, last = self.rounds
        reasons = [self.why_no_latency(last), *(self.why_no_ratio(each, last) for each in others)]
        return next(filter(None, reasons), "")


@dataclass(frozen=True, slots=True)
class SourceMeasured:
    """The source framework alone, at each of the network's shapes: what a speed-up that is agreed
    is over, while the search knows no better."""

    comparisons: tuple[Comparison, ...]

    @property
    def latency_s(self) -> float | None:
        """Of an inference at each of the shapes, in sum, None where that is not to be judged."""
        if any(each.why_disturbed for each in self.comparisons):
            return None
        return sum(each.latency(name).median for each in self.comparisons for name in each.rounds)


@dataclass(frozen=True, slots=True)
class Measured:
    """End to end at each of the network's shapes, or none where one could not be measured; seconds
    per inference by kernel at the first. `peak_gflops` and `bandwidths` are those of the check:
    they stay with the job when the check is made again. `source_on_cpu`: beside a GPU the source
    framework was measured on the CPU. `estimated_s` is what the search's best programs of all tasks
    took together by then."""

    comparisons: tuple[Comparison, ...]
    kernels: dict[str, float]
    peak_gflops: float | None = None
    bandwidths: tuple[Bandwidth, ...] = ()
    source_on_cpu: bool = False
    estimated_s: float | None = None


StepResult = (
    SplitTasks
    | Imported
    | Checked
    | SourceMeasured
    | Finalists
    | Winners
    | Compiled
    | Verified
    | Published
    | Measured
)

RESULT_OF: dict[StepKind, type[StepResult]] = {
    StepKind.SPLIT: SplitTasks,
    StepKind.IMPORT: Imported,
    StepKind.CHECK: Checked,
    StepKind.BASELINE: SourceMeasured,
    StepKind.BUILD_FINALISTS: Finalists,
    StepKind.SELECT_WINNERS: Winners,
    StepKind.COMPILE: Compiled,
    StepKind.VERIFY: Verified,
    StepKind.PUBLISH: Published,
    StepKind.MEASURE: Measured,
}


@dataclass(frozen=True, slots=True)
class StepSpan:
    """When and where a finished step ran, without its result; seconds since the epoch."""

    key: StepKey
    resource_id: str
    attempt: int
    started_at: float
    seconds: float

    @property
    def ended_at(self) -> float:
        return self.started_at + self.seconds


@dataclass(frozen=True, slots=True)
class StepRun:
    """A finished step with the wall time it took, as `StageRun` is a finished stage."""

    key: StepKey
    result: StepResult
    started_at: float
    seconds: float
    remarks: tuple[Remark, ...] = field(default=(), compare=False)
    resource_id: str = ""
    attempt: int = 1

    @property
    def span(self) -> StepSpan:
        return StepSpan(self.key, self.resource_id, self.attempt, self.started_at, self.seconds)
