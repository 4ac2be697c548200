"""Progress of a collection: one updated line in a terminal, a periodic line in a log."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from tunefleet.cli.outcome import one_line
from tunefleet.cli.overview import Overview
from tunefleet.core.events import (
    Event,
    JobEnded,
    JobOpened,
    LaneUpdated,
    Observer,
    PhaseStarted,
)

if TYPE_CHECKING:
    from rich.console import Console

#: Seconds between two lines in a log.
_LINE_S = 15.0


@dataclass(slots=True)
class _State:
    """One network on one target; `expected` is None until its tasks are known."""

    name: str
    expected: int | None = None
    before: int = 0
    trials: int = 0
    ended: bool = False
    importing: bool = False


class Tally:
    """Collected and expected trials; times are the caller's `now` in seconds."""

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
            if task_id not in lanes:  # every lane is reported before its search begins
                state.before += event.trials
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
        """Trials of all networks; networks not yet imported count as the mean of the others."""
        known = [state.expected for state in self.networks if state.expected is not None]
        if not known:
            return None
        unknown = sum(state.expected is None and not state.ended for state in self.networks)
        return sum(known) + unknown * sum(known) / len(known)

    def left_s(self, now: float) -> float | None:
        """Estimated remaining seconds at the rate so far, or None without a rate."""
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
        """The networks in progress."""
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
    """Shows a tally: one updated line in a terminal, a periodic line in a log. Notes to the user
    get their own line; with `quiet` only warnings are shown."""

    def __init__(self, names: Sequence[str], console: Console, *, quiet: bool) -> None:
        self.tally = Tally(names, time.monotonic())
        self._overview = Overview(names)
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
            now = time.monotonic()
            self.tally.absorb(index, event)
            told = self._overview.absorb(index, event, now)
            if told is not None and (told.warning or not self._quiet):
                self._print(told.line("note: "))
            if self._quiet:
                return
            text = f"{self.tally.line(now)}: {self.tally.doing()}"
            if self._status is not None:
                self._status.update(one_line(text))
            elif now - self._last >= _LINE_S or isinstance(event, JobEnded):
                self._last = now
                self._print(text)

    def _print(self, text: str) -> None:
        self._console.print(one_line(text), soft_wrap=True)
