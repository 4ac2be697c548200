"""Watches a run: a live view in a terminal, plain lines in a log, nothing when quiet."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Protocol

from rich.console import Console
from rich.live import Live

from tunefleet.cli.outcome import one_line
from tunefleet.cli.progress import Progress
from tunefleet.cli.view import Panel, log_line
from tunefleet.core.events import Event, JobOpened, Note, PhaseStarted, StageFinished
from tunefleet.core.stage import StageKind

#: Seconds between two pictures; fewer while the device measures, which may share its cores.
_REFRESH_S = 0.25
_REFRESH_MEASURING_S = 1.0
_LINE_INTERVAL_S = 1.0

Clock = Callable[[], float]


class View(Protocol):
    """Takes the events of a run. `observe` may be called from any thread."""

    progress: Progress

    def observe(self, event: Event) -> None: ...


class QuietView:
    """Counts and shows nothing but warnings."""

    def __init__(self, progress: Progress, console: Console, clock: Clock = time.monotonic) -> None:
        self.progress = progress
        self._console = console
        self._clock = clock

    def observe(self, event: Event) -> None:
        self.progress.absorb(event, self._clock())
        if isinstance(event, Note) and event.warning:
            self._console.print(f"warning: {one_line(event.text)}", soft_wrap=True)


class LineView:
    """For a log: a line per phase, note and finished round, of rounds at most one a second."""

    def __init__(self, progress: Progress, console: Console, clock: Clock = time.monotonic) -> None:
        self.progress = progress
        self._console = console
        self._clock = clock
        self._last = float("-inf")
        self._unsaid = False

    def observe(self, event: Event) -> None:
        now = self._clock()
        self.progress.absorb(event, now)
        if isinstance(event, PhaseStarted):
            self.flush()
            self._print(event.name)
        elif isinstance(event, JobOpened):
            how = "resumed" if event.resumed else "started"
            self._print(f"job {event.job_id[:8]} {how}: {self.progress.network}")
        elif isinstance(event, Note):
            self._print(("warning: " if event.warning else "note: ") + event.text)
        elif isinstance(event, StageFinished) and event.run.key.kind is StageKind.UPDATE:
            self._unsaid = True
            if now - self._last >= _LINE_INTERVAL_S:
                self.flush()

    def flush(self) -> None:
        """Say what the interval held back."""
        if self._unsaid:
            self._last, self._unsaid = self._clock(), False
            self._print(log_line(self.progress, self._last))

    def _print(self, text: str) -> None:
        self._console.print(one_line(text), soft_wrap=True)


class TerminalView:
    """Redraws a panel in place; a thread of its own draws, so a long stage does not freeze it."""

    def __init__(self, progress: Progress, console: Console, clock: Clock = time.monotonic) -> None:
        self.progress = progress
        self._clock = clock
        self._lock = threading.Lock()
        self._ended = threading.Event()
        self._live = Live(
            console=console,
            auto_refresh=False,
            get_renderable=self.panel,
            vertical_overflow="crop",
            redirect_stdout=False,
        )
        self._thread = threading.Thread(target=self._draw, name="tunefleet-view", daemon=True)

    def observe(self, event: Event) -> None:
        with self._lock:
            self.progress.absorb(event, self._clock())

    def panel(self) -> Panel:
        return Panel(self.progress, self._clock())

    def start(self) -> None:
        self._live.start(refresh=False)
        self._thread.start()

    def stop(self) -> None:
        """Leave the last picture on the screen and give the cursor back."""
        self._ended.set()
        self._thread.join()
        with self._lock:
            self._live.stop()

    def _draw(self) -> None:
        while True:
            with self._lock:
                self._live.refresh()
                stage = self.progress.stage
            measuring = stage is not None and stage.kind is StageKind.PROFILE
            if self._ended.wait(_REFRESH_MEASURING_S if measuring else _REFRESH_S):
                return


@contextmanager
def watch(network: str, console: Console, *, quiet: bool) -> Iterator[View]:
    """The view that suits `console`, for the time of the block."""
    progress = Progress(one_line(network))
    if quiet:
        yield QuietView(progress, console)
    elif console.is_terminal and not console.is_dumb_terminal:
        view = TerminalView(progress, console)
        view.start()
        try:
            yield view
        finally:
            view.stop()
    else:
        lines = LineView(progress, console)
        try:
            yield lines
        finally:
            lines.flush()
