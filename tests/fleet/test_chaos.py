"""Workers killed and stopped at random during a real search: nothing lost, nothing repeated."""

from __future__ import annotations

import os
import random
import signal
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import Any

import pytest

from tests.fleet.jobs import APART, SETTINGS, fleet_on, open_job
from tunefleet.core.stage import StageKind
from tunefleet.core.trial import Failure
from tunefleet.fleet.live import search_of
from tunefleet.scheduler.values import JobEnd
from tunefleet.store import MemoryStore
from tunefleet.workers.machine import Machine

pytestmark = pytest.mark.tvm

TRIALS = 40
LEASE_S = 1.5
#: Seconds between two faults, at most; TUNEFLEET_CHAOS_TRIALS makes the run longer.
PAUSE_S = 0.9


@contextmanager
def faults(machine: Machine, seed: int) -> Iterator[list[str]]:
    """Kill or stop a random worker again and again; yields what was done."""
    generator, ended, done = random.Random(seed), threading.Event(), []

    # On a busy machine all takes longer: a second fault would hit what the first had repeated.
    busy = max(1.0, os.getloadavg()[0] / (os.cpu_count() or 1))

    def strike() -> None:
        while not ended.wait(busy * generator.uniform(0.1, PAUSE_S)):
            pool = generator.choice([machine.lead, machine.host, machine.device])
            pids = sorted(pool._pids())
            if not pids:
                continue
            fault = generator.choice([signal.SIGKILL, signal.SIGKILL, signal.SIGSTOP])
            with suppress(ProcessLookupError):
                os.kill(generator.choice(pids), fault)
                done.append(fault.name)

    thread = threading.Thread(target=strike)
    thread.start()
    try:
        yield done
    finally:
        ended.set()
        thread.join()


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.parametrize("seed", [1, 2])
def test_the_end_is_that_of_an_undisturbed_run(tiny: Any, seed: int) -> None:
    trials = int(os.environ.get("TUNEFLEET_CHAOS_TRIALS", TRIALS))
    store = MemoryStore()
    job = open_job(store, tiny, trials, replace(SETTINGS, transfer=False))
    with Machine(APART) as machine:
        shell = fleet_on(machine, store).shell(lease_s=LEASE_S)
        shell.submit(search_of(store, job, lambda event: None))
        with faults(machine, seed) as done:
            ending = shell.run()[job.job_id]
    assert len(done) >= 3
    assert ending.end is JobEnd.DONE
    made = store.records.trials(job.job_id)
    assert len(made) == trials
    assert not [t for t in made if isinstance(t.outcome, Failure)], done
    assert len({t.candidate.candidate_id for t in made}) == trials
    keys = [run.key for run in store.work.stages(job.job_id)]
    assert len(set(keys)) == len(keys)
    # Every round but those of an exhausted space went through all its stages.
    of_kind = Counter(key.kind for key in keys)
    assert of_kind[StageKind.BUILD] == of_kind[StageKind.PROFILE] == of_kind[StageKind.UPDATE]
