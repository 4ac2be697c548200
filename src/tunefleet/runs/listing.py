"""What a network consists of, without tuning it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tunefleet.core.importing import DEFAULT_IMPORT, ImportOptions
from tunefleet.core.result import to_json
from tunefleet.system.scratch import scratch_folder


def list_tasks(
    spec: str,
    target_text: str = "native",
    threads: int | None = None,
    options: ImportOptions = DEFAULT_IMPORT,
) -> dict[str, Any]:
    """The tasks of a network on a target, ranked by their share of its FLOPs; tunes nothing."""
    from tunefleet.compiler.toolchain.host import parse_target
    from tunefleet.stages.importing import outside, tasked_network

    target = parse_target(target_text, threads)
    with scratch_folder("tasks") as folder:
        tasked = tasked_network(spec, target, Path(folder), options)
    total = tasked.flops or 1.0
    return {
        "network": tasked.info.name,
        "target": str(target),
        "inputs": [[str(t) for t in s.inputs] for s in tasked.info.signatures],
        "notes": list(dict.fromkeys((*tasked.notes, *tasked.warnings))),
        "outside": to_json(outside(tasked, {})),
        "tasks": [
            {
                "task_id": t.task.task_id,
                "name": t.task.name,
                "shapes": t.task.shapes,
                "weight": t.weight,
                "flops": t.task.flops,
                "share": t.total_flops / total,
            }
            for t in tasked.tasks
        ],
    }
