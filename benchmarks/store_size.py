"""How long reading takes in a store of 100,000 jobs with a million records and a million events.

The rows are written by bulk inserts of what the store's own codec makes of values; all that is
timed are verbs of the store, the functions behind commands, and views of the records explorer, by
the service's application in this process. Each job has tasks by chance, so the records have more
origins (network, device and task) than those of real networks would.

    .venv/bin/python benchmarks/store_size.py --json out.json
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import common

TASKS, TASKS_OF_JOB, TRIALS_OF_TASK, EVENTS_OF_JOB = 1000, 5, 2, 10
DEVICES = 4
#: Networks, each on its device.
KINDS = 200
CHUNK = 500


def main(options: argparse.Namespace) -> int:
    from tunefleet.core.home import Home
    from tunefleet.core.identity import Tier
    from tunefleet.core.job import JobState
    from tunefleet.core.statistics import median
    from tunefleet.runs.forecast import forecast_of
    from tunefleet.runs.jobs import list_jobs
    from tunefleet.runs.timeline import find_job
    from tunefleet.store import SqlStore

    started = time.time()
    jobs = 1000 if options.quick else options.jobs
    with tempfile.TemporaryDirectory() as folder:
        home = options.home or Path(folder)
        path = Home(home).store
        if not path.exists():
            filled(home, jobs)
        size = path.stat().st_size
        print(f"{jobs} jobs, {size / 1e6:.0f} MB, written in {time.time() - started:.0f} s")
        with closing(SqlStore.open(path)) as store:
            draw = random.Random(1)
            spec = spec_of(0)

            def task() -> str:
                return f"task{draw.randrange(TASKS):04d}"

            def job() -> str:
                return job_id(draw.randrange(jobs))

            def fastest() -> Any:
                asked = spec.device, spec.toolchain
                return store.records.fastest(task(), *asked, tier=Tier.EXACT, limit=1)

            timed: dict[str, Callable[[], Any]] = {
                "best record of a task": fastest,
                "best winner of a task": lambda: store.records.best(
                    task(), spec.device, spec.toolchain
                ),
                "newest 100 jobs": lambda: store.jobs.page(),
                "running jobs": lambda: store.jobs.page(state=JobState.RUNNING),
                "a job by the beginning of its id": lambda: find_job(store, job()[:12]),
                "a page of a job's events": lambda: store.events.page(job_ids=[job()]),
                "a page of all events, from the middle": lambda: store.events.page(
                    after=jobs * EVENTS_OF_JOB // 2
                ),
                "forecast of a job": lambda: forecast_of(store, spec),
                "tunefleet jobs": lambda: list_jobs(home, limit=50),
            }
            views = explored(home, store)
            rows = [
                {"what": what, "median_ms": 1e3 * median(of), "worst_ms": 1e3 * max(of)}
                for what, verb in (timed | views).items()
                if (of := seconds_of(verb, 5 if options.quick else 10 if what in views else 40))
            ]
    common.table(rows, list(rows[0]))
    by_name: dict[Any, Any] = {row["what"]: row["median_ms"] for row in rows}
    checks = [
        common.at_most("best record of a task: ms, median",
                       by_name["best record of a task"], 5.0, "condition"),
        common.at_most("tunefleet jobs: ms, median", by_name["tunefleet jobs"], 100.0, "condition"),
        common.at_most("slowest view of the records explorer: ms, median",
                       max(by_name[view] for view in views), 300.0, "condition"),
    ]  # fmt: skip
    figures = {"jobs": jobs, "bytes": size, "rows": rows}
    return common.finish("store_size", started, figures, checks, options.json)


def explored(home: Path, store: Any) -> dict[str, Callable[[], Any]]:
    """Views of the records explorer, each with the page behind it: sorted by each column, filters
    that find all, few and none."""
    from starlette.testclient import TestClient

    from tunefleet.service.app import service_app
    from tunefleet.service.caller import Rates
    from tunefleet.service.tokens import new_token
    from tunefleet.store import RecordColumn, User

    store.accounts.put_user(User("ann", created_at=0.0))
    text, token = new_token("ann", time.time())
    store.accounts.put_token(token)
    store.accounts.share("", "ann", True)
    app = service_app(home, store)
    app.state.user_rates = Rates(1e9, 1e9)
    client = TestClient(app, headers={"Authorization": f"Bearer {text}"})

    def view(place: str, **query: str) -> Callable[[], Any]:
        """The first page and the one behind it, in turn."""
        behind = ""

        def asked() -> None:
            nonlocal behind
            answer = client.get(place, params={**query, "cursor": behind})
            assert answer.status_code == 200, answer.text
            is_first = place.startswith("/v1") and not behind
            behind = (is_first and answer.json()["next"]) or ""

        return asked

    views = {}
    filters: list[dict[str, str]] = [
        {}, {"network": "net77"}, {"task": "task0999"}, {"device": "xeon"}, {"text": "conv"},
        {"text": "net199"}, {"text": "in none"}, {"network": "net77", "task": "task0001"},
    ]  # fmt: skip
    for chosen in filters:
        told = " ".join(f"{name}={value}" for name, value in chosen.items()) or "all"
        for column in RecordColumn:
            sort = {"sort": column.value, "ascending": "true"}
            views[f"records: {told}, by {column}"] = view("/v1/records", **chosen, **sort)
    views["records: the page of all"] = view("/records")
    views["records: the page of text=net199"] = view("/records", text="net199")
    return views


def seconds_of(verb: Callable[[], Any], count: int) -> list[float]:
    verb()  # the first one compiles its statement
    seconds = []
    for _ in range(count):
        clock = time.perf_counter()
        verb()
        seconds.append(time.perf_counter() - clock)
    return seconds


def job_id(number: int) -> str:
    # Ids are random: those of one beginning were not made after each other.
    return random.Random(number).randbytes(16).hex()


def spec_of(number: int) -> Any:
    """What the job of a number asks for: one of a few devices, a seed of its own."""
    from tunefleet.core.budget import Budget
    from tunefleet.core.identity import DeviceIdentity, ToolchainIdentity
    from tunefleet.core.job import JobSpec
    from tunefleet.core.network import NetworkInfo, TensorSpec
    from tunefleet.core.settings import SearchSettings, TuneSettings
    from tunefleet.core.target import CpuTarget

    tensor = TensorSpec("x", (1, 3, 224, 224), "float32")
    device = DeviceIdentity(
        "cpu", "Xeon", ("avx2",), 4, (("l1", 32768),), 16, str(number % DEVICES)
    )
    return JobSpec(
        NetworkInfo(f"net{number % KINDS}", "zoo", f"{number % KINDS}", (tensor,), (tensor,)),
        CpuTarget("skylake", 4),
        device,
        ToolchainIdentity("0.1.0", "0.27.0", "20.1", 1),
        Budget(trials=64),
        replace(TuneSettings(), search=SearchSettings(seed=number)),
    )


@cache
def row_of(kind: int) -> dict[str, Any]:
    """The row of a job that asks for a network and a device; others of it differ in little."""
    from tunefleet.store import codec

    return codec.job_row(spec_of(kind), "", 0.0)


def filled(home: Path, jobs: int) -> None:
    from sqlalchemy import create_engine, insert

    from tunefleet.core.home import Home
    from tunefleet.core.task import Task
    from tunefleet.store import schema
    from tunefleet.store.origins import origin_row
    from tunefleet.store.sql import SqlStore

    path = Home(home).store
    SqlStore.open(path).close()
    engine = create_engine(f"sqlite:///{path}")
    with engine.begin() as connection:
        connection.exec_driver_sql("PRAGMA synchronous=OFF")
        rows = [
            {"task_id": f"task{n:04d}", "operator": "conv2d", "shapes": "1x3x8x8 -> 1x8x8x8",
             "flops": 1e6, "program": "program", "precision": "float32"}
            for n in range(TASKS)
        ]  # fmt: skip
        connection.execute(insert(schema.tasks), rows)
        for first in range(0, jobs, CHUNK):
            made = list(rows_of(range(first, min(jobs, first + CHUNK))))
            tables = (schema.jobs, schema.job_tasks, schema.stages, schema.candidates,
                      schema.trials, schema.winners, schema.events)  # fmt: skip
            for table in tables:
                connection.execute(insert(table), [row for of, row in made if of is table])
        best: dict[tuple[str, int], int] = {}
        for number in range(jobs):
            for task in tasks_of(number):
                best.setdefault((task, number % DEVICES), number)
        of_best = [
            {"task_id": task, "device_exact": row_of(device)["device_exact"],
             "toolchain_exact": row_of(device)["toolchain_exact"], "tenant": "",
             "job_id": job_id(number)}
            for (task, device), number in best.items()
        ]  # fmt: skip
        connection.execute(insert(schema.best), of_best)
        places = sorted({(n % KINDS, task) for n in range(jobs) for task in tasks_of(n)})
        of_task = Task("", "conv", "conv2d", "1x3x8x8 -> 1x8x8x8", 1e6, "")
        connection.execute(insert(schema.origins), [
            {"key": origin_of(kind, task),
             **origin_row(spec_of(kind), replace(of_task, task_id=task))}
            for kind, task in places
        ])  # fmt: skip
    engine.dispose()


def origin_of(kind: int, task: str) -> int:
    """The number of the origin of the records of a task of a network."""
    return kind * TASKS + int(task.removeprefix("task")) + 1


def tasks_of(number: int) -> list[str]:
    drawn = random.Random(-1 - number).sample(range(TASKS), TASKS_OF_JOB)
    return [f"task{task:04d}" for task in drawn]


def rows_of(numbers: range) -> Iterator[tuple[Any, dict[str, Any]]]:
    """The rows of the jobs of these numbers, each with its table."""
    from tunefleet.core.events import Note
    from tunefleet.core.stage import ProfileResult, StageKind
    from tunefleet.core.trial import Candidate, Measurement, Trial
    from tunefleet.store import codec, schema
    from tunefleet.store.event_codec import SCHEMA, event_value

    for number in numbers:
        draw, of_job = random.Random(number), job_id(number)
        state = "running" if number % 1000 == 0 else "succeeded"
        row = {**row_of(number % KINDS), "job_id": of_job, "fingerprint": f"{number:064x}",
               "created_at": 1e9 + number, "state": state}  # fmt: skip
        yield schema.jobs, {**row, "summary": {"run": of_job, "trials": 10, "wall": {}}}
        for position, task in enumerate(tasks_of(number)):
            stage = number * TASKS_OF_JOB + position + 1
            yield schema.job_tasks, {"job_id": of_job, "position": position, "task_id": task,
                                     "name": "conv", "weight": 1}  # fmt: skip
            yield schema.stages, {
                "seq": stage, "job_id": of_job, "task_id": task, "iteration": 0,
                "kind": StageKind.PROFILE.value, "started_at": 1e9 + number, "seconds": 2.0,
                "note": "", "result": codec.result_value(ProfileResult(())),
                "resource_id": "device", "attempt": 1,
            }  # fmt: skip
            for place in range(TRIALS_OF_TASK):
                key = (stage - 1) * TRIALS_OF_TASK + place + 1
                candidate = Candidate(f"{key:016x}", f'["a trace of {key}"]', 0.5, b"")
                outcome = Measurement((draw.uniform(1e-4, 1e-2),), 0.0)
                yield schema.candidates, {"key": key, **codec.candidate_row(task, candidate)}
                trial = {"job_id": of_job, "task_id": task, "candidate": key, "iteration": 0,
                         "score": 0.5, "build_s": 0.5, "profile_s": 0.2}  # fmt: skip
                trial["origin"] = origin_of(number % KINDS, task)
                yield schema.trials, {**trial, "candidate_id": candidate.candidate_id,
                                      "stage": stage, **codec.outcome_row(outcome)}  # fmt: skip
            won = Trial(candidate, 0, outcome, 0.5, 0.2)
            yield schema.winners, {"job_id": of_job, "task_id": task, "checks": {},
                                   **codec.winner_row(won, key)}  # fmt: skip
        for told in range(EVENTS_OF_JOB):
            event = Note(f"event {told} of a job")
            yield schema.events, {"job_id": of_job, "at": 1e9 + number, "kind": "Note",
                                  "version": SCHEMA, "value": event_value(event)}  # fmt: skip


if __name__ == "__main__":
    made = common.parser("Reading from a large store.")
    made.add_argument("--jobs", type=int, default=100_000)
    made.add_argument("--home", type=Path, help="where its store is filled and stays")
    sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr]
    common.run(main, made)
