"""Who did what when, as rows of bars: the values of a Gantt chart and what is computed of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace


@dataclass(frozen=True, slots=True)
class Bar:
    """One attempt of a stage on a resource; times in seconds from the start of the chart.

    What has no task is a step of the job's network and no stage. `waited_s` is how long the stage
    was ready before it started; None where that is not known.
    """

    resource_id: str
    job: str
    stage: str
    task: str
    start_s: float
    end_s: float
    attempt: int = 1
    waited_s: float | None = None


@dataclass(frozen=True, slots=True)
class Gap:
    """A time in which a resource could not be used."""

    resource_id: str
    start_s: float
    end_s: float
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Timeline:
    """Bars by resource. `resources` are the rows from the top and `jobs` the order of the legend;
    what has bars and is not named follows in the order in which it started.

    `slots` is how many stages a resource may run at once where it is more than one.
    """

    bars: tuple[Bar, ...]
    resources: tuple[str, ...] = ()
    jobs: tuple[str, ...] = ()
    gaps: tuple[Gap, ...] = ()
    slots: Mapping[str, int] = field(default_factory=dict)

    @property
    def end_s(self) -> float:
        ends = [bar.end_s for bar in self.bars] + [gap.end_s for gap in self.gaps]
        return max(ends, default=0.0)

    def rows(self) -> dict[str, list[Bar]]:
        """The bars of each resource in the order of their start."""
        rows: dict[str, list[Bar]] = {name: [] for name in self.resources}
        for bar in sorted(self.bars, key=_start):
            rows.setdefault(bar.resource_id, []).append(bar)
        for gap in self.gaps:
            rows.setdefault(gap.resource_id, [])
        return rows

    def bars_of_jobs(self) -> dict[str, list[Bar]]:
        """The bars of each job in the order of their start; a job may have none."""
        by_job: dict[str, list[Bar]] = {name: [] for name in self.jobs}
        for bar in sorted(self.bars, key=_start):
            by_job.setdefault(bar.job, []).append(bar)
        return by_job

    def utilisation(self) -> dict[str, float]:
        """Share of the whole time in which each resource worked; all of its slots count."""
        whole = self.end_s
        return {
            name: sum(b.end_s - b.start_s for b in bars) / (whole * self.slots.get(name, 1))
            if whole
            else 0.0
            for name, bars in self.rows().items()
        }


def _start(bar: Bar) -> float:
    return bar.start_s


def tracks(bars: Sequence[Bar]) -> list[list[Bar]]:
    """Bars (in the order of their start) side by side: none overlaps another of its track."""
    rows: list[list[Bar]] = []
    for bar in bars:
        free = next((t for t in rows if t[-1].end_s <= bar.start_s), None)
        if free is None:
            rows.append([bar])
        else:
            free.append(bar)
    return rows


def merged(bars: Iterable[Bar], gap_s: float) -> list[Bar]:
    """One bar for neighbours of the same job and stage that are no further apart than `gap_s`."""
    joined: list[Bar] = []
    for bar in bars:
        last = joined[-1] if joined else None
        if last is not None and _alike(last, bar) and bar.start_s - last.end_s <= gap_s:
            joined[-1] = replace(last, end_s=max(last.end_s, bar.end_s))
        else:
            joined.append(bar)
    return joined


def _alike(one: Bar, other: Bar) -> bool:
    again = (one.attempt > 1) == (other.attempt > 1)
    return one.job == other.job and one.stage == other.stage and again


def shares(
    bars: Iterable[Bar],
    layer_of: Callable[[Bar], int],
    layers: int,
    end_s: float,
    buckets: int,
    slots: int = 1,
) -> list[list[float]]:
    """For each of `layers` layers, the share of each bucket of time in which its bars ran."""
    by_layer = [[0.0] * buckets for _ in range(layers)]
    width = end_s / buckets
    for bar in bars:
        layer = by_layer[layer_of(bar)]
        first = min(buckets - 1, int(bar.start_s / width))
        last = min(buckets - 1, int(bar.end_s / width))
        for bucket in range(first, last + 1):
            inside = min(bar.end_s, (bucket + 1) * width) - max(bar.start_s, bucket * width)
            layer[bucket] += max(0.0, inside) / (width * slots)
    return by_layer
