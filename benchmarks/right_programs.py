"""Random programs of networks' tasks, compared with the tasks' plain ones on random numbers.

A wrong program is found before it is delivered, but its trials are lost, and a task whose fastest
programs are all wrong is delivered with its plain one. Of each family of programs (MetaSchedule's
tilings, register tiles, tensor intrinsics, sums of a window) as many are drawn.

    .venv/bin/python benchmarks/right_programs.py --network zoo:dcgan zoo:swin_tiny [--programs 4]
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

import common

NETWORKS = ("zoo:dcgan", "zoo:squeezenet", "zoo:vit_tiny")
#: Drawn for each that is taken: families are rare in some tasks.
_DRAWN = 16


def main(options: argparse.Namespace) -> int:
    started = time.time()
    rows = []
    networks, count = options.network, options.programs
    if options.quick:
        networks, count = networks[:1], 1
    for network in networks:
        found = list(programs_of(network, count))
        wrong = [row for row in found if row["said"]]
        counts = Counter(row["family"] for row in found)
        print(f"{network}: {len(found)} programs {dict(counts)}, {len(wrong)} wrong", flush=True)
        for row in wrong:
            print(f"  {row['task']}, family {row['family']}: {row['said']}", flush=True)
        rows += found
    wrong = [row for row in rows if row["said"]]
    shown = [common.at_most("wrong programs", len(wrong), 0, "condition", any_size=True)]
    figures = {"networks": networks, "programs": len(rows), "wrong": wrong}
    return common.finish("right_programs", started, figures, shown, options.json)


def programs_of(network: str, count: int) -> Iterator[dict[str, Any]]:
    """A row for each program: its task, its family, what is wrong with it."""
    from tunefleet.compiler.code.build import build_candidate, build_default
    from tunefleet.compiler.toolchain.host import native_target
    from tunefleet.core.importing import DEFAULT_IMPORT
    from tunefleet.core.trial import Built
    from tunefleet.devices.cpu import LocalCpu
    from tunefleet.stages.importing import tasks_of

    target = native_target()
    device = LocalCpu(target.threads)
    with tempfile.TemporaryDirectory() as folder:
        tasked = tasks_of(network, target, Path(folder), DEFAULT_IMPORT)
        for weighted in tasked.tasks:
            task = weighted.task
            plain = build_default(task.program, target, "plain", folder)
            if not isinstance(plain, Built):
                continue
            for family, trace in drawn(task.program, target, count):
                built = build_candidate(task.program, target, "candidate", trace, folder)
                if not isinstance(built, Built):
                    continue  # it counts as failed, not as wrong
                said = device.verify(plain, built, 1).difference
                yield {"task": task.name, "family": family, "said": said}
                Path(built.path).unlink()


def drawn(program: str, target: Any, count: int) -> list[tuple[int, str]]:
    from tunefleet.compiler.space.opening import task_space
    from tunefleet.core.forms import kind_of

    space = task_space(program, target).decisions
    seen: Counter[int] = Counter()
    kept = []
    for trace in space.traces(space.sample(_DRAWN * count, np.random.default_rng(0))):
        family = kind_of(trace)
        seen[family] += 1
        if seen[family] <= count:
            kept.append((family, trace))
    return kept


def parser() -> argparse.ArgumentParser:
    made = common.parser(__doc__ or "")
    made.add_argument("--network", nargs="+", default=list(NETWORKS))
    made.add_argument("--programs", type=int, default=4, help="of each family and task")
    return made


if __name__ == "__main__":
    common.run(main, parser())
