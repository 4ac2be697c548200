"""The CUDA space without a GPU: random programs of every task, compiled to machine code by nvcc.

    .venv/bin/python benchmarks/cuda.py --networks resnet18 mobilenet_v2 --json out.json

For every task of the networks: which share of random tilings breaks a limit of a block of threads
(seen from their decisions, and never built), and of the programs that a search samples, how many
TVM or nvcc rejects all the same. Of every cubin the static shared memory and the threads of its
kernels are read back and held against the target's limits; what programs by tensor cores need for
their sums is asked for at their launch, and no cubin says it. What was done stands in the file
given as `--state`, task by task: the same command goes on there, and `--minutes` ends a run in good
time.
"""

from __future__ import annotations

import argparse
import json
import re
import struct
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

import common

NETWORKS = [
    "resnet18", "resnet50", "mobilenet_v2", "mobilenet_v3_small", "efficientnet_b0", "squeezenet",
    "densenet121", "bert_tiny", "vit_tiny", "shufflenet_v2",
]  # fmt: skip
COLUMNS = [
    "network", "tasks", "sketches", "breaks_limits", "programs", "rejected", "refused", "invalid",
    "most_shared", "most_threads", "over_limits", "replay_s", "nvcc_s",
]  # fmt: skip
#: Random programs of a sketch of which the share is taken that breaks a limit.
_DRAWN = 4096


def main(options: argparse.Namespace) -> int:
    started = time.time()
    from tunefleet.compiler.toolchain.host import parse_target
    from tunefleet.compiler.toolchain.nvcc import find_nvcc, nvcc_version

    if find_nvcc() is None:
        raise common.Skip("no nvcc: pip install 'tunefleet[cuda]'")
    target = parse_target(options.target)
    state = _State(options.state, f"{target} nvcc {nvcc_version()} {options.programs}")
    networks = ["tiny_cnn"] if options.quick else options.networks
    deadline = started + 60 * options.minutes
    whole = [name for name in networks if _network(name, target, options, state, deadline)]
    rows = [_row(name, state.of(name)) for name in networks if state.of(name)]
    common.table(rows, COLUMNS)
    for name in networks:
        if name not in whole:
            print(f"not all of {name} yet: the same command goes on")
    programs = sum(row["programs"] for row in rows)
    invalid = sum(row["rejected"] + row["refused"] for row in rows)
    checks = [
        common.at_most(
            "cubins over a limit",
            sum(r["over_limits"] for r in rows),
            0,
            "condition",
            any_size=True,
        ),
        common.at_most("share of invalid programs", invalid / max(programs, 1), 0.05, "aim"),
        common.at_least("networks done", len(whole), len(networks), "condition", any_size=True),
    ]
    figures = {"target": str(target), "nvcc": nvcc_version(), "rows": rows}
    return common.finish("cuda", started, figures, checks, options.json)


class _State:
    """What was found of each task, a line each; of another target, compiler or number of programs
    it is none."""

    def __init__(self, path: Path, of: str) -> None:
        self._path, self._of = path, of
        lines = path.read_text(encoding="utf-8").splitlines() if path.is_file() else []
        self._rows = [row for row in map(json.loads, lines) if row["of"] == of]

    def of(self, network: str) -> list[dict[str, Any]]:
        return [row for row in self._rows if row["network"] == network and "task" in row]

    def tasks(self, network: str) -> list[str] | None:
        """All tasks of a network that was imported before."""
        return next(
            (r["tasks"] for r in self._rows if r["network"] == network and "tasks" in r), None
        )

    def add(self, **row: Any) -> None:
        self._rows.append({"of": self._of, **row})
        with self._path.open("a") as file:
            file.write(json.dumps(self._rows[-1]) + "\n")


def _network(
    name: str, target: Any, options: argparse.Namespace, state: _State, deadline: float
) -> bool:
    """Whether all tasks of a network are done."""
    done = {row["task"] for row in state.of(name)}
    known = state.tasks(name)
    if known is not None and done >= set(known):
        return True
    if time.time() > deadline:
        return False
    from tunefleet.stages.importing import import_network

    tasks = [weighted.task for weighted in import_network(f"zoo:{name}", target).tasks]
    if known is None:
        state.add(network=name, tasks=[task.task_id for task in tasks])
    for task in tasks:
        if time.time() > deadline:
            return False
        if task.task_id not in done:
            found = _task(task.program, target, options.programs)
            state.add(network=name, task=task.task_id, name=task.name, shapes=task.shapes, **found)
    return True


def _task(program: str, target: Any, count: int) -> dict[str, Any]:
    from tunefleet.compiler.code.build import lowered
    from tunefleet.compiler.code.device_code import device_sources
    from tunefleet.compiler.code.replay import replay
    from tunefleet.compiler.space.opening import task_space
    from tunefleet.compiler.toolchain.nvcc import CudaError, compile_cubin
    from tunefleet.compiler.toolchain.programs import load_program

    rng = np.random.default_rng(0)
    space = task_space(program, target).decisions
    broken = [_breaking(sketch, rng) for sketch in space.sketches if sketch.choices]
    found: dict[str, Any] = {
        "sketches": len(space.sketches), "breaks": broken, "programs": 0, "rejected": 0,
        "refused": 0, "shared": [], "threads": [], "over": 0, "replay_s": 0.0,
        "nvcc_s": 0.0, "errors": [],
    }  # fmt: skip
    for trace in space.traces(space.sample(count, rng).distinct()):
        found["programs"] += 1
        began = time.perf_counter()
        try:
            module = lowered(replay(load_program(program), target, trace).mod, target)
        except Exception as error:  # what TVM makes of a program that it cannot compile
            found["rejected"] += 1
            found["errors"].append(str(error).strip().splitlines()[-1][:200])
            continue
        finally:
            found["replay_s"] += time.perf_counter() - began
        began = time.perf_counter()
        sources = device_sources(module)
        try:
            cubins = [compile_cubin(source, target.arch) for source in sources]
        except CudaError as error:
            found["refused"] += 1
            found["errors"].append(str(error))
            continue
        finally:
            found["nvcc_s"] += time.perf_counter() - began
        shared = max(size for cubin in cubins for size in _shared_memory(cubin))
        # A kernel of one thread states no bound.
        bounds = [n for s in sources for n in re.findall(r"__launch_bounds__\((\d+)", s)]
        threads = max([1, *map(int, bounds)])
        found["shared"].append(shared)
        found["threads"].append(threads)
        found["over"] += shared > target.shared_memory_bytes or threads > target.threads_per_block
    return found


def _breaking(sketch: Any, rng: np.random.Generator) -> float:
    """Share of random programs of a sketch that break a limit."""
    picks = replace(sketch, limits=()).sample(_DRAWN, rng)
    return float(1 - sketch.keeps(picks).mean())


def _shared_memory(cubin: bytes) -> Iterator[int]:
    """Bytes of static shared memory of each kernel of a cubin, an ELF file; 0 if none has any.

    A kernel's is the size of its section `.nv.shared.NAME`, with 1 KiB that some architectures
    reserve for the system left out (`.nv.shared.reserved.0`).
    """
    (start,) = struct.unpack_from("<Q", cubin, 0x28)
    size, count, names_at = struct.unpack_from("<HHH", cubin, 0x3A)
    headers = [struct.unpack_from("<IIQQQQ", cubin, start + i * size) for i in range(count)]
    names = headers[names_at][4]
    yield 0
    for header in headers:
        at = names + header[0]
        name = cubin[at : cubin.index(b"\0", at)].decode()
        if name.startswith(".nv.shared.") and ".reserved." not in name:
            yield header[5]


def _row(network: str, tasks: list[dict[str, Any]]) -> dict[str, Any]:
    def total(key: str) -> Any:
        return sum(task[key] for task in tasks)

    breaks = [share for task in tasks for share in task["breaks"]]
    programs = total("programs")
    built = max(programs - total("rejected") - total("refused"), 1)
    return {
        "network": network,
        "tasks": len(tasks),
        "sketches": total("sketches"),
        "breaks_limits": float(np.mean(breaks)) if breaks else 0.0,
        "programs": programs,
        "rejected": total("rejected"),
        "refused": total("refused"),
        "invalid": (total("rejected") + total("refused")) / programs,
        "most_shared": max(size for task in tasks for size in [0, *task["shared"]]),
        "most_threads": max(n for task in tasks for n in [0, *task["threads"]]),
        "over_limits": total("over"),
        "replay_s": total("replay_s") / programs,
        "nvcc_s": total("nvcc_s") / built,
    }


if __name__ == "__main__":
    parser = common.parser(__doc__ or "")
    parser.add_argument("--networks", nargs="+", default=NETWORKS, help="of the zoo")
    parser.add_argument("--programs", type=int, default=8, help="sampled per task")
    parser.add_argument("--target", default="cuda/sm_80")
    parser.add_argument("--minutes", type=float, default=9.0, help="begin no task after that")
    parser.add_argument(
        "--state", type=Path, default=Path("cuda-state.jsonl"), help="goes on there"
    )
    common.run(main, parser)
