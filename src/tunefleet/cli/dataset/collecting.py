"""`tunefleet dataset collect`: records of many networks' tasks, measured on this machine."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tunefleet.cli import options, output
from tunefleet.cli.dataset import arguments
from tunefleet.cli.outcome import Stopped, one_line
from tunefleet.core.events import (
    Event,
    JobEnded,
    JobOpened,
    LaneUpdated,
    Note,
    Observer,
    PhaseStarted,
)
from tunefleet.errors import JobError

if TYPE_CHECKING:
    from rich.console import Console

    from tunefleet.collection import Gathered

#: Seconds between two lines in a log.
_LINE_S = 15.0


@dataclass(slots=True)
class _State:
    """One network on one target; `expected` is None until its tasks are known."""

    name: str
    expected: int | None = None
    before: int = 0
    trials: int = 0
    tasks: int = 0
    ended: bool = False
    importing: bool = False


class Tally:
    """What was collected of what is expected; times are `now` of whoever calls, in seconds."""

    def __init__(self, names: Sequence[str], now: float) -> None:
        self.networks = [_State(name) for name in names]
        self._began = now
        self._lanes: list[dict[str, int]] = [{} for _ in names]

    def absorb(self, index: int, event: Event) -> None:
        state, lanes = self.networks[index], self._lanes[index]
        if isinstance(event, PhaseStarted):
            state.importing = event.name == "import"
        elif isinstance(event, JobOpened):
            state.expected = event.budget.trials
        elif isinstance(event, LaneUpdated):
            task_id = event.weighted.task.task_id
            if task_id not in lanes:  # told of every lane before its search begins
                state.before += event.trials
                state.tasks += 1
            lanes[task_id] = event.trials
            state.trials = sum(lanes.values())
        elif isinstance(event, JobEnded):
            state.ended, state.importing = True, False

    @property
    def trials(self) -> int:
        return sum(state.trials for state in self.networks)

    @property
    def ended(self) -> int:
        return sum(state.ended for state in self.networks)

    def expected(self) -> float | None:
        """Trials of all networks; those not imported yet count as the mean of the others."""
        known = [state.expected for state in self.networks if state.expected is not None]
        if not known:
            return None
        unknown = sum(state.expected is None and not state.ended for state in self.networks)
        return sum(known) + unknown * sum(known) / len(known)

    def left_s(self, now: float) -> float | None:
        """Seconds until all is collected at the rate so far, or None before there is one."""
        expected = self.expected()
        made = self.trials - sum(state.before for state in self.networks)
        left = sum(
            max(0, s.expected - s.trials)
            for s in self.networks
            if s.expected is not None and not s.ended
        )
        if expected is None or made < 1:
            return None
        known = sum(s.expected for s in self.networks if s.expected is not None)
        return (left + expected - known) * (now - self._began) / made

    def doing(self) -> str:
        """The networks under way."""
        return ", ".join(
            f"{'importing ' if s.importing else ''}{s.name}"
            for s in self.networks
            if not s.ended and (s.importing or s.expected is not None)
        )

    def line(self, now: float) -> str:
        from tunefleet.report.units import format_clock, format_count

        left = self.left_s(now)
        text = (
            f"{format_count(self.trials)} records, {self.ended} of {len(self.networks)} networks, "
            f"{format_clock(now - self._began)}"
        )
        return text if left is None else f"{text}, left about {format_clock(left)}"


class Watcher:
    """Shows a tally: one line in place in a terminal, a line now and then in a log."""

    def __init__(self, names: Sequence[str], console: Console, *, quiet: bool) -> None:
        self.tally = Tally(names, time.monotonic())
        self._console = console
        self._quiet = quiet
        self._last = time.monotonic()
        self._lock = threading.Lock()
        self._status: Any = None

    def observer(self, index: int) -> Observer:
        return partial(self._observe, index)

    def __enter__(self) -> Watcher:
        if not self._quiet and self._console.is_terminal:
            self._status = self._console.status("collecting")
            self._status.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._status is not None:
            self._status.stop()

    def _observe(self, index: int, event: Event) -> None:
        with self._lock:
            self.tally.absorb(index, event)
            name = self.tally.networks[index].name
            if isinstance(event, Note):
                self._print(f"{name}: {'warning: ' if event.warning else ''}{event.text}")
            if self._quiet:
                return
            now = time.monotonic()
            text = f"{self.tally.line(now)}: {self.tally.doing()}"
            if self._status is not None:
                self._status.update(one_line(text))
            elif now - self._last >= _LINE_S or isinstance(event, JobEnded):
                self._last = now
                self._print(text)

    def _print(self, text: str) -> None:
        self._console.print(one_line(text), soft_wrap=True)


def _parquet(value: str | None) -> str | None:
    return None if value is None else arguments.parquet_output(value)


def collect(
    networks: Annotated[
        list[str] | None,
        typer.Option(
            "--networks",
            metavar="NETWORK",
            help="May be repeated; without it all configurations of the zoo.",
        ),
    ] = None,
    targets: Annotated[
        list[str],
        typer.Option(
            "--targets",
            metavar="TARGET",
            help="native, or a processor whose code this machine runs: nehalem (SSE4.2), haswell "
            "(AVX2), skylake-avx512. May be repeated.",
        ),
    ] = ["native"],  # noqa: B006 (typer copies it)
    threads: Annotated[
        list[int],
        typer.Option("--threads", metavar="N", help="Threads of the code. May be repeated."),
    ] = [1],  # noqa: B006
    programs_per_task: Annotated[
        int,
        typer.Option(metavar="N", callback=options.positive, help="Programs to measure per task."),
    ] = 64,
    device: options.DeviceKey = "",
    out: Annotated[
        str | None,
        typer.Option(
            "--output",
            "-o",
            metavar="OUT.parquet",
            callback=_parquet,
            help="Write all records of these networks and targets.",
        ),
    ] = None,
    force: arguments.Force = False,
    host_cores: options.HostCores = None,
    device_cores: options.DeviceCores = None,
    home: options.Home = None,
    json: options.JsonFile = None,
    quiet: options.Quiet = False,
    traceback: options.Traceback = False,
) -> None:
    """Measure programs of networks' tasks on this machine, to train cost models on.

    Goes on where it was when it is called again; a task that networks share is collected once.
    """
    from tunefleet.zoo.collection import CONFIGURATIONS

    if out is not None:
        arguments.check_free(Path(out), force)
    wanted = networks or list(CONFIGURATIONS)
    with _watched(wanted, targets, threads, quiet=quiet) as watcher:
        from tunefleet.collection import collect as run
        from tunefleet.context import BenchmarkContext

        contexts = [
            BenchmarkContext(
                target,
                threads=count,
                device_key=device,
                host_cores=options.core_numbers(host_cores),
                device_cores=options.core_numbers(device_cores),
                home=home,
            )
            for target in targets
            for count in threads
        ]
        found = run(wanted, contexts, programs_per_task, observer=watcher.observer)
    if out is not None:
        _write(out, found, contexts[0].home)
    if json != options.STDOUT:
        _show(found)
    if json is not None:
        from dataclasses import asdict

        output.write_json(json, [asdict(gathered) for gathered in found])
    failed = [gathered for gathered in found if gathered.error]
    if failed:
        raise JobError(
            f"{len(failed)} of {len(found)} were not collected, {failed[0].network}: "
            f"{failed[0].error}",
            cure="the same command tries them again",
        )


def _write(out: str, found: Sequence[Gathered], home: Path) -> None:
    from tunefleet.collected import jobs_called, write_jobs
    from tunefleet.store import open_store

    store = open_store(home)
    try:
        jobs = jobs_called(store, [gathered.job_id for gathered in found if gathered.job_id])
        count = write_jobs(Path(out), store, jobs)
    finally:
        store.close()
    output.console(stderr=True).print(f"{count} records written to {out}", soft_wrap=True)


@contextmanager
def _watched(
    networks: Sequence[str], targets: Sequence[str], threads: Sequence[int], *, quiet: bool
) -> Iterator[Watcher]:
    from tunefleet.cli.overview import short_names

    places = [f"{t}/{n}" for t in targets for n in threads]
    short = short_names(networks) if len(networks) > 1 else list(networks)
    names = [
        f"{name} for {place}" if len(places) > 1 else name for place in places for name in short
    ]
    with Watcher(names, output.console(stderr=True), quiet=quiet) as watcher:
        try:
            yield watcher
        except KeyboardInterrupt:
            raise Stopped(
                f"stopped: {watcher.tally.trials} records are kept; the same command continues"
            ) from None


def _show(found: Sequence[Gathered]) -> None:
    from tunefleet.report.text import grid
    from tunefleet.report.units import format_count

    table = grid("Collected")
    table.add_column("target", no_wrap=True)
    for heading in ("networks", "tasks", "records", "failed networks"):
        table.add_column(heading, justify="right")
    for target in dict.fromkeys(g.target for g in found):
        of_target = [g for g in found if g.target == target]
        table.add_row(
            target,
            format_count(sum(not g.error for g in of_target)),
            format_count(sum(g.tasks for g in of_target)),
            format_count(sum(g.trials for g in of_target)),
            format_count(sum(bool(g.error) for g in of_target)),
        )
    output.console().print(table)
