"""A small job on zoo:tiny_cnn, as the tests of this folder run it."""

from __future__ import annotations

import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

from tunefleet.core.budget import Budget
from tunefleet.core.home import Home
from tunefleet.core.job import Job, JobSpec
from tunefleet.core.layout import MachineLayout
from tunefleet.core.settings import TuneSettings
from tunefleet.core.step import WINNERS, Preparation

SETTINGS = TuneSettings()
SETTINGS = replace(
    SETTINGS,
    search=replace(SETTINGS.search, batch=6, first_batch=4, population=12, generations=1),
    measure=replace(
        SETTINGS.measure,
        repeats=3,
        slow_repeats=2,
        min_repeat_ms=0.05,
        final_repeats=10,
        end_to_end_rounds=3,
    ),
)


def spec_of(imported: Any, trials: int, settings: TuneSettings = SETTINGS) -> JobSpec:
    from tunefleet.compiler.toolchain import toolchain_identity
    from tunefleet.compiler.toolchain.host import native_target
    from tunefleet.hardware.processor import device_identity

    return JobSpec(
        imported.info,
        native_target(1),
        device_identity(),
        toolchain_identity(),
        Budget(trials=trials),
        settings,
    )


def open_job(store: Any, tiny: Any, trials: int, settings: TuneSettings = SETTINGS) -> Job:
    spec = spec_of(tiny, trials, settings)
    job = store.jobs.open(spec, job_id=f"{len(store.jobs.page()):032d}", now=time.time())
    store.work.put_tasks(job.job_id, tiny.tasks)
    return job


#: Host and device on the same cores, in turn, and beside each other.
SHARED = MachineLayout.of((0, 1), (0, 1), {0: 0, 1: 1})
APART = MachineLayout.of((0,), (1,), {0: 0, 1: 1})


def place_of(store: Any, machine: Any) -> Any:
    """Where stages work, with a home that goes with the machine."""
    from tunefleet.stages.place import Workplace

    return Workplace(store, machine, home_of(machine))


def home_of(machine: Any) -> Home:
    return Home(machine.scratch / "home")


def fleet_on(machine: Any, store: Any, home: Home | None = None) -> Any:
    """A fleet of a machine and a store that are there."""
    from tunefleet.fleet.local import LocalFleet

    fleet = LocalFleet(machine.layout, (home or home_of(machine)).root)
    fleet._machine, fleet._store = machine, store
    return fleet


def choose_winners(store: Any, machine: Any, job: Job) -> None:
    """The two steps after a search."""
    from tunefleet.core.importing import NetworkSource
    from tunefleet.stages.place import Delivery, StepRequest
    from tunefleet.stages.runner import StageRunner

    spec, source = job.spec, NetworkSource("zoo:tiny_cnn", "tiny_cnn", "")
    preparation = Preparation(source, spec.target, spec.device, spec.toolchain)
    delivery = Delivery(job.job_id, preparation, spec.settings, job)
    for kind in WINNERS:
        runner = StageRunner(place_of(store, machine))
        store.work.commit_step(runner.run_step(StepRequest(kind, preparation, delivery)))


def search(
    store: Any,
    machine: Any,
    *jobs: Job,
    observer: Any,
    policy: str = "predictive",
    home: Home | None = None,
) -> list[str]:
    """Run the searches of jobs to their end; returns why each ended."""
    from tunefleet.fleet.live import search_of

    shell = fleet_on(machine, store, home).shell(policy)
    for job in jobs:
        shell.submit(search_of(store, job, observer))
    endings = shell.run()
    for ending in endings.values():
        if ending.error is not None:
            raise ending.error
    return [endings[job.job_id].reason for job in jobs]


def main(home: str, trials: str, *names: str) -> None:
    """Run or resume a job of each network in a process of its own, to be killed by a test."""
    from tunefleet.compiler.toolchain.host import native_target
    from tunefleet.core.events import StageCommitted
    from tunefleet.stages.importing import import_network
    from tunefleet.store import open_store
    from tunefleet.workers.machine import Machine

    target = native_target(1)
    store = open_store(Path(home))
    networks = [import_network(name, target) for name in names]
    jobs = [open_job(store, network, int(trials)) for network in networks]

    def tell(event: object) -> None:
        if isinstance(event, StageCommitted):
            print(event.run.key.kind, event.trials_done, flush=True)

    print("ready", flush=True)
    with Machine(APART) as machine:
        print(search(store, machine, *jobs, observer=tell, home=Home(Path(home))), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
