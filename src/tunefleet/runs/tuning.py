"""Many networks at once on this machine: what `tunefleet tune A B C` and a script both call."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tunefleet.core.events import Observer, ended_by
from tunefleet.core.home import Home
from tunefleet.core.importing import ImportOptions, NetworkSource
from tunefleet.core.notebook import html_table
from tunefleet.core.precision import FLOAT32
from tunefleet.core.result import RunResult
from tunefleet.core.settings import TuneSettings
from tunefleet.errors import InputError, InternalError, TunefleetError
from tunefleet.runs.context import BenchmarkContext, context_of, fleet_of
from tunefleet.runs.given_inputs import GivenInputs, input_files
from tunefleet.runs.request import (
    SearchRequest,
    check_policy,
    job_spec,
    search_request,
    shape_request,
    source_of,
    terms_of,
)
from tunefleet.runs.submitting import (
    Leave,
    Submitted,
    follow,
    never,
    outcome_of,
    server_of,
    stop_jobs,
    submit,
    take,
)
from tunefleet.runs.watching import default_observer
from tunefleet.store import open_store

if TYPE_CHECKING:
    from tunefleet.fleet.live import Live
    from tunefleet.fleet.local import LocalFleet
    from tunefleet.runs.driver import Pipeline


@dataclass(frozen=True, slots=True)
class Tuned:
    """What became of one network on one kind of device, which `device` names: its result
    (`Session.result`), or the error that ended it; with neither, its `job` is with the server."""

    network: str
    result: RunResult | None = None
    error: TunefleetError | None = None
    job: str = ""
    device: str = ""

    def _repr_html_(self) -> str:
        """For notebooks."""
        if self.result is not None:
            return self.result._repr_html_()
        return html_table([("network", self.network), ("failed", str(self.error))])


def _nothing_more(outcomes: Sequence[Tuned]) -> None:
    """The default of `tell`: outcomes are returned."""


def tune(
    networks: Sequence[str | Path],
    *,
    trials: int | None = None,
    minutes: float | None = None,
    target_latency_ms: float | None = None,
    trials_per_task: int | None = None,
    device_minutes: float | None = None,
    speedup: float | None = None,
    most_lost: float | None = None,
    profile_timeout_s: float | None = None,
    batch_size: int | None = None,
    transfer_learning: bool | None = None,
    settings: TuneSettings | None = None,
    new_job: bool = False,
    context: BenchmarkContext | None = None,
    contexts: Sequence[BenchmarkContext] = (),
    policy: str = "predictive",
    look_ahead: bool | None = None,
    allow_interference: bool = False,
    priorities: Mapping[str, int] | None = None,
    deadlines_s: Mapping[str, float] | None = None,
    observer: Callable[[int], Observer] | None = None,
    tell: Callable[[Sequence[Tuned]], None] = _nothing_more,
    shapes: Mapping[str, Sequence[int] | Sequence[Sequence[int]]] | None = None,
    dims: Mapping[str, int | Sequence[int]] | None = None,
    constants: Mapping[str, float | Sequence[float]] | None = None,
    whole: bool = False,
    trust: bool = False,
    precision: str = FLOAT32,
    calibrate: str | Path | None = None,
    inputs: GivenInputs | None = None,
    detach: bool = False,
    leave: Leave = never,
) -> list[Tuned]:
    """Tune several networks at once, each for one kind of device or for several.

    Returns their outcomes in the order of `networks`, which are paths and names of the zoo; an
    error of one does not end the others. Where the devices of `context` are of several kinds, or
    there are `contexts` instead, which share one home, each network has an outcome for each kind,
    in the order of these. Each is a job of its own with its own run in the home of
    `context`, and the budget and settings that are given: `trials`, `minutes`,
    `target_latency_ms`, `trials_per_task`, `device_minutes`, `speedup`, `most_lost`,
    `profile_timeout_s`, `batch_size`, `transfer_learning`, `settings` and `new_job` are as in
    `Session.autotune`, 1,000 trials without a budget.

    `policy` (sequential, synchronous, interleaved, predictive) and `look_ahead` decide which stages
    run side by side. `priorities` and `deadlines_s` are by network, higher goes first and seconds
    from now; only the predictive policy brings a network forward for them. `allow_interference` is
    for experiments: the candidates of all networks may be measured at once on this machine's
    processor, as `synchronous` then does with each stage. Such jobs and their records are marked,
    and serve no other job; what is delivered is measured alone. A deadline ends the
    search, and the best so far is delivered. `shapes`, `dims` and `constants` fix what all of them
    leave free; these, `whole`, `trust`, `precision`, `calibrate` and `inputs` are as in
    `Session.from_network`.

    `observer(i)` gives what is called with the events of the i-th outcome
    (`tunefleet.core.events`), from any thread; without it a notebook shows the progress as text.
    Called again after an interruption, all jobs go on, also those that were delivered by then: a
    job ends when `tell` has been given the outcomes.

    Where a server has the home (`tunefleet serve`) it does the jobs, among those of others and by
    its own policy; this call watches. An interruption stops them as well, unless `leave` says that
    they are left to it. `detach` leaves them from the start, to a server that is begun where none
    is.

    Raises InputError where the call itself is wrong, such as a network that is given twice. What
    goes wrong with one network is the `error` of its outcome.
    """
    names = _names(networks)
    doubles = sorted({name for name in names if names.count(name) > 1})
    if doubles:
        raise InputError(f"{doubles[0]} is given twice", cure="name each network once")
    check_policy(policy)
    terms = terms_of(names, priorities, deadlines_s, look_ahead)
    asked = search_request(
        trials,
        minutes=minutes,
        target_latency_ms=target_latency_ms,
        trials_per_task=trials_per_task,
        device_minutes=device_minutes,
        speedup=speedup,
        most_lost=most_lost,
        profile_timeout_s=profile_timeout_s,
        batch_size=batch_size,
        transfer_learning=transfer_learning,
        settings=settings,
        new_job=new_job,
        allow_interference=allow_interference,
    )
    kinds = [kind for each in contexts or [context_of(context)] for kind in each.each_kind()]
    base = kinds[0]
    folder = partial(base.created, Home(base.home).modules)
    options = ImportOptions(
        shape_request(shapes, dims, constants), whole, trust, inputs=input_files(inputs, folder)
    )
    find = partial(source_of, options=options, precision=precision, calibrate=calibrate)
    several = len(names) * len(kinds) > 1
    wanted = [
        _Wanted(
            name,
            kind.another() if several else kind,
            replace(asked, terms=each),
            find,
        )
        for name, each in zip(names, terms, strict=True)
        for kind in kinds
    ]
    observers = [
        observer(index) if observer is not None else default_observer(each.name)
        for index, each in enumerate(wanted)
    ]
    if detach or server_of(base.home) is not None:
        served = _served(base.home, wanted, observers, detach, leave)
        tell(served)
        return served
    fleet = fleet_of(*kinds, networks=names)
    runs = [_Run(fleet, each, watch) for each, watch in zip(wanted, observers, strict=True)]
    try:
        fleet.check()
        # A job that another process has is refused here, before any worker starts.
        lives = [live for run in runs for live in run.begin()]
        if lives:
            fleet.shell(policy).run(lives)
        outcomes = [run.outcome() for run in runs]
        tell(outcomes)
        for run in runs:
            run.finish()
    finally:
        for run in runs:
            run.close()
        fleet.close()
    return outcomes


@dataclass(frozen=True, slots=True)
class _Wanted:
    """A network on one kind of device; `find` says where it comes from."""

    name: str
    context: BenchmarkContext
    request: SearchRequest
    find: Callable[..., NetworkSource]

    @property
    def source(self) -> NetworkSource:
        return self.find(self.name, context=self.context)

    def outcome(self, **came: Any) -> Tuned:
        return Tuned(self.name, device=self.context.place, **came)


def _served(
    home: Path,
    wanted: Sequence[_Wanted],
    observers: Sequence[Observer],
    detach: bool,
    leave: Leave,
) -> list[Tuned]:
    """Have the server of a home tune networks, and follow it. Raises InputError for cores, which
    are the server's."""
    if any(each.context.host_cores or each.context.device_cores for each in wanted):
        raise InputError(
            "the server of this home decides which cores are used",
            cure="give --host-cores and --device-cores to tunefleet serve",
        )
    store = open_store(home)
    submitted: dict[str, Submitted] = {}
    outcomes = [each.outcome() for each in wanted]
    try:
        for index, each in enumerate(wanted):
            watch = observers[index]
            try:
                spec = job_spec(each.context, each.source, each.request)
                new = each.request.new_job
                entered = submit(store, spec, each.context, watch, new=new)
            except TunefleetError as error:
                outcomes[index] = each.outcome(error=error)
                watch(ended_by(error))
                continue
            submitted[entered.job.job_id] = entered
            outcomes[index] = each.outcome(job=entered.job.job_id)
        if submitted:
            take(home, submitted)
        if detach or not submitted:
            return outcomes
        try:
            ended = follow(home, store, submitted)
        except KeyboardInterrupt:
            if leave():
                return outcomes
            stop_jobs(store, submitted)
            raise
        for index, outcome in enumerate(outcomes):
            if outcome.job:
                came = outcome_of(store, outcome.job, ended[outcome.job])
                if isinstance(came, InternalError):
                    raise came
                failed = came if isinstance(came, TunefleetError) else None
                result = came if isinstance(came, RunResult) else None
                outcomes[index] = replace(outcome, result=result, error=failed)
    finally:
        store.close()
    return outcomes


def _names(networks: Any) -> list[str]:
    """Raises InputError for what is no list of names: a text alone is many of one letter."""
    alone = isinstance(networks, str | bytes) or not isinstance(networks, Iterable)
    given = [networks] if alone else list(networks)
    for each in given:
        if alone or not isinstance(each, str | os.PathLike):
            raise InputError(
                f"tune takes a list of paths and names, not {type(each).__name__}",
                cure="such as tune(['a.onnx', 'zoo:resnet18']); from_network takes torch modules",
            )
    return [str(network) for network in given]


class _Run:
    """One of the networks: its way, or why it did not begin."""

    def __init__(self, fleet: LocalFleet, wanted: _Wanted, observer: Observer) -> None:
        self._fleet = fleet
        self._wanted = wanted
        self._observer = observer
        self._pipeline: Pipeline | None = None
        self._error: TunefleetError | None = None

    def begin(self) -> Sequence[Live]:
        """What is to be submitted."""
        # It loads the compiler, as the workers' server does meanwhile.
        from tunefleet.runs.driver import Pipeline

        try:
            wanted = self._wanted
            self._fleet.slots(wanted.context.device.hardware)  # or there is nothing to begin
            pipeline = Pipeline(self._fleet, wanted.context, wanted.source, self._observer)
            self._pipeline = pipeline
            pipeline.open_job(wanted.request)
        except TunefleetError as error:
            self._error = error
            self._observer(ended_by(error))
            return ()
        return pipeline.advance()

    def finish(self) -> None:
        """What came of it is told."""
        if self._pipeline is not None and self._pipeline.outcome is not None:
            self._pipeline.finish(self._pipeline.outcome.to_dict())

    def close(self) -> None:
        if self._pipeline is not None:
            self._pipeline.close()

    def outcome(self) -> Tuned:
        """Raises what is a bug of ours, or no error of the tree."""
        pipeline = self._pipeline
        error = self._error or (pipeline.error if pipeline is not None else None)
        if isinstance(error, InternalError):
            raise error
        if error is not None and not isinstance(error, TunefleetError):
            raise error
        result = pipeline.outcome if pipeline is not None else None
        return self._wanted.outcome(result=result, error=error)
