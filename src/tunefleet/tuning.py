"""Many networks at once on this machine: what `tunefleet tune A B C` and a script both call."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tunefleet.context import BenchmarkContext
from tunefleet.core.events import JobEnded, Observer
from tunefleet.errors import InputError, TunefleetError
from tunefleet.request import search_request
from tunefleet.session import Session


@dataclass(frozen=True, slots=True)
class Tuned:
    """What became of one network: its result (`Session.result`), or the error that ended it."""

    network: str
    result: dict[str, Any] | None = None
    error: TunefleetError | None = None


def _unwatched(index: int) -> Observer:
    return lambda event: None


def tune(
    networks: Sequence[str | Path],
    *,
    context: BenchmarkContext | None = None,
    policy: str = "predictive",
    look_ahead: bool = False,
    priorities: Mapping[str, int] | None = None,
    deadlines_s: Mapping[str, float] | None = None,
    observer: Callable[[int], Observer] = _unwatched,
    **request: Any,
) -> list[Tuned]:
    """Tune networks at once under a policy: sequential, synchronous, interleaved, predictive.

    Returns their outcomes in the order of `networks`; an error of one does not end the others.
    Each is a job of its own with the budget and settings of `search_request` (`trials`,
    `minutes`, ...) and a run of its own in the home of `context`. `priorities` and `deadlines_s`
    are by network, higher goes first and seconds from now; only the predictive policy minds them.
    `observer(i)` is told what happens to the i-th network. Called again after an interruption, all
    jobs go on.
    """
    from tunefleet.fleet.local import LocalFleet, Submission

    names = [str(network) for network in networks]
    doubles = sorted({name for name in names if names.count(name) > 1})
    if doubles:
        raise InputError(f"{doubles[0]} is given twice", cure="name each network once")
    wanted = search_request(**request)
    base = context or BenchmarkContext()
    fleet = LocalFleet(base.target, wanted.settings, base.layout, base.home)
    outcomes: dict[int, Tuned] = {}
    sessions: dict[int, Session] = {}
    by_job: dict[str, int] = {}

    def failed(index: int, error: TunefleetError) -> None:
        outcomes[index] = Tuned(names[index], error=error)
        observer(index)(JobEnded(str(error)))

    def finish(job_id: str, ending: Any) -> None:
        index = by_job[job_id]
        session = sessions[index]
        try:
            session.crown(ending)
            result = session.build().save().evaluate().result()
            outcomes[index] = Tuned(names[index], result)
            observer(index)(JobEnded())
        except TunefleetError as error:
            failed(index, error)

    try:
        submissions = []
        for index, name in enumerate(names):
            session = sessions[index] = Session(base.another(), observer(index), fleet)
            try:
                job = session.from_network(name).open_job(wanted)
            except TunefleetError as error:
                failed(index, error)
                continue
            by_job[job.job_id] = index
            submissions.append(
                Submission(
                    job,
                    observer(index),
                    priority=(priorities or {}).get(name, 0),
                    deadline_s=(deadlines_s or {}).get(name),
                    lookahead=look_ahead,
                )
            )
        if submissions:
            fleet.tune(submissions, policy, finish)
    finally:
        for session in sessions.values():
            session.close()
        fleet.close()
    return [outcomes[index] for index in range(len(names))]
