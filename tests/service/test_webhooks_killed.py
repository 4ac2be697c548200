"""Deliveries of a service that is killed: each message arrives at least once, in order."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import groupby
from pathlib import Path

import pytest

from tunefleet.core.events import JobEnded, JobOpened
from tunefleet.core.job import JobState
from tunefleet.service.jobs import ServiceJobs
from tunefleet.service.values import AskedBudget, AskedJob
from tunefleet.store import DeliveryState, User, Webhook, open_store

from .conftest import Receiver

pytestmark = [pytest.mark.tvm, pytest.mark.slow]

ID = "a" * 16


def prepare(home: Path, url: str, jobs: int) -> None:
    """A home with a webhook and jobs that have ended: a message for the start and the end of
    each."""
    store, ann = open_store(home), User("ann", created_at=time.time())
    store.accounts.put_user(ann)
    store.webhooks.put(Webhook(ID, "ann", url, "whsec_a2tr", (), time.time(), DeliveryState()))
    for trials in range(jobs):
        asked = AskedJob(network="zoo:tiny_cnn", budget=AskedBudget(trials=5 + trials), threads=1)
        job = ServiceJobs(home, store).enter(ann, asked)
        opened = JobOpened(job.job_id, False, job.spec.budget, 0.0)
        store.events.append(job.job_id, time.time(), [opened])
        store.jobs.finish(job.job_id, JobState.FAILED, {"stopped": "a test"})
        store.events.append(job.job_id, time.time(), [JobEnded()])
    store.close()


@contextmanager
def service(home: Path) -> Iterator[int]:
    """The process id of a service."""
    command = [sys.executable, "-m", "tunefleet", "serve", "--http", "0", "--threads", "1"]
    command += ["--private-webhooks", "--home", str(home)]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        for line in process.stderr:
            if "answering at" in line:
                break
        try:
            yield process.pid
        finally:
            process.kill()
            process.communicate(timeout=60)


def test_what_a_killed_service_was_delivering_is_sent_again(
    receiver: Receiver, tmp_path: Path
) -> None:
    prepare(tmp_path, receiver.url, jobs=3)
    kill_at = {2: "before its response", 5: "after its response"}
    killed = threading.Event()

    def kill() -> None:
        os.kill(pid, signal.SIGKILL)
        killed.set()

    def before(message_id: str) -> None:
        moment = kill_at.pop(len({h["webhook-id"] for _, h, _ in receiver.came}), None)
        if moment == "before its response":
            kill()
        elif moment:
            threading.Timer(0.05, kill).start()

    receiver.before = before
    for _ in range(2):
        killed.clear()
        with service(tmp_path) as pid:
            assert killed.wait(60)
    with service(tmp_path) as pid:
        end = time.monotonic() + 60
        while len({h["webhook-id"] for _, h, _ in receiver.came}) < 6:
            assert time.monotonic() < end, receiver.came
            time.sleep(0.05)
    ids = [headers["webhook-id"] for _, headers, _ in receiver.came]
    assert [name for name, _ in groupby(ids)] == sorted(set(ids), key=ids.index)
    assert ids.count(ids[0]) == 1
    assert ids[1] == ids[2]  # that which was killed before the response
    types = [body.split(b'"')[3].decode() for _, _, body in receiver.came]
    assert types[0:2] == ["job.started", "job.failed"]
    store = open_store(tmp_path)
    listed = store.webhooks.deliveries(ID, None, 10)
    store.close()
    assert [each.message_id for each in reversed(listed)] == list(dict.fromkeys(ids))[: len(listed)]
    assert len(listed) >= 5
