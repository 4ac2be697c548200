"""Watches runs: a live view in a terminal, plain lines in a log, only warnings when quiet."""

from __future__ import annotations

import threading
import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial

from rich.console import Console, RenderableType
from rich.live import Live

from tunefleet.cli.board import Board
from tunefleet.cli.outcome import one_line
from tunefleet.cli.overview import Overview, Told, short_names
from tunefleet.cli.view import Panel, phase_line, phase_text, round_line
from tunefleet.core.events import Event, JobEnded, JobOpened, Observer, PhaseStarted, StageCommitted
from tunefleet.core.stage import StageKind

#: Seconds between two pictures; more while a device measures, which may share its cores.
_REFRESH_S = 0.25
_REFRESH_MEASURING_S = 1.0
#: Seconds between two lines of progress in a log.
_LINE_INTERVAL_S = 10.0

Clock = Callable[[], float]


class View(ABC):
    """Takes the events of each network's run. Observers may be called from any thread."""

    def __init__(self, overview: Overview, clock: Clock = time.monotonic) -> None:
        self.overview = overview
        self._clock = clock
        self._lock = threading.Lock()

    def observer(self, index: int) -> Observer:
        """Who takes the events of one network."""
        return partial(self._observe, index)

    def shares(self) -> dict[str, float]:
        """The busy share of each resource since tuning began."""
        with self._lock:
            return self.overview.usage.shares(self._clock())

    def _observe(self, index: int, event: Event) -> None:
        with self._lock:
            now = self._clock()
            told = self.overview.absorb(index, event, now)
            self._show(index, event, told, now)

    @abstractmethod
    def _show(self, index: int, event: Event, told: Told | None, now: float) -> None:
        """Let the user see an event that is taken into account. Called by one thread at a time."""


class QuietView(View):
    """Counts and shows nothing but warnings."""

    def __init__(self, overview: Overview, console: Console, clock: Clock = time.monotonic) -> None:
        super().__init__(overview, clock)
        self._console = console

    def _show(self, index: int, event: Event, told: Told | None, now: float) -> None:
        if told is not None and told.warning:
            self._console.print(one_line(told.line()), soft_wrap=True)


class LineView(View):
    """For a log: a line per phase and note, and one of progress every ten seconds at most."""

    def __init__(self, overview: Overview, console: Console, clock: Clock = time.monotonic) -> None:
        super().__init__(overview, clock)
        self._console = console
        self._last = float("-inf")
        #: Networks with a round that no line told yet, the longest waiting first.
        self._unsaid: dict[int, None] = {}
        self._phases: dict[int, str] = {}
        #: Networks in the order in which a line may say that they are still at it.
        self._turns = deque(range(len(overview.jobs)))
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._beat, name="tunefleet-view", daemon=True)

    def start(self) -> None:
        """Say every ten seconds how far a phase is that has no rounds."""
        self._thread.start()

    def stop(self) -> None:
        """Say what the interval held back."""
        self._ended.set()
        if self._thread.ident is not None:
            self._thread.join()
        with self._lock:
            for index in list(self._unsaid):
                self._say_round(index, self._clock())

    def beat(self) -> None:
        """Say how far a network is, where nothing was said for an interval."""
        with self._lock:
            now = self._clock()
            if now - self._last < _LINE_INTERVAL_S:
                return
            for _ in range(len(self._turns)):
                self._turns.rotate(-1)
                index = self._turns[-1]
                job = self.overview.jobs[index]
                if job.steps_now and job.held is None:
                    self._say(index, phase_line(job, now), now)
                    return

    def _beat(self) -> None:
        while not self._ended.wait(1.0):
            self.beat()

    def _show(self, index: int, event: Event, told: Told | None, now: float) -> None:
        job = self.overview.jobs[index]
        if told is not None:
            self._print(told.line("note: "))
        elif isinstance(event, PhaseStarted):
            if self._phases.get(index) == event.name:  # another step of it
                return
            self._phases[index] = event.name
            if index in self._unsaid:
                self._say_round(index, now)
            self._print(f"{self._prefix(index)}phase {phase_text(job)}")
            self._last = now
        elif isinstance(event, JobOpened):
            how = "resumed" if event.resumed else "started"
            self._print(f"{self._prefix(index)}job {event.job_id[:8]} {how}: {job.network}")
        elif isinstance(event, JobEnded):
            if event.error and len(self.overview.jobs) == 1:
                return  # it is the command's error
            self._print(f"{self._prefix(index)}{_ending(event)}")
        elif isinstance(event, StageCommitted) and event.run.key.kind is StageKind.UPDATE:
            self._unsaid.setdefault(index)
            if now - self._last >= _LINE_INTERVAL_S:
                self._say_round(next(iter(self._unsaid)), now)

    def _say_round(self, index: int, now: float) -> None:
        del self._unsaid[index]
        self._say(index, round_line(self.overview.jobs[index], now), now)

    def _say(self, index: int, text: str, now: float) -> None:
        self._last = now
        self._print(f"{self._prefix(index)}{text}")

    def _prefix(self, index: int) -> str:
        name = self.overview.name(index)
        return f"{name}: " if name else ""

    def _print(self, text: str) -> None:
        self._console.print(one_line(text), soft_wrap=True)


class TerminalView(View):
    """Redraws a panel in place; a thread of its own draws, so a long stage does not freeze it."""

    def __init__(self, overview: Overview, console: Console, clock: Clock = time.monotonic) -> None:
        super().__init__(overview, clock)
        self._ended = threading.Event()
        self._failure: Exception | None = None
        self._live = Live(
            console=console,
            auto_refresh=False,
            get_renderable=self.panel,
            vertical_overflow="crop",
            redirect_stdout=False,
        )
        self._thread = threading.Thread(target=self._draw, name="tunefleet-view", daemon=True)

    def panel(self) -> RenderableType:
        overview, now = self.overview, self._clock()
        return Board(overview, now) if len(overview.jobs) > 1 else Panel(overview.jobs[0], now)

    def start(self) -> None:
        self._live.start(refresh=False)
        self._thread.start()

    def stop(self) -> None:
        """Leave the last picture on the screen and give the cursor back."""
        self._ended.set()
        self._thread.join()
        with self._lock:
            self._live.stop()

    def check(self) -> None:
        """Raises what ended the thread that draws."""
        if self._failure is not None:
            raise self._failure

    def _show(self, index: int, event: Event, told: Told | None, now: float) -> None:
        """Seen in the next picture."""
        self.check()

    def _draw(self) -> None:
        try:
            self._redraw()
        except Exception as error:
            self._failure = error

    def _redraw(self) -> None:
        while True:
            with self._lock:
                self._live.refresh()
                measuring = self.overview.measuring
            if self._ended.wait(_REFRESH_MEASURING_S if measuring else _REFRESH_S):
                return


def _ending(event: JobEnded) -> str:
    return f"failed: {event.error}" if event.error else "done"


@contextmanager
def watch(networks: Sequence[str], console: Console, *, quiet: bool) -> Iterator[View]:
    """The view that suits `console` and so many networks, for the time of the block."""
    overview = Overview(short_names([one_line(network) for network in networks]))
    if quiet:
        yield QuietView(overview, console)
    elif console.is_terminal and not console.is_dumb_terminal:
        view = TerminalView(overview, console)
        view.start()
        try:
            yield view
        finally:
            view.stop()
        view.check()
    else:
        lines = LineView(overview, console)
        lines.start()
        try:
            yield lines
        finally:
            lines.stop()
