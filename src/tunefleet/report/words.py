"""Names and sentences that the terminal and the page share."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from tunefleet.core.agreement import AgreementOutcome, JudgedAgreement
from tunefleet.core.identity import DeviceIdentity, ToolchainIdentity
from tunefleet.core.job import NOTHING_LEFT, NOTHING_TO_TUNE
from tunefleet.core.result import RunResult, TaskResult
from tunefleet.core.statistics import Interval
from tunefleet.core.undisturbed import NOT_MEASURABLE
from tunefleet.report.units import (
    TIMES,
    UNKNOWN,
    format_bytes,
    format_difference,
    format_interval,
    format_latency,
    format_seconds,
    format_share,
    format_some,
)

SHARE_OF_PEAK = "peak"
#: The times of stages are rounded, and measured apart.
_AT_ONCE = 1.01

#: Parts of a run's wall time, in the order in which they happen: stages of its tasks, steps of its
#: network, and what results before schema 3 called other names.
STAGE_NAMES = {
    "split": "split into tasks",
    "import": "import the network",
    "check": "check the import",
    "baseline": "measure the source framework",
    "select": "select candidates",
    "build": "build candidates",
    "profile": "profile on the device",
    "update": "update the cost model",
    "build finalists": "build finalists",
    "select winners": "select and verify winners",
    "finalists": "verify winners",
    "compile": "compile the network",
    "verify": "verify the tuned network",
    "publish": "publish the artifact",
    "measure": "measure end to end",
    "evaluate": "measure end to end",
    "other": "other",
}

HOW_MEASURED = (
    "Candidates are built and run in worker processes, so that one that crashes or hangs fails "
    "alone; on the device nothing else of the run works meanwhile. After a warm-up, each runs "
    "many short repeats with a fixed number of threads and is ranked by their 10th percentile, "
    "because the noise of a shared machine only ever adds; one far behind the best gets few "
    "repeats. A reference kernel runs before and after each batch, and a batch over which it "
    "drifts is measured again. The best candidates of each task are measured once more, longer "
    "and in turn, and their outputs are checked against the plainly scheduled program. The whole "
    "network is measured in turn (A B C A B C …) with the framework it comes from and, where that "
    "takes no more than seconds, with what TVM alone makes of it, with the same threads; latencies "
    "and speed-ups are medians over the rounds with distribution-free 95 % intervals. Its outputs "
    "are compared with those of the source framework."
)


def verdict(result: RunResult) -> tuple[bool, str]:
    """Whether what is delivered is all that was hoped for, and what it is."""
    plain = result.delivered == "plain"
    difference = result.difference.plain if plain else result.difference.tuned
    off = ""
    if difference is not None:
        off = f", differs by {format_difference(difference)} of the {difference_basis(result)}"
    if plain and result.why_plain == NOTHING_TO_TUNE:
        return False, f"the network as imported, verified{off}: {NOTHING_TO_TUNE}"
    if plain:
        why = result.why_plain or "tuning gave nothing better"
        return False, f"the network without what the search found: {why}"
    some = result.tasks and result.tuned_tasks < len(result.tasks)
    tuned = f" ({tuned_text(result)})" if some else ""
    if result.verified:
        return not some, f"the tuned network{tuned}, verified against the source framework{off}"
    return False, f"the tuned network{tuned}, not verified{off}"


def tuned_text(result: RunResult) -> str:
    """`3 of 34 tasks tuned`."""
    return f"{result.tuned_tasks} of {format_some(len(result.tasks), 'task')} tuned"


def known_text(result: RunResult) -> str:
    """`93.1 % of the latency: 20 of 29 tasks have a verified program`."""
    known = sum(task.source != "default" for task in result.tasks)
    of = f"{known} of {format_some(len(result.tasks), 'task')}"
    have = "has" if known == 1 else "have"
    return f"{format_share(result.known_share)} of the latency: {of} {have} a verified program"


def agreement_text(agreement: JudgedAgreement, run: str) -> str:
    """What became of what was agreed; `run` is the id that `evaluate` takes."""
    if agreement.outcome is not AgreementOutcome.NOT_JUDGED:
        return agreement.text
    return f"{agreement.text}; `tunefleet evaluate {run[:8] or 'ID'}` judges it"


def ratio_text(speedup: Interval | None, why: str | None, run: str) -> str:
    """A ratio with its interval, or why there is none; `run` is the id that `evaluate` takes."""
    if speedup is not None:
        if speedup.median < 1:
            return f"{format_interval(speedup.inverse(), TIMES)} slower"
        return f"{format_interval(speedup, TIMES)} faster"
    if not why:
        return ""
    return f"{NOT_MEASURABLE}: {why}; `tunefleet evaluate {run[:8] or 'ID'}` measures again"


def at_once_text(result: RunResult) -> str:
    """That the times of stages are more than the wall time; empty where they are not."""
    total = sum(result.wall.values())
    if result.wall_s is None or total <= _AT_ONCE * result.wall_s:
        return ""
    whole = format_seconds(result.wall_s)
    return f"stages that ran at once count each: {format_seconds(total)} of stages in {whole}"


def slower_text(result: RunResult) -> str:
    """That the source framework alone is faster, with advice; "" where that is not known."""
    source = next((each for each in result.baselines if each.kind == "source"), None)
    if source is None or source.speedup is None or source.speedup.high >= 1.0:
        return ""
    slower = f"slower than {source.name}: {1 / source.speedup.median:.2f} times its latency"
    return f"{slower}; {_advice(result, source.name)}"


def _advice(result: RunResult, framework: str) -> str:
    """What helps where the source framework is faster."""
    if result.why_plain == NOTHING_TO_TUNE:
        return f"{NOTHING_TO_TUNE}: run it in {framework}"
    if result.stopped == NOTHING_LEFT:
        return f"every program was tried: run it in {framework}"
    return "a search with a larger --trials or --minutes goes on from its records"


def figure_lines(result: RunResult) -> list[tuple[str, str, str]]:
    """Each way in which one inference was timed: its name, its figure, and what it is."""
    ends = [point.latency_ms for point in result.curve if point.latency_ms is not None]
    figures = [
        ("latency", result.tuned_ms.median if result.tuned_ms else None,
         "whole inferences of what is delivered, in turn with the baselines: the figure to quote"),
        ("kernels", result.kernels_ms,
         "the sum of its kernels, each run by itself: without the calls between them, and with "
         "what each reads still in the caches"),
        ("tasks", result.tasks_ms,
         "the sum of the tasks' winners, measured longer at the end of the search: with weights "
         "as cold as in the network, without what belongs to no task"),
        ("curve", ends[-1] if ends else None,
         "the sum of the tasks' best trials so far, each measured briefly: it ends lower, as the "
         "best of many noisy readings"),
    ]  # fmt: skip
    return [(name, format_latency(ms / 1e3), what) for name, ms, what in figures if ms]


def device_text(device: DeviceIdentity | None) -> str:
    """A device in one line: `AMD EPYC 9B14, 2 cores, 32 GiB`."""
    if device is None:
        return UNKNOWN
    parts = [device.name, f"{device.cores} core{'' if device.cores == 1 else 's'}"]
    if device.memory_gib:
        parts.append(f"{device.memory_gib} GiB")
    if device.key:
        parts.append(f"key {device.key}")
    return ", ".join(parts)


def caches_text(device: DeviceIdentity | None) -> str:
    """`L1 32 KiB, L2 1 MiB`."""
    caches = device.caches if device is not None else ()
    return ", ".join(f"{level} {format_bytes(size)}" for level, size in caches)


def toolchain_text(toolchain: ToolchainIdentity) -> str:
    """`tunefleet 0.1.0, TVM 0.27.0, LLVM 20.1, measuring rules 1`."""
    names = {"tunefleet": toolchain.tunefleet, "TVM": toolchain.tvm, "LLVM": toolchain.llvm}
    parts = [f"{name} {version}" for name, version in names.items() if version]
    return ", ".join([*parts, f"measuring rules {toolchain.measure_version}"])


def outside_lines(outside: Mapping[str, Any] | None) -> list[str]:
    """What of a network stays in its source framework: a line with the shares, one with what is
    copied between a GPU and the CPU, and one for each segment."""
    if not outside:
        return []
    segments = outside["segments"]
    nodes = sum(len(segment["nodes"]) for segment in segments)
    shares = [
        f"{outside[key]:.1%} of the {what}"
        for key, what in (("share_of_flops", "FLOPs"), ("share_of_time", "time"))
        if outside.get(key) is not None
    ]
    stay = "1 node stays" if nodes == 1 else f"{nodes} nodes stay"
    told = f"{stay} in {outside['framework']}"
    lines = [f"{told}: {', '.join(shares)}" if shares else told]
    if copies := outside.get("copies"):
        sizes = [
            f"{_copied(copies[place], copies[place + '_bytes'])} to the {name}"
            for place, name in (("to_cpu", "CPU"), ("to_gpu", "GPU"))
        ]
        lines.append(f"  each call copies {' and '.join(sizes)}")
    for segment in segments:
        shown = ", ".join(segment["nodes"][:4])
        more = len(segment["nodes"]) - 4
        rest = f" and {more} more" if more > 0 else ""
        lines.append(f"  {shown}{rest}: {segment['reason']}")
    return lines


def _copied(tensors: int, size: int | None) -> str:
    """So many tensors of so many bytes; None: the size depends on values."""
    of = "a size that depends on values" if size is None else format_bytes(size)
    return f"{format_some(tensors, 'tensor')} ({of})"


def source_text(task: TaskResult) -> str:
    """Where a task's program is from, and the tensor intrinsic that it uses."""
    return ", ".join(filter(None, (task.source, task.intrinsic)))


def by_share(tasks: Iterable[TaskResult]) -> list[TaskResult]:
    """The tasks by their share of the latency, largest first; by their work until it is known."""
    return sorted(tasks, key=lambda t: (-(t.network_share or 0.0), -(t.flops or 0.0) * t.weight))


def difference_basis(result: RunResult) -> str:
    """What differences of outputs are relative to."""
    in_mean = result.difference_measure == "root mean square"
    return "output in the mean of squares" if in_mean else "largest output"
