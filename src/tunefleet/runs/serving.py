"""The server of a home: one scheduler that jobs come to."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection
from contextlib import ExitStack, suppress
from typing import TYPE_CHECKING

from tunefleet.core.coordination import ControlRequest
from tunefleet.core.events import Event, ended_by
from tunefleet.core.home import Home
from tunefleet.core.job import Job, JobState
from tunefleet.errors import StoreBusyError, TunefleetError, judged
from tunefleet.fleet.leases import jobs_held
from tunefleet.fleet.server_socket import ServerReply, ServerRequest, ServerSocket
from tunefleet.runs.context import BenchmarkContext, fleet_of
from tunefleet.runs.driver import Pipeline
from tunefleet.runs.errands import ERRANDS, Errand
from tunefleet.runs.lifelong import BackgroundLearning

if TYPE_CHECKING:
    from tunefleet.fleet.live import Live
    from tunefleet.fleet.local import LocalFleet
    from tunefleet.fleet.shell import Shell

#: Seconds between two looks for jobs in the store, where nobody says that there is one.
_LOOK_S = 2.0


def _unheard(text: str) -> None:
    """Nobody watches."""


class Server:
    """Takes the jobs of a home that were submitted to it, and with `takes_all` every open one, to
    their end, under one scheduler.

    Where nothing is under way, cost models learn from each `learn_every` new records
    (`lifelong.BackgroundLearning`). `run` ends `idle_s` seconds after the last job, never without;
    `stop` ends it as soon as nothing runs. `say` hears what it does.
    """

    def __init__(
        self,
        context: BenchmarkContext,
        *,
        policy: str = "predictive",
        idle_s: float | None = None,
        takes_all: bool = False,
        learn_every: int = 0,
        say: Callable[[str], None] = _unheard,
    ) -> None:
        self._context = context
        self._home = context.home
        self._policy = policy
        self._idle_s = idle_s
        self._takes_all = takes_all
        self._say = say
        self._fleet: LocalFleet = fleet_of(context)
        self._learning = BackgroundLearning(self._fleet.store, self._home, learn_every, say)
        self._pipelines: dict[str, Pipeline | Errand] = {}
        #: Jobs that could not go on; they are tried again where someone asks for them.
        self._failed: set[str] = set()
        self._next_look = 0.0
        #: Whether nothing is under way but what users have paused.
        self._rests = True
        self._busy_at = time.monotonic()
        self._stopped = threading.Event()
        self._shell: Shell | None = None

    def run(self) -> None:
        """Raises StoreBusyError where another process serves the home."""
        with ExitStack() as stack:
            stack.callback(self._fleet.close)
            stack.enter_context(self._fleet.leases.server())
            listening = stack.enter_context(ServerSocket(Home(self._home), self._asked))
            self._say(f"serving {self._home} at {listening.path}")
            stack.callback(self._close_pipelines)
            stack.callback(self._learning.stop)
            self._shell = self._fleet.shell(self._policy)
            self._shell.run(self)

    def stop(self) -> None:
        """From any thread."""
        self._stopped.set()
        self._wake()

    def look(self, job_ids: Collection[str] = ()) -> None:
        """There may be new jobs; these are tried again. From any thread."""
        self._failed -= set(job_ids)
        self._next_look = 0.0
        self._wake()

    def _wake(self) -> None:
        if self._shell is not None:
            self._shell.wake()

    # What the shell asks

    def take(self) -> Live | None:
        self._reap()
        if self._stopped.is_set() or time.monotonic() < self._next_look:
            return None
        # Before the look: jobs that come during it are found by the next one.
        self._next_look = time.monotonic() + _LOOK_S
        for job in self._open_jobs():
            self._learning.look(is_idle=False)
            live = self._begin(job)
            if live is not None:
                self._next_look = 0.0
                return live
        wanted = self._fleet.store.coordination.wanted
        self._rests = all(wanted(job_id) is ControlRequest.PAUSE for job_id in self._pipelines)
        self._learning.look(self._rests)
        return None

    @property
    def is_open(self) -> bool:
        if not self._rests:
            self._busy_at = time.monotonic()
        idle_s = time.monotonic() - self._busy_at
        return not self._stopped.is_set() and (self._idle_s is None or idle_s < self._idle_s)

    @property
    def is_stopped(self) -> bool:
        return not self.is_open

    # How it does it

    def _open_jobs(self) -> list[Job]:
        from tunefleet.store import each_job

        return [
            job
            for job in reversed([*each_job(self._fleet.store.jobs, state=JobState.RUNNING)])
            if (self._takes_all or job.spec.terms.served)
            and (job.spec.source is not None or job.spec.kind in ERRANDS)
            and job.job_id not in self._pipelines
            and job.job_id not in self._failed
        ]

    def _begin(self, job: Job) -> Live | None:
        if job.spec.kind in ERRANDS:
            self._begin_errand(job)
            return None
        assert job.spec.source is not None
        context = BenchmarkContext.of_job(job, self._home)
        told = f"job {job.job_id[:8]} ({job.spec.network.name})"
        try:
            pipeline = Pipeline(self._fleet, context, job.spec.source, _unwatched, closes=True)
            self._pipelines[job.job_id] = pipeline
            pipeline.take_up(job)
        except StoreBusyError:  # the command that asked for it does it
            self._forget(job.job_id)
            return None
        except Exception as raised:  # of this job; others go on
            error = judged(raised)
            self._forget(job.job_id)
            self._failed.add(job.job_id)
            self._say(f"{told} cannot go on: {error}")
            with suppress(TunefleetError):  # those who watch would wait for ever
                self._fleet.store.events.append(job.job_id, time.time(), [ended_by(error)])
            return None
        self._rests = False
        self._say(f"{told} begins, for {job.spec.terms.owner}")
        lives = pipeline.advance()
        return next(iter(lives), None)

    def _begin_errand(self, job: Job) -> None:
        coordination = self._fleet.store.coordination
        paused = coordination.wanted(job.job_id) is ControlRequest.PAUSE
        if not paused and job.spec.fingerprint not in jobs_held(coordination):
            self._pipelines[job.job_id] = Errand(self._fleet.store, self._home, job)
            self._rests = False

    def _reap(self) -> None:
        """Let go of the jobs that have ended."""
        for job_id, pipeline in list(self._pipelines.items()):
            if not pipeline.is_over:
                continue
            told = f"job {job_id[:8]} ({pipeline.name})"
            if pipeline.error is not None:
                self._failed.add(job_id)
                self._say(f"{told} ended: {pipeline.error}")
            else:
                self._say(f"{told} is done")
            self._forget(job_id)

    def _forget(self, job_id: str) -> None:
        pipeline = self._pipelines.pop(job_id, None)
        if pipeline is not None:
            pipeline.close()

    def _close_pipelines(self) -> None:
        for job_id in list(self._pipelines):
            self._forget(job_id)

    def _asked(self, asked: ServerRequest) -> ServerReply:
        """What a client asks for; called by the socket's thread."""
        if asked.verb == "stop":
            self.stop()
        elif asked.verb == "take":
            self.look(asked.job_ids)
        return ServerReply(jobs=len(self._pipelines))


def _unwatched(event: Event) -> None:
    """Those who watch read the events that are kept."""
