"""The result of a run: what `Session.result`, `tune` and the artifact contain, and reports show."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, is_dataclass, replace
from typing import Any

from tunefleet.core.agreement import JudgedAgreement
from tunefleet.core.budget import Budget
from tunefleet.core.identity import DeviceIdentity, ToolchainIdentity
from tunefleet.core.network import NetworkInfo, SegmentCopies
from tunefleet.core.notebook import html_table
from tunefleet.core.roofline import Bandwidth
from tunefleet.core.statistics import Interval
from tunefleet.core.step import StepRun

SCHEMA = "tunefleet-result/5"

#: The largest figure that tables and pages can show.
_MOST = 1e18


def to_json(value: Any) -> Any:
    """A value of this module as plain JSON: dataclasses become objects, tuples become lists."""
    if isinstance(value, DeviceIdentity | ToolchainIdentity):
        return value.to_json()
    if is_dataclass(value):
        return {each.name: to_json(getattr(value, each.name)) for each in fields(value)}
    if isinstance(value, Mapping):
        return {str(name): to_json(each) for name, each in value.items()}
    if isinstance(value, tuple | list):
        return [to_json(each) for each in value]
    return value


def _check_figures(owner: Any) -> None:
    """Raises ValueError where a figure is negative, infinite, or too large to be shown."""
    for each in fields(owner):
        value = getattr(owner, each.name)
        if isinstance(value, Interval):
            figures = [value.low, value.median, value.high]
        elif isinstance(value, Mapping):
            figures = list(value.values())
        else:
            figures = [value]
        for figure in figures:
            if isinstance(figure, int | float) and not 0 <= figure <= _MOST:
                raise ValueError(f"{each.name} is {figure}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Baseline:
    """What the network is compared with: its source framework, or on another machine the network
    with plain schedules.

    `speedup` is how many times as long the baseline takes as what is delivered; None where the
    measurement does not support a ratio, for the reason in `why_no_speedup`.
    """

    name: str
    kind: str
    latency_ms: Interval
    speedup: Interval | None = None
    why_no_speedup: str | None = None

    def __post_init__(self) -> None:
        _check_figures(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredShape:
    """Latencies end to end at one of the network's shapes.

    `tuned_ms` is the latency of what is delivered; `speedup` is that of the first baseline, which
    is what the user has today. `disturbed` is the share of the cores' time that other programs
    took during the measurement; `why_disturbed` says why `tuned_ms` is not to be judged.
    """

    inputs: tuple[str, ...] = ()
    tuned_ms: Interval | None = None
    speedup: Interval | None = None
    why_no_speedup: str | None = None
    baselines: tuple[Baseline, ...] = ()
    disturbed: float | None = None
    why_disturbed: str | None = None

    def __post_init__(self) -> None:
        _check_figures(self)

    @property
    def is_complete(self) -> bool:
        """Whether the latency and every ratio were measured without disturbance."""
        measured = self.tuned_ms is not None and self.why_disturbed is None
        return measured and all(baseline.speedup for baseline in self.baselines)


def of_shape(shape: MeasuredShape) -> dict[str, Any]:
    """The fields of a shape, for the value that has them as its own."""
    return {each.name: getattr(shape, each.name) for each in fields(MeasuredShape)}


def _latency_facts(shape: MeasuredShape) -> list[tuple[str, str]]:
    """The latency and the speed-up, or why there is none, in a few words."""
    latency, gain = shape.tuned_ms, shape.speedup
    times = f"{gain.median:.3g} ({gain.low:.3g} to {gain.high:.3g})" if gain else ""
    facts = [
        ("latency", f"{latency.median:.3g} ms" if latency else ""),
        ("speed-up", times or shape.why_no_speedup or ""),
    ]
    return [(name, value) for name, value in facts if value]


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskResult:
    """One task after the search.

    `latency_us` is that of one execution, None where the task was not measured; `default_us` that
    of its default schedule. `network_share` is its share of the sum of all tasks, None until every
    task was measured. `peak_share` is its share of the measured peak. `bytes` are those of its
    tensors, each once; `limit_share` is the least time that the device needs for its FLOPs and
    bytes (`core.roofline`) over its latency, None where that is not known. `source`: tuned, reused
    (a record of an earlier job) or default.
    """

    task_id: str = ""
    name: str = ""
    shapes: str = ""
    weight: int = 1
    flops: float | None = None
    trials: int = 0
    failed: int = 0
    latency_us: float | None = None
    default_us: float | None = None
    gflops: float | None = None
    bytes: int | None = None
    source: str = ""
    winograd: bool = False
    intrinsic: str = ""
    peak_share: float | None = None
    limit_share: float | None = None
    network_share: float | None = None

    def __post_init__(self) -> None:
        _check_figures(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class CurvePoint:
    """A point of the tuning curve; `latency_ms` is the sum of the tasks' best latencies, None
    until every task has one."""

    trials: int
    wall_s: float
    latency_ms: float | None = None

    def __post_init__(self) -> None:
        _check_figures(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class OutsideSegment:
    """A part of the network that stays in its source framework; `flops` is an estimate."""

    nodes: tuple[str, ...]
    reason: str
    flops: float = 0.0

    def __post_init__(self) -> None:
        _check_figures(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class Outside:
    """Everything that stays in the source framework, and its shares of FLOPs and time. `copies` are
    those of its tensors, None where the network runs on a processor."""

    framework: str
    segments: tuple[OutsideSegment, ...]
    share_of_flops: float | None = None
    share_of_time: float | None = None
    copies: SegmentCopies | None = None

    def __post_init__(self) -> None:
        _check_figures(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class ResultNetwork:
    """The network; `inputs` and `outputs` as `name: dtype[shape]`."""

    name: str = ""
    source: str = ""
    digest: str = ""
    inputs: tuple[str, ...] = ()
    outputs: tuple[str, ...] = ()

    @classmethod
    def of(cls, info: NetworkInfo) -> ResultNetwork:
        inputs, outputs = (tuple(map(str, each)) for each in (info.inputs, info.outputs))
        return cls(
            name=info.name, source=info.source, digest=info.digest, inputs=inputs, outputs=outputs
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Differences:
    """How far the outputs of each module are from those of the source framework; infinite where
    they have another shape."""

    plain: float | None = None
    tuned: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class StepTime:
    """When and where a step ran; `started_at` in seconds since the epoch."""

    step: str
    resource: str
    attempt: int
    started_at: float
    seconds: float

    @classmethod
    def of(cls, run: StepRun) -> StepTime:
        return cls(
            step=str(run.key.kind),
            resource=run.resource_id,
            attempt=run.attempt,
            started_at=run.started_at,
            seconds=run.seconds,
        )

    def __post_init__(self) -> None:
        _check_figures(self)


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class RunResult(MeasuredShape):
    """Everything known about a run. A part that is not known yet is None or empty.

    The figures of `MeasuredShape` are those of the network's first shape; `shapes` has those of
    all where there are several. `host_cores` and `device_cores` are those of this machine that
    built and measured, as `0,2-3`; "" in results of earlier versions. `wall` has seconds by stage
    and step. `verified` is of what is delivered. `kernels_ms` is the sum of the delivered module's
    kernels, measured one by one.
    `bandwidths` are how fast the device's threads read from each level of its memory, from the
    smallest. `reused` and `known` count tasks with a record of an earlier job as winner, and with
    any; `tuned_tasks` those of which at least one program was measured, now or earlier.
    `known_share` is the share of the latency of its tasks that those with a verified record take,
    where nothing was searched. `shared`: candidates were measured beside those of other jobs on
    purpose; what is delivered was measured alone.
    """

    schema: str = SCHEMA
    run: str = ""
    job: str | None = None
    resumed: bool = False
    shared: bool = False
    network: ResultNetwork = field(default_factory=ResultNetwork)
    target: str = ""
    threads: int | None = None
    device: DeviceIdentity | None = None
    host_cores: str = ""
    device_cores: str = ""
    toolchain: ToolchainIdentity | None = None
    budget: Budget | None = None
    agreement: JudgedAgreement | None = None
    stopped: str | None = None
    trials: int = 0
    failures: Mapping[str, int] = field(default_factory=dict)
    failure_texts: Mapping[str, tuple[tuple[str, int], ...]] = field(default_factory=dict)
    wall_s: float | None = None
    wall: Mapping[str, float] = field(default_factory=dict)
    steps: tuple[StepTime, ...] = ()
    delivered: str | None = None
    why_plain: str | None = None
    verified: bool = False
    difference: Differences = field(default_factory=Differences)
    tolerance: float | None = None
    difference_measure: str | None = None
    peak_gflops: float | None = None
    bandwidths: tuple[Bandwidth, ...] = ()
    kernels_ms: float | None = None
    notes: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    outside: Outside | None = None
    tasks: tuple[TaskResult, ...] = ()
    reused: int = 0
    known: int = 0
    tuned_tasks: int = 0
    known_share: float | None = None
    curve: tuple[CurvePoint, ...] = ()
    shapes: tuple[MeasuredShape, ...] = ()
    artifact: str | None = None
    report: str | None = None
    timeline: str | None = None

    def __post_init__(self) -> None:
        _check_figures(self)

    @property
    def tasks_ms(self) -> float | None:
        """The sum of the tasks as they were measured in the search; None until all were."""
        if not self.tasks or not all(task.latency_us for task in self.tasks):
            return None
        return sum((task.latency_us or 0.0) * task.weight / 1e3 for task in self.tasks)

    @property
    def share_of_tuned(self) -> float | None:
        """The share of the tasks' latency that those without their plain schedule take; None until
        all were measured."""
        shares = [(task.network_share, task.source != "default") for task in self.tasks]
        if not shares or any(share is None for share, _ in shares):
            return None
        return min(1.0, sum(share or 0.0 for share, tuned in shares if tuned))

    def __repr__(self) -> str:
        return f"<tunefleet.RunResult {', '.join(f'{k} {v}' for k, v in self.facts())}>"

    def _repr_html_(self) -> str:
        """For notebooks: what was tuned, and what came of it."""
        return html_table([*self.facts(), ("artifact", self.artifact or "not published")])

    def facts(self) -> list[tuple[str, str]]:
        """What was tuned and what came of it, in a few words."""
        facts = [
            ("network", self.network.name),
            ("run", self.run[:8]),
            ("delivered", self.delivered or "nothing yet"),
            ("trials", "" if self.trials is None else str(self.trials)),
        ]
        return [*((name, value) for name, value in facts if value), *_latency_facts(self)]

    @property
    def measured_shapes(self) -> tuple[MeasuredShape, ...]:
        """What was measured at each shape; empty where nothing was."""
        return self.shapes or ((self,) if self.tuned_ms is not None else ())

    @property
    def lacks_figures(self) -> bool:
        """Whether a latency or a ratio is missing that measuring again could give."""
        shapes = self.measured_shapes
        return not shapes or not all(shape.is_complete for shape in shapes)

    def measured_again(self, shapes: Sequence[MeasuredShape]) -> RunResult:
        """This result with the figures of a later measurement, at each of its shapes."""
        agreement = self.agreement
        return replace(
            self,
            **of_shape(shapes[0]),
            shapes=tuple(shapes) if len(shapes) > 1 else (),
            agreement=agreement and agreement.judged_again(shapes, self.trials),
        )

    def evaluated(self, evaluation: Evaluation) -> RunResult:
        """This result with the figures and warnings of a later evaluation of its artifact."""
        warnings = dict.fromkeys([*self.warnings, *evaluation.warnings])
        again = self.measured_again(evaluation.shapes or (evaluation,))
        return replace(again, warnings=tuple(warnings))

    def to_dict(self) -> dict[str, Any]:
        """The result as JSON, with its schema first: what `--json` writes."""
        return {"schema": self.schema, **to_json(self)}


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelTime:
    """A kernel of the delivered module and its time in one inference."""

    name: str
    ms: float

    def __post_init__(self) -> None:
        _check_figures(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class Evaluation(MeasuredShape):
    """An artifact measured again; figures as in `RunResult`. `filled_in` says where they were
    missing and are now: in the "report" of the artifact, in the list of "jobs"."""

    artifact: str = ""
    network: str = ""
    target: str = ""
    threads: int | None = None
    warnings: tuple[str, ...] = ()
    kernels: tuple[KernelTime, ...] = ()
    shapes: tuple[MeasuredShape, ...] = ()
    filled_in: tuple[str, ...] = ()

    def _repr_html_(self) -> str:
        """For notebooks: each latency, and what is gained over each baseline."""
        return html_table([("network", self.network), *_latency_facts(self)])

    def to_dict(self) -> dict[str, Any]:
        """The evaluation as JSON."""
        return dict(to_json(self))
