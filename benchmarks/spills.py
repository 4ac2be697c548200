"""Whether the sums of a home's winners stay in registers: what LLVM made of their innermost loops.

Each winner of the homes' jobs is built again and disassembled (`objdump`). Of its innermost loops
those with multiply-adds (or dot products) of vectors count: how many of these, and how many moves
of vectors to or from the stack beside them. Sums that do not fit are spilled to it in each step.

    .venv/bin/python benchmarks/spills.py --home engines/resnet50/home --json spills.json
"""

from __future__ import annotations

import argparse
import re
import subprocess
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import common

_LINE = re.compile(r"^\s*([0-9a-f]+):\s+(\S+)\s*(.*)$")
_TARGET = re.compile(r"^([0-9a-f]+)\b")
_MULTIPLY_ADD = re.compile(r"^(vfn?m(add|sub)\w+ps|vpdpbusd|vpdpwssd|vdpbf16ps)$")
_ON_STACK = re.compile(r"-?0x[0-9a-f]+\(%r[sb]p\)|\(%rsp\)")
_VECTOR = re.compile(r"%[xyz]mm\d+")


@dataclass(frozen=True)
class Loop:
    """An innermost loop: its multiply-adds of vectors, and vectors moved to or from the stack."""

    multiply_adds: int
    stack: int


def innermost_loops(listing: str) -> Iterator[Loop]:
    """The innermost loops with multiply-adds in a listing of `objdump -d` (x86-64)."""
    lines = [match.groups() for match in map(_LINE.match, listing.splitlines()) if match]
    number = {int(address, 16): n for n, (address, _, _) in enumerate(lines)}
    spans = []
    for n, (_, name, operands) in enumerate(lines):
        target = _TARGET.match(operands) if name.startswith("j") else None
        first = number.get(int(target[1], 16)) if target else None
        if first is not None and first <= n:
            spans.append((first, n))
    for first, last in spans:
        if any((a, b) != (first, last) and first <= a and b <= last for a, b in spans):
            continue
        body = lines[first : last + 1]
        multiply_adds = sum(bool(_MULTIPLY_ADD.match(name)) for _, name, _ in body)
        stack = sum(bool(_ON_STACK.search(o) and _VECTOR.search(o)) for _, _, o in body)
        if multiply_adds:
            yield Loop(multiply_adds, stack)


def winners_of(home: Path) -> Iterator[tuple[Any, Any]]:
    """The task and trial of each winner of a home's jobs."""
    from tunefleet.store import open_store

    store = open_store(home)
    for job in store.jobs.page():
        tasks = {w.task.task_id: w.task for w in store.work.tasks(job.job_id)}
        for task_id, (winner, _) in store.records.winners(job.job_id).items():
            if winner is not None:
                yield (tasks[task_id], job.spec.target), winner
    store.close()


def main(options: argparse.Namespace) -> int:
    from tunefleet.compiler.code.build import build_candidate
    from tunefleet.core.forms import intrinsic_of, kind_of
    from tunefleet.core.trial import Built

    if not options.home:
        raise common.Skip("no --home with jobs")
    started = time.time()
    rows: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as folder:
        for home in options.home:
            for (task, target), winner in winners_of(home):
                candidate = winner.candidate
                built = build_candidate(
                    task.program, target, candidate.candidate_id, candidate.trace, folder
                )
                if not isinstance(built, Built):
                    continue
                command = ["objdump", "-d", "--no-show-raw-insn", built.path]
                done = subprocess.run(command, check=True, capture_output=True, text=True)
                loops = list(innermost_loops(done.stdout))
                Path(built.path).unlink()
                if not loops:
                    continue
                largest = max(loops, key=lambda loop: loop.multiply_adds)
                kind = f"{kind_of(candidate.trace)} {intrinsic_of(candidate.trace)}".strip()
                rows.append({
                    "task": f"{task.name} {task.shapes}"[:72], "kind": kind,
                    "multiply-adds": largest.multiply_adds, "on the stack": largest.stack,
                })  # fmt: skip
    common.table(rows, ["task", "kind", "multiply-adds", "on the stack"])
    designed = [row for row in rows if not row["kind"].startswith(("0", "1"))]
    spilled = sum(row["on the stack"] > 0 for row in designed)
    name = f"winners in register tiles with vectors on the stack, of {len(designed)}"
    checks = [common.at_most(name, spilled, 0, "condition", any_size=True)]
    return common.finish("spills", started, {"rows": rows}, checks, options.json)


if __name__ == "__main__":
    made = common.parser("Whether the sums of a home's winners stay in registers.")
    made.add_argument("--home", type=Path, action="append", default=[])
    common.run(main, made)
