"""Broken, hostile and odd inputs as a user gives them: one line on stderr, an exit code, and
nothing else.

Runs the real command on each, in processes of its own, and writes docs/bad-input.md, a line for
each kind; `--json` has all of them. Of each case: no crash, no bug of ours, no traceback, one error
line where it fails, at most 30 s and 2 GB, no code of the input run, and in the end nothing lost of
a job that was there before. `--mutations` tries as many seeded mutations of valid files as well.

    .venv/bin/python benchmarks/hostile.py --table docs/bad-input.md --mutations 10000
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import tempfile
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import common
import hostile_artifacts
import hostile_commands
import hostile_files
import hostile_folders
import hostile_networks
import hostile_onnx
from hostile_case import MOST_MB, MOST_S, Case, Row, World, run

_WANTED_CASES = 150
_WANTED_MUTATIONS = 10_000


def all_cases() -> list[Case]:
    return [
        *hostile_commands.cases(),
        *hostile_onnx.cases(),
        *hostile_networks.cases(),
        *hostile_folders.cases(),
        *hostile_artifacts.cases(),
        *hostile_files.cases(),
    ]


def chosen(options: argparse.Namespace) -> list[Case]:
    cases = all_cases()
    twice = [name for name, count in Counter(case.name for case in cases).items() if count > 1]
    if twice:
        raise ValueError(f"two cases have one name: {', '.join(twice)}")
    return [
        case
        for case in cases
        if (not options.quick or case.quick)
        and (options.name or "") in f"{case.category}: {case.name}"
    ]


def main(options: argparse.Namespace) -> int:
    started = time.time()
    if options.list:
        for case in chosen(options):
            print(f"{case.category}: {case.name}")
        return 0
    checks: list[common.Check] = []
    figures: dict[str, Any] = {}
    if options.mutations:
        # Before the cases: it forks, and threads must not have been started.
        from hostile_mutations import mutate

        before = (
            json.loads(options.earlier.read_text(encoding="utf-8"))["figures"]
            if options.earlier
            else {}
        )
        mutated = mutate(
            options.mutations,
            options.jobs,
            options.seed,
            options.keep,
            earlier=before.get("mutations"),
            figures=options.json,
        )
        figures["mutations"] = mutated.figures
        checks += mutated.checks(_WANTED_MUTATIONS)
    cases = chosen(options)
    if cases and not options.only_mutations:
        rows, lost = run_all(cases, options.jobs)
        rows = in_order(rows, earlier(options.earlier))
        figures["rows"] = [dataclasses.asdict(row) for row in rows]
        checks += checks_of(rows, lost)
        if options.table:
            options.table.write_text(table(rows), encoding="utf-8")
    return common.finish("hostile", started, figures, checks, options.json)


def run_all(cases: list[Case], jobs: int) -> tuple[list[Row], list[str]]:
    """A row for each case, and what was lost of the job that was there before."""
    with tempfile.TemporaryDirectory(prefix="hostile-") as name:
        world = World(Path(name))
        before = records(world) if not all(case.quick for case in cases) else None

        def told(case: Case) -> Row:
            row = run(case, world)
            mark = f"MISS {', '.join(row.faults)}" if row.faults else "ok  "
            print(
                f"{mark} {row.category}: {row.name}: {row.exit}, {row.seconds} s, "
                f"{row.memory_mb:.0f} MB: {row.said}",
                flush=True,
            )
            return row

        with ThreadPoolExecutor(jobs) as pool:
            rows = list(pool.map(told, cases))
        return rows, [] if before is None else missing(world, before)


def earlier(path: Path | None) -> list[Row]:
    """The rows that an earlier run wrote as JSON."""
    rows = json.loads(path.read_text(encoding="utf-8"))["figures"].get("rows", []) if path else []
    return [Row(**row | {"faults": tuple(row["faults"])}) for row in rows]


def in_order(rows: list[Row], before: list[Row]) -> list[Row]:
    """What was found now, and earlier of cases that were not tried now."""
    found = {row.name: row for row in (*before, *rows)}
    return [found[case.name] for case in all_cases() if case.name in found]


def records(world: World) -> list[tuple[str, str]]:
    """Every trial in the store of the home that all cases share."""
    from tunefleet.store import open_store

    world.artifact  # noqa: B018  (made by being asked for)
    store = open_store(world.home)
    try:
        return sorted(
            (job.job_id, str(trial))
            for job in store.jobs.page()
            for trial in store.records.trials(job.job_id)
        )
    finally:
        store.close()


def missing(world: World, before: list[tuple[str, str]]) -> list[str]:
    """What is no longer there after all cases: records, an artifact that runs, tidy scratch."""
    import numpy as np

    found = [] if records(world) == before else ["records"]
    image = world.folder / "x.npy"
    np.save(image, np.zeros((1, 3, 16, 16), "float32"))
    try:
        world.tunefleet("run", str(world.artifact), "--input", str(image))
        world.tunefleet("tasks", "zoo:tiny_cnn")  # sweeps what killed commands left
    except RuntimeError as error:
        found.append(str(error))
    left = [path.name for path in world.scratch.glob("tunefleet-*")]
    return found + left


def checks_of(rows: list[Row], lost: list[str]) -> list[common.Check]:
    tried = [row for row in rows if row.exit is not None]
    tunes = {case.name for case in all_cases() if case.most_s > MOST_S}
    refusals = [row.seconds for row in tried if row.name not in tunes]
    bad = [f"{row.name} ({', '.join(row.faults)})" for row in rows if row.faults]
    return [
        common.at_least("inputs tried", len(tried), _WANTED_CASES, "condition"),
        common.Check("inputs that ended otherwise than they may", "; ".join(bad), "none",
                     "condition", not bad),
        common.at_most("longest that tunes no network, s", max(refusals, default=0), MOST_S,
                       "condition", any_size=True),
        common.at_most("most memory, MB", max((row.memory_mb for row in tried), default=0),
                       MOST_MB, "condition", any_size=True),
        common.Check("lost", ", ".join(lost), "nothing", "condition", not lost),
    ]  # fmt: skip


def kind_of(row: Row) -> tuple[str, int | None, str]:
    """What makes two rows one line of the page: category, exit code, and the advice of the message,
    which stands after the semicolon; an example that follows it is not compared."""
    if row.exit == 0:
        return row.category, row.exit, "done"
    _, _, advice = row.said.partition("; ")
    return row.category, row.exit, advice.partition(":")[0] or row.said


def table(rows: list[Row]) -> str:
    """The page of docs: what a user reads, an example of each kind of input."""
    quick = {case.name for case in all_cases() if case.quick}
    kinds: dict[tuple[str, int | None, str], list[Row]] = {}
    for row in rows:
        kinds.setdefault(kind_of(row), []).append(row)
    lines = [
        "# Bad input",
        "",
        "What a user reads when the input, the command or the machine is wrong: an example of",
        "each kind. `.venv/bin/python benchmarks/hostile.py --table docs/bad-input.md` makes it;",
        f"its JSON (`--json OUT`) has all {len(rows)} inputs, seconds and memory; each is a run of",
        "the real command. *Inputs* is how many end with this exit code and this advice. `DIR` is",
        "the folder of the command, `WORLD` one with a finished job. Exit code 0: odd but legal.",
    ]
    for category in dict.fromkeys(row.category for row in rows):
        lines += ["", f"## {category}", "", "| example | inputs | exit | what is said |",
                  "|---|---|---|---|"]  # fmt: skip
        for (of, code, kind), alike in kinds.items():
            if of != category:
                continue
            example = next((row for row in alike if row.name in quick), alike[0])
            said = kind if code == 0 else example.said
            said = said.replace("\\", "\\\\").replace("|", "\\|").replace("<", "&lt;")
            exit_code = "-" if code is None else code
            lines.append(f"| {example.name} | {len(alike)} | {exit_code} | {said} |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    made = common.parser("Broken, hostile and odd inputs, and how each of them ends.")
    made.add_argument("--name", help="only cases that have this in their category or name")
    made.add_argument("--list", action="store_true", help="print the names of the cases")
    made.add_argument("--jobs", type=int, default=2, help="cases at once")
    made.add_argument("--table", type=Path, help="write the table to this file")
    made.add_argument("--mutations", type=int, default=0, help="mutations of valid files to try")
    made.add_argument("--only-mutations", action="store_true", help="no cases")
    made.add_argument("--seed", type=int, default=1, help="of the mutations")
    made.add_argument("--earlier", type=Path, help="the JSON of a run: what is not tried now")
    made.add_argument("--keep", type=Path, help="a folder for mutations that end otherwise")
    common.run(main, made)
