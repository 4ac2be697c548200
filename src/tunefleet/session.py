"""Session: import, autotune, build, save, evaluate, as one chain (SimpleTVM, thesis 3.1).

Everything the command line does to a network is a call of this module.
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from tunefleet.context import BenchmarkContext
from tunefleet.core.budget import Budget
from tunefleet.core.events import Event, JobOpened, Note, Observer, PhaseStarted
from tunefleet.core.importing import ImportOptions
from tunefleet.core.job import Job, JobSpec, JobState
from tunefleet.core.settings import TuneSettings
from tunefleet.errors import JobError, StepOrderError
from tunefleet.request import SearchRequest, job_spec, search_request, shape_request
from tunefleet.scheduler.values import JobEnd, Role
from tunefleet.scratch import scratch_folder

if TYPE_CHECKING:
    from torch.nn import Module

    from tunefleet.artifacts.artifact import Artifact
    from tunefleet.artifacts.module import TunedModule
    from tunefleet.fleet.comparison import Comparison, Contender
    from tunefleet.fleet.finalists import Finalists
    from tunefleet.fleet.live import Ending
    from tunefleet.fleet.local import LocalFleet
    from tunefleet.fleet.machine import Machine
    from tunefleet.fleet.network_work import PreparedNetwork
    from tunefleet.store import Store

__all__ = ["BenchmarkContext", "Session", "from_network"]

#: Rounds of the comparison in `build` that decides what is delivered.
_DECISION_ROUNDS = 3


def _ignore(event: Event) -> None:
    """The observer of whoever does not watch."""


def from_network(
    network: str | Path | Module, *, context: BenchmarkContext | None = None, **importing: Any
) -> Session:
    """A session with a network imported and checked; `importing` is what
    `Session.from_network` takes."""
    session = Session(context)
    try:
        return session.from_network(network, **importing)
    except BaseException:
        session.close()
        raise


class Session:
    """One network on its way through the steps; each returns the session, so they chain.

    `from_network` -> `autotune` (optional) -> `build` -> `save` / `evaluate` / `run`. A step
    called too early raises StepOrderError naming the one that is missing. Worker processes start
    with the first step and end with `close`, with the `with` block, or with the process; those of
    a `fleet` that is given live as long as that.
    """

    def __init__(
        self,
        context: BenchmarkContext | None = None,
        observer: Observer = _ignore,
        fleet: LocalFleet | None = None,
    ) -> None:
        self.context = context or BenchmarkContext()
        self._observer = observer
        self._fleet = fleet
        self._owns_fleet = fleet is None
        self._locks = ExitStack()
        self._scratch: tempfile.TemporaryDirectory[str] | None = None
        self._settings = TuneSettings()
        self._store: Store | None = None
        self._prepared: PreparedNetwork | None = None
        self._job: Job | None = None
        self._fingerprint = ""
        self._finalists: Finalists | None = None
        self._stopped = ""
        self._resumed = False
        self._tuned: Path | None = None
        self._delivered = ""
        self._why_plain = ""
        self._difference = 0.0
        self._comparisons: list[Comparison] = []
        self._kernels: dict[str, float] = {}
        self._peak: float | None = None
        self._artifact: Artifact | None = None
        self._module: TunedModule | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        tb: TracebackType | None,
    ) -> None:
        self.release()
        if error is None:
            self.close()

    def close(self) -> None:
        """End the workers and release the store. The session can still tell its result; the same
        request is a job of its own from now on."""
        self.release()
        if self._fingerprint:
            from tunefleet.fleet.locks import tell

            tell(self.context.directory("locks"), self._fingerprint)
            self._fingerprint = ""

    def release(self) -> None:
        """`close` where the result is still to be told: a command that is killed before that finds
        the job when it is given again (`delivered_before`)."""
        self._locks.close()
        if self._fleet is not None and self._owns_fleet:
            self._fleet.close()
        self._fleet = self._store = None
        if self._scratch is not None:
            self._scratch.cleanup()
            self._scratch = None
        if self._module is not None:
            self._module.close()
            self._module = None

    # The steps

    def from_network(
        self,
        spec: str | Path | Module,
        *,
        example_inputs: Sequence[Any] | Mapping[str, Any] | None = None,
        dynamic: Mapping[str, Mapping[int, Any]] | None = None,
        shapes: Mapping[str, Sequence[int] | Sequence[Sequence[int]]] | None = None,
        dims: Mapping[str, int | Sequence[int]] | None = None,
        constants: Mapping[str, float | Sequence[float]] | None = None,
        whole: bool = False,
        trust: bool = False,
    ) -> Self:
        """Import a network, check it against its source framework, split it into tasks.

        `shapes` fixes shapes of inputs by name, `dims` free dimensions by name; several values of
        a dimension make one module for all of them. `constants` are inputs that always have these
        values: the network is tuned without them. `whole`: refuse a network of which a part
        would stay in its source framework. `trust`: run code that its file may hold, where reading
        it needs that (docs/security.md).

        A torch module in eval mode is exported with its `example_inputs`, a tuple of tensors, or a
        dictionary of them by name; `dynamic` names its free axes, such as {"x": {0: "batch"}}. Its
        file is kept below home, in a place named by its content.
        """
        from tunefleet.compiler.frontends.torch_module import file_of

        folder = partial(self.context.directory, "modules")
        spec = file_of(spec, example_inputs, dynamic, folder)
        asked = shape_request(shapes, dims, constants)
        self.import_network(spec, ImportOptions(asked, whole, trust))
        self.check_import()
        return self

    def import_network(self, spec: str | Path, options: ImportOptions) -> None:
        """The part of `from_network` that the device has no part in."""
        from tunefleet.compiler.frontends import network_digest
        from tunefleet.fleet.network_steps import prepared_network

        self._phase("import")
        target, folder = self.context.target, self._scratch_path()
        cores = self.context.layout.host_cores
        with self.context.timed("import", Role.HOST):
            found = prepared_network(str(spec), target, folder, options, cores=cores)
            for note in dict.fromkeys(n for each in found.tasked.variants for n in each.notes):
                self._observer(Note(note))
            self._prepared = found
        self.context.values["network"] = self._prepared.info.name
        # Where it is found again to be measured beside its artifact.
        is_file = Path(spec).exists()
        self.context.values["spec"] = str(Path(spec).resolve()) if is_file else str(spec)
        self.context.values["spec_digest"] = network_digest(str(spec))

    def check_import(self) -> None:
        """The part of `from_network` that runs on the device."""
        prepared = self._need(self._prepared, "check_import", "import_network")
        from tunefleet.fleet.network_steps import check

        self._phase("check")
        with self.context.timed("check", Role.DEVICE):
            machine = self._start_machine()
            self._prepared = check(prepared, machine)
            for caveat in self._prepared.caveats:
                self._observer(Note(caveat, warning=True))
            self._peak = machine.peak_gflops()

    def autotune(
        self,
        trials: int | None = None,
        *,
        policy: str = "predictive",
        look_ahead: bool | None = None,
        **request: Any,
    ) -> Self:
        """Search until the budget ends, then choose and verify each task's winner.

        `trials` and what follows are those of `search_request`: `minutes`, `target_latency_ms`,
        `profile_timeout_s`, `batch_size`, `transfer_learning`, `settings`, `new_job`. `policy` and
        `look_ahead` decide which stages run side by side where this machine builds and measures
        on different cores. A job of the same network, target, device, budget and settings that
        was interrupted is continued.
        """
        self._need(self._prepared, "autotune", "from_network")
        from tunefleet.fleet.local import Wanted

        with self._locks:
            job = self.open_job(search_request(trials, **request))
            with self.context.timed("tune"):
                fleet = self._place()
                shell = fleet.shell(policy)
                shell.submit(fleet.search(job, self._observer, Wanted(lookahead=look_ahead)))
                ending = shell.run()[job.job_id]
            self.build_finalists(ending)
            self.crown()
        return self

    def open_job(self, request: SearchRequest) -> Job:
        """Enter the job of this network into the store and lock it until `close`."""
        prepared = self._need(self._prepared, "open_job", "from_network")
        from tunefleet.fleet.locks import job_lock

        self._settings = request.settings
        spec = job_spec(self.context, prepared.info, request.budget, request.settings)
        self._fingerprint = spec.fingerprint
        self._locks.enter_context(job_lock(self.context.directory("locks"), spec.fingerprint))
        self._job = self._open_job(self._open_store(), spec, prepared, request.new_job)
        return self._job

    def build_finalists(self, ending: Ending) -> None:
        """Build each task's best programs after a search; raises what failed it."""
        job = self._need(self._job, "build_finalists", "open_job")
        from tunefleet.fleet.finalists import Finalists

        if ending.error is not None:
            raise ending.error
        if ending.end is not JobEnd.DONE:
            raise JobError(f"{job.spec.network.name}: {ending.reason}", cure="tune it again")
        self._stopped = ending.reason
        self._phase("verify winners")
        with self.context.timed("finalists", Role.HOST):
            machine = self._start_machine()
            self._finalists = Finalists(self._open_store(), machine, job, self._observer)
            self._finalists.build()

    def crown(self) -> None:
        """Choose and verify each task's winner, on the device."""
        finalists = self._need(self._finalists, "crown", "build_finalists")
        with self.context.timed("finalists", Role.DEVICE):
            finalists.crown()

    def build(self) -> Self:
        """Compile with the best verified records; keep the plain module if that is faster.

        Without `autotune` before, the records are those that earlier jobs verified on this
        device.
        """
        self.compile()
        self.verify()
        return self

    def compile(self) -> None:
        """The part of `build` that the device has no part in."""
        prepared = self._need(self._prepared, "build", "from_network")
        from tunefleet.fleet.network_steps import compile_tuned

        tuned = self._scratch_path() / "tuned.so"
        self._phase("compile")
        with self.context.timed("compile", Role.HOST):
            traces = self._traces(prepared)
            cores = self.context.layout.host_cores
            compile_tuned(prepared, tuned, self.context.target, traces, cores)
        self._tuned, self._delivered, self._why_plain = tuned, "tuned", ""

    def verify(self) -> None:
        """The part of `build` that runs on the device."""
        tuned = self._need(self._tuned, "verify", "compile")
        prepared = self._need(self._prepared, "verify", "from_network")
        from tunefleet.fleet.comparison import Contender, compare
        from tunefleet.fleet.network_steps import difference_of

        machine = self._start_machine()
        self._phase("measure")
        with self.context.timed("evaluate", Role.DEVICE):
            self._difference = difference_of(prepared, tuned, machine)
            if not self._difference <= prepared.tolerance:
                self._deliver_plain(
                    f"the tuned module differs from the source framework by {self._difference:.1e}"
                )
                return
            both = [Contender("plain", prepared.plain), Contender("tuned", tuned)]
            try:
                found = compare(both, prepared, machine, _DECISION_ROUNDS)
            except JobError as error:
                # It computes what it should: that it was not timed is no reason to lose a search.
                self._observer(Note(f"{error}: delivered unmeasured", warning=True))
                return
        if found.ratio("plain", "tuned").median <= 1.0:
            self._deliver_plain("the tuned module is not faster than the plain one")

    def save(self) -> Self:
        """Publish the artifact directory `home/artifacts/RUN_ID`."""
        self._need(self._tuned, "save", "build")
        self._phase("publish")
        with self.context.timed("publish", Role.HOST):
            self._publish()
        return self

    def evaluate(self, rounds: int | None = None) -> Self:
        """Measure the source framework, untuned TVM where that can be waited for, and what is
        delivered end to end, in turn; adds to a saved artifact's report."""
        self._need(self._tuned, "evaluate", "build")
        prepared = self._need(self._prepared, "evaluate", "from_network")
        from tunefleet.fleet.comparison import kernel_times

        machine = self._start_machine()
        self._phase("measure")
        with self.context.timed("evaluate", Role.DEVICE):
            count = rounds or self._settings.measure.end_to_end_rounds
            found = [
                self._compared(prepared, machine, count, index)
                for index in range(len(prepared.info.signatures))
            ]
            whole = [each for each in found if each is not None]
            self._comparisons = whole if len(whole) == len(found) else []
            for warning in dict.fromkeys(each.warning for each in self._comparisons):
                if warning:
                    self._observer(Note(warning, warning=True))
            try:
                self._kernels = kernel_times(self.module_path, prepared, machine)
            except JobError as error:
                self._observer(Note(str(error), warning=True))
            if self._peak is not None and any(
                (row["gflops"] or 0.0) > self._peak and not row["winograd"]
                for row in self.result().get("tasks", ())
            ):
                # It was disturbed when it was measured.
                self._peak = max(self._peak, machine.peak_gflops() or 0.0)
        if self._artifact is not None:
            self._tell()
        if self._job is not None and self._store is not None:
            self._store.finish(self._job.job_id, JobState.DONE, self.result())
        return self

    def run(self, *inputs: Any) -> Any:
        """Run the delivered module, as `tunefleet.load` gives it; it stays loaded until `close`."""
        if self._artifact is None:
            self._need(self._tuned, "run", "build")
            raise StepOrderError("run needs save first", cure="call save() or Session.load(run_id)")
        if self._module is None:
            from tunefleet.artifacts.module import TunedModule

            self._module = TunedModule(self._artifact)
        return self._module(*inputs)

    @classmethod
    def load(cls, run_id: str | Path, home: Path | str | None = None) -> Session:
        """A session on a saved artifact: it can `run`, nothing else."""
        from tunefleet.inference import open_artifact

        session = cls(BenchmarkContext(home=home))
        session._artifact = open_artifact(run_id, home)
        return session

    # What it knows

    @property
    def module_path(self) -> Path:
        """The shared library that is delivered."""
        prepared = self._need(self._prepared, "module_path", "from_network")
        tuned = self._need(self._tuned, "module_path", "build")
        chosen: Path = tuned if self._delivered == "tuned" else prepared.plain
        return chosen

    @property
    def peak_gflops(self) -> float | None:
        """float32 GFLOP/s that the target's threads reach at best, measured by `from_network`."""
        return self._peak

    def result(self) -> dict[str, Any]:
        """Everything there is to tell, as one JSON value (schema tunefleet-result/2)."""
        if self._artifact is not None and self._prepared is None:
            return self._artifact.result
        prepared = self._need(self._prepared, "result", "from_network")
        from tunefleet.results import build_result

        return build_result(
            context=self.context,
            prepared=prepared,
            machine_target=self.context.target,
            store=self._store,
            job=self._job,
            resumed=self._resumed,
            stopped=self._stopped,
            delivered=self._delivered,
            why_plain=self._why_plain,
            difference=self._difference if self._tuned else None,
            comparisons=self._comparisons,
            kernels=self._kernels,
            peak_gflops=self._peak,
            artifact=self._artifact.path if self._artifact else None,
        )

    # How it does it

    def _need(self, value: Any, step: str, missing: str) -> Any:
        if value is None:
            raise StepOrderError(f"{step} needs {missing} first", cure=f"call {missing}() before")
        return value

    def _scratch_path(self) -> Path:
        """Where modules lie until they are published."""
        if self._scratch is None:
            self._scratch = scratch_folder("session")
        return Path(self._scratch.name)

    def _phase(self, name: str) -> None:
        if self._job is not None and self._owns_fleet:  # else the shell minds wishes
            self._place().heed(self._job, self._observer)
        self._wait_for_space()
        self._observer(PhaseStarted(name))

    def _wait_for_space(self) -> None:
        from tunefleet.fleet.space import with_space

        def heed() -> None:
            if self._job is not None:
                self._place().heed(self._job, self._observer)

        folders = [self._scratch_path(), self.context.home]
        with_space(lambda: None, folders, self._observer, heed)

    def _place(self) -> LocalFleet:
        if self._fleet is None:
            from tunefleet.fleet.local import LocalFleet

            context = self.context
            self._fleet = LocalFleet(context.target, self._settings, context.layout, context.home)
        return self._fleet

    def delivered_before(self, request: SearchRequest) -> dict[str, Any] | None:
        """The result of a job like the one asked for that is done, but whose command was stopped or
        killed before it could tell: this one is its continuation."""
        prepared = self._need(self._prepared, "delivered_before", "from_network")
        from tunefleet.fleet.locks import is_locked, was_told

        spec = job_spec(self.context, prepared.info, request.budget, request.settings)
        locks = self.context.directory("locks")
        if request.new_job or was_told(locks, spec.fingerprint):
            return None
        if is_locked(locks, spec.fingerprint):
            return None  # opening the job says whose it is
        alike = [j for j in self._open_store().jobs() if j.spec.fingerprint == spec.fingerprint]
        last = max(alike, key=lambda job: job.created_at, default=None)
        if last is None or last.state is not JobState.DONE:
            return None
        result: dict[str, Any] = self._open_store().summary(last.job_id)
        if not result["artifact"] or not Path(result["artifact"]).is_dir():
            return None
        self._fingerprint = spec.fingerprint
        self._observer(Note("delivered before the interruption"))
        return result

    def _start_machine(self) -> Machine:
        return self._place().machine

    def _open_store(self) -> Store:
        self._store = self._place().store
        return self._store

    def _open_job(
        self, store: Store, spec: JobSpec, prepared: PreparedNetwork, new_job: bool
    ) -> Job:
        if new_job:
            for old in store.jobs():
                if old.state is JobState.RUNNING and old.spec.fingerprint == spec.fingerprint:
                    store.finish(old.job_id, JobState.FAILED, {"stopped": "replaced by a new job"})
        job = store.open_job(spec, job_id=self.context.run_id, now=self.context.created_at)
        self._resumed = job.job_id != self.context.run_id
        # A job has one artifact, also where a process before published it and was killed then.
        self.context.run_id = job.job_id
        store.put_tasks(job.job_id, prepared.tasked.tasks)
        self._observer(JobOpened(job.job_id, self._resumed, spec.budget, job.elapsed_s))
        return job

    def _traces(self, prepared: PreparedNetwork) -> dict[str, str]:
        """What `build` compiles: the job's winners, or without a job the best of earlier ones."""
        from tunefleet.delivery import best_traces, winning_traces

        store = self._open_store()
        if self._job is not None:
            return winning_traces(store, self._job)
        info, budget = prepared.info, Budget(trials=1)  # no search, it is not looked at
        spec = job_spec(self.context, info, budget, self._settings)
        found = best_traces(store, spec, prepared.tasked.tasks)
        if not found:
            self._observer(Note("no verified record fits this device: the module is plain"))
        return found

    def _deliver_plain(self, why: str) -> None:
        self._delivered, self._why_plain = "plain", why
        self._observer(Note(f"{why}: the plain module is delivered", warning=True))

    def _compared(
        self, prepared: PreparedNetwork, machine: Machine, rounds: int, variant: int
    ) -> Comparison | None:
        """What is delivered beside the baselines; alone where these cannot be measured, and None
        where nothing can: what was saved stays."""
        from tunefleet.fleet.comparison import compare

        contenders = self._contenders(prepared, variant)
        for chosen in (contenders, contenders[-1:]):
            try:
                return compare(chosen, prepared, machine, rounds, variant)
            except JobError as error:
                self._observer(Note(str(error), warning=True))
        return None

    def _contenders(self, prepared: PreparedNetwork, variant: int) -> list[Contender]:
        from tunefleet.fleet.comparison import SOURCE, TUNED, UNTUNED, Contender

        found = [Contender(SOURCE, prepared.tasked.variants[variant].reference)]
        if prepared.untuned is not None:
            found.append(Contender(UNTUNED, prepared.untuned))
        return [*found, Contender(TUNED, self.module_path)]

    def _publish(self) -> None:
        from tunefleet.delivery import artifact_of, publish
        from tunefleet.results import records_used

        prepared = self._need(self._prepared, "save", "from_network")
        self._artifact = artifact_of(self.context, prepared, {})  # the result names its path
        self._artifact = replace(self._artifact, result=self.result())
        records = records_used(self._store, self._job) if self._job else []
        self._artifact = publish(self._artifact, self.module_path, prepared.untuned, records)

    def _tell(self) -> None:
        """Write the result as it is now to the saved artifact; its modules stay."""
        from tunefleet.delivery import tell

        assert self._artifact is not None
        self._artifact = tell(replace(self._artifact, result=self.result()))
