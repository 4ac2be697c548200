"""Who has a job or a core, among processes that share a store."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tunefleet.core.coordination import Queued
from tunefleet.core.device import THIS_MACHINE, DeviceKind, DeviceSpec, RpcAddress
from tunefleet.core.events import JobContinued, JobHeld
from tunefleet.core.layout import MachineLayout
from tunefleet.core.stage import StageKind
from tunefleet.core.step import StepKind
from tunefleet.errors import InputError, LeaseLostError, StoreBusyError
from tunefleet.fleet import leases as module
from tunefleet.fleet.leases import (
    Leases,
    device_units,
    jobs_held,
    machine_units,
    measuring,
    this_process,
    units_alone,
    units_beside,
)
from tunefleet.store import MemoryStore, open_store
from tunefleet.system.processes import started_at


@contextmanager
def other_process() -> Iterator[subprocess.Popen[bytes]]:
    """A process of this machine that sleeps."""
    with subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"]) as process:
        try:
            yield process
        finally:
            process.kill()


def leases_of(store: MemoryStore, process: subprocess.Popen[bytes]) -> Leases:
    """As if another process leased."""
    other = replace(this_process(), pid=process.pid, started=started_at(process.pid))
    return Leases(store.coordination, process=other)


@pytest.fixture
def store() -> MemoryStore:
    return MemoryStore()


def test_a_job_is_tuned_by_one_process_at_a_time(store: MemoryStore) -> None:
    mine = Leases(store.coordination)
    with mine.job("x"), pytest.raises(InputError, match="two of the networks"), mine.job("x"):
        pass
    with other_process() as process:
        busy = f"being tuned by process {process.pid};"
        with leases_of(store, process).job("x"):
            with pytest.raises(StoreBusyError, match=busy), mine.job("x"):
                pass
            with mine.job("y"):
                pass
    with mine.job("x"):
        pass


def test_a_job_is_seen_while_a_process_that_lives_has_it(store: MemoryStore) -> None:
    assert jobs_held(store.coordination) == frozenset()
    with other_process() as process, leases_of(store, process).job("x"):
        assert jobs_held(store.coordination) == {"x"}
        process.kill()
        process.wait()
        assert jobs_held(store.coordination) == frozenset()


HOLDING = """
import sys, time
from pathlib import Path
from tunefleet.fleet.leases import Leases
from tunefleet.store import open_store

leases = Leases(open_store(Path(sys.argv[1])).coordination)
with leases.job("x"):
    leases.acquire(leases.claim(["core0"]), print, lambda: None)
    print("ready", flush=True)
    time.sleep(600)
"""


def test_what_a_killed_command_had_is_free_at_once(tmp_path: Path) -> None:
    command = [sys.executable, "-c", HOLDING, str(tmp_path)]
    with (
        subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process,
        closing(open_store(tmp_path)) as store,
        closing(Leases(store.coordination)) as mine,
    ):
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        assert jobs_held(store.coordination) == {"x"}
        core = mine.claim(["core0"])
        assert isinstance(store.coordination.acquire(core, 60.0), Queued)
        process.kill()
        # Its number is there until it is waited for.
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
        with mine.job("x"), mine.held(core, lambda event: None) as lease:
            holders = {s.claim.holder.process for s in store.coordination.claims()}
            assert (core, {this_process()}) == (lease.claim, holders)


def test_a_stage_waits_for_units_and_says_why(
    store: MemoryStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_TOLD_S", 0.0)
    told: list[Any] = []
    with other_process() as process:
        first = leases_of(store, process)
        units = machine_units(["core0", "core1"])
        theirs = first.claim(units, job_id="3f2a" * 8, purpose="profile of conv2d", expected_s=40.0)
        first.acquire(theirs, told.append, lambda: None)
        mine = Leases(store.coordination)
        own = mine.claim(machine_units(["core1"]))

        def end() -> None:
            while not told:
                pass
            first.release(theirs)

        ending = threading.Thread(target=end)
        ending.start()
        with mine.held(own, told.append) as lease:
            store.coordination.renew(lease, 60.0)
        ending.join()
    [held, continued] = told
    assert isinstance(held, JobHeld)
    assert held.reason.startswith("cores 0-1 are used by job 3f2a3f2a of ")
    assert held.reason.endswith(" (profile of conv2d), for about 40 s")
    assert continued == JobContinued()
    with pytest.raises(LeaseLostError):
        store.coordination.renew(lease, 60.0)


def test_who_gives_up_waiting_is_in_nobodys_way(store: MemoryStore) -> None:
    class GivenUpError(Exception):
        pass

    def give_up() -> None:
        raise GivenUpError

    with other_process() as process:
        first, mine = leases_of(store, process), Leases(store.coordination)
        theirs = first.claim(["core0"])
        first.acquire(theirs, lambda event: None, lambda: None)
        own = mine.claim(["core0"])
        with pytest.raises(GivenUpError):
            mine.acquire(own, lambda event: None, give_up)
        mine.release(own)
        assert [status.claim for status in store.coordination.claims()] == [theirs]


def test_what_is_held_is_renewed(store: MemoryStore) -> None:
    mine = Leases(store.coordination, ttl_s=0.3)
    with mine.job("x"):
        threading.Event().wait(0.9)
        assert jobs_held(store.coordination) == {"x"}


def test_a_job_that_another_took_meanwhile_ends_here(store: MemoryStore) -> None:
    stopped = Leases(store.coordination, ttl_s=0.01)
    with stopped.job("x"):
        stopped.check_job("x")
        stopped._closed.set()  # as if no thread of it ran
        time.sleep(0.02)
        with (
            other_process() as process,
            leases_of(store, process).job("x"),
            pytest.raises(StoreBusyError, match="another one has taken its job"),
        ):
            stopped.check_job("x")


def test_closing_ends_all(store: MemoryStore) -> None:
    mine = Leases(store.coordination)
    mine.acquire(mine.claim(["core0"]), lambda event: None, lambda: None)
    mine.close()
    assert store.coordination.claims() == []


def test_a_gpu_is_of_its_machine_and_a_board_of_nobody() -> None:
    layout = MachineLayout.of([0], [1], {0: 0, 1: 1})
    board = DeviceSpec(rpc=RpcAddress("there", 9090))
    assert device_units("board-1", board, layout) == {"device board-1"}
    gpu = device_units("mine", DeviceSpec(DeviceKind.CUDA), layout)
    assert gpu == machine_units(["gpu 0"])
    assert gpu != {"gpu 0"}
    assert device_units("device", THIS_MACHINE, layout) == machine_units(["core1"])


def test_what_works_here_beside_a_device_uses_the_cores_that_are_measured_on() -> None:
    layout = MachineLayout.of([0], [1], {0: 0, 1: 1})
    board, gpu = DeviceSpec(rpc=RpcAddress("there", 9090)), DeviceSpec(DeviceKind.CUDA)
    cores = machine_units(["core1"])
    for kind in (StageKind.PROFILE, StepKind.CHECK, StepKind.MEASURE):
        assert units_beside(kind, gpu, layout) == cores
        assert units_beside(kind, THIS_MACHINE, layout) == frozenset()
    assert units_beside(StepKind.CHECK, board, layout) == cores
    assert units_beside(StageKind.PROFILE, board, layout) == frozenset()
    assert units_alone("", gpu, layout) == cores | device_units("", gpu, layout)


def test_what_is_measured_outside_of_jobs_waits_too(tmp_path: Path) -> None:
    told: list[str] = []
    with measuring(tmp_path / "none", ["core0"], "evaluation", told.append):
        pass
    assert not (tmp_path / "none").exists()
    with closing(open_store(tmp_path)) as store:
        with measuring(tmp_path, ["core0"], "evaluation", told.append):
            [status] = store.coordination.claims()
            assert (status.granted, status.claim.holder.purpose) == (True, "evaluation")
        assert store.coordination.claims() == []


def test_the_wait_for_several_adds_up(store: MemoryStore) -> None:
    mine = Leases(store.coordination)
    for _ in range(2):
        claim = mine.claim(["device board-1"], job_id="j", expected_s=30.0)
        answer = store.coordination.acquire(claim, 60.0)
    assert isinstance(answer, Queued)
    third = store.coordination.acquire(mine.claim(["device board-1"]), 60.0)
    assert isinstance(third, Queued)
    text = module.waiting_for(third)
    assert text.startswith("device board-1 is used by job j of ")
    assert text.endswith(", for about 60 s; 1 more before this one")
