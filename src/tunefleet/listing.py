"""What a network consists of, without tuning it."""

from __future__ import annotations

from typing import Any


def list_tasks(
    spec: str, target_text: str = "native", threads: int | None = None
) -> dict[str, Any]:
    """The tasks of a network on a target, ranked by their share of its FLOPs; tunes nothing."""
    from tunefleet.compiler.host import parse_target
    from tunefleet.fleet.network_work import import_network

    target = parse_target(target_text, threads)
    imported, _, tasks = import_network(spec, target)
    total = sum(t.total_flops for t in tasks) or 1.0
    return {
        "network": imported.info.name,
        "target": str(target),
        "tasks": [
            {
                "task_id": t.task.task_id,
                "name": t.task.name,
                "shapes": t.task.shapes,
                "weight": t.weight,
                "flops": t.task.flops,
                "share": t.total_flops / total,
            }
            for t in tasks
        ],
    }
