"""Names and sentences that the terminal and the page share."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tunefleet.report.units import UNKNOWN, format_bytes, format_difference

SHARE_OF_PEAK = "peak"

#: Parts of a run's wall time, in the order in which they happen: stages of its tasks, steps of its
#: network, and what results before schema 3 called other names.
STAGE_NAMES = {
    "split": "split into tasks",
    "import": "import the network",
    "check": "check the import",
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


def verdict(result: Mapping[str, Any]) -> tuple[bool, str]:
    """Whether what is delivered is all that was hoped for, and what it is."""
    difference = (result.get("difference") or {}).get(result.get("delivered") or "tuned")
    off = ""
    if difference is not None:
        off = f", differs by {format_difference(difference)} of the {difference_basis(result)}"
    if result.get("delivered") in ("plain", "untuned"):
        why = result.get("why_plain") or result.get("why_untuned") or "tuning gave nothing better"
        return False, f"the network without what the search found: {why}"
    if result.get("verified"):
        return True, f"the tuned network, verified against the source framework{off}"
    return False, f"the tuned network, not verified{off}"


def device_text(device: Mapping[str, Any] | None) -> str:
    """A device in one line: `AMD EPYC 9B14, 2 cores, 32 GiB`."""
    if not device:
        return UNKNOWN
    parts = [str(device.get("name", UNKNOWN))]
    if device.get("cores"):
        parts.append(f"{device['cores']} core{'' if device['cores'] == 1 else 's'}")
    if device.get("memory_gib"):
        parts.append(f"{device['memory_gib']} GiB")
    if device.get("key"):
        parts.append(f"key {device['key']}")
    return ", ".join(parts)


def caches_text(device: Mapping[str, Any] | None) -> str:
    """`L1 32 KiB, L2 1 MiB`."""
    caches = (device or {}).get("caches") or []
    return ", ".join(f"{level} {format_bytes(size)}" for level, size in caches)


def toolchain_text(toolchain: Mapping[str, Any] | None) -> str:
    """`tunefleet 0.1.0, TVM 0.27.0, LLVM 20.1, measuring rules 1`."""
    if not toolchain:
        return UNKNOWN
    names = {"tunefleet": "tunefleet", "tvm": "TVM", "llvm": "LLVM"}
    parts = [f"{text} {toolchain[k]}" for k, text in names.items() if toolchain.get(k)]
    if toolchain.get("measure_version") is not None:
        parts.append(f"measuring rules {toolchain['measure_version']}")
    return ", ".join(parts) or UNKNOWN


def baselines(result: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """What a network was measured beside: the first is what its user has today. Results of schema
    1 were measured beside untuned TVM only."""
    entries: list[Mapping[str, Any]] | None = result.get("baselines")
    if entries is None and result.get("untuned_ms"):
        untuned = {"name": "untuned TVM", "kind": "untuned"}
        entries = [
            untuned | {"latency_ms": result["untuned_ms"], "speedup": result.get("speedup")},
        ]
    return entries or []


def outside_lines(outside: Mapping[str, Any] | None) -> list[str]:
    """What of a network stays in its source framework: a line with the shares, and one for each
    segment."""
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
    for segment in segments:
        shown = ", ".join(segment["nodes"][:4])
        more = len(segment["nodes"]) - 4
        rest = f" and {more} more" if more > 0 else ""
        lines.append(f"  {shown}{rest}: {segment['reason']}")
    return lines


def source_text(task: Mapping[str, Any]) -> str:
    """Where a task's program is from, and the tensor intrinsic that it uses."""
    return ", ".join(str(task[key]) for key in ("source", "intrinsic") if task.get(key))


def difference_basis(result: Mapping[str, Any]) -> str:
    """What differences of outputs are relative to."""
    in_mean = result.get("difference_measure") == "root mean square"
    return "output in the mean of squares" if in_mean else "largest output"
