"""The devices of a command as contexts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tunefleet.runs.context import BenchmarkContext


def contexts_of(given: dict[str, Any]) -> list[BenchmarkContext]:
    """One for each kind of device. A device may be given with a target of its own: NAME=TARGET."""
    from tunefleet.runs.context import BenchmarkContext

    by_target: dict[str, list[str]] = {given["target"]: []}
    for text in given["device"]:
        name, _, target = text.partition("=")
        by_target.setdefault(target or given["target"], []).append(name)
    contexts = [BenchmarkContext(**{**given, "device": by_target.pop(given["target"])})]
    if by_target and not (contexts[0].device_names or contexts[0].device_kind):
        contexts.clear()
    for target, names in by_target.items():
        own = {"target": target, "device": names, "device_kind": ""}
        contexts.append(BenchmarkContext(**{**given, **own}))
    return [kind for context in contexts for kind in context.each_kind()]
