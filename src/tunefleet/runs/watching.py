"""What Python shows of a run while it goes on: in a notebook a few lines that change, else nothing.

A script that wants more gives an observer of its own (`core.events`).
"""

from __future__ import annotations

import sys
import threading
import time
from collections import deque
from typing import Any

from tunefleet.core.budget import Budget
from tunefleet.core.events import (
    Event,
    JobEnded,
    JobOpened,
    LaneUpdated,
    Note,
    Observer,
    PhaseStarted,
)

#: Warnings that are shown, the last ones.
_WARNINGS = 4
#: Seconds between two updates: a notebook keeps all of them until it draws.
_INTERVAL_S = 0.5


def default_observer(network: str) -> Observer:
    """Who watches a run of Python where nobody else does."""
    return NotebookView(network) if in_notebook() else ignore


def ignore(event: Event) -> None:
    """The observer of whoever does not watch."""


def in_notebook() -> bool:
    """Whether this process is the kernel of a notebook."""
    if "ipykernel" not in sys.modules:
        return False
    from IPython import get_ipython  # type: ignore[import-not-found, unused-ignore]

    return getattr(get_ipython(), "kernel", None) is not None


class NotebookView:
    """Shows a run as text in the cell that runs it, and writes over it; no widgets are needed.

    It may be called from any thread. Only the thread that made it draws: what another one sends
    belongs to no cell. The others' news come with its next update.
    """

    def __init__(self, network: str) -> None:
        self._text = RunText(network)
        self._lock = threading.Lock()
        self._drawing = threading.get_ident()
        self._drawn = float("-inf")
        self._handle: Any = None

    def __call__(self, event: Event) -> None:
        with self._lock:
            is_news = self._text.absorb(event)
            now = time.monotonic()
            if threading.get_ident() != self._drawing:
                return
            if is_news or now - self._drawn >= _INTERVAL_S:
                self._drawn = now
                self._draw()

    def _draw(self) -> None:
        from IPython.display import display  # type: ignore[import-not-found, unused-ignore]

        data = {"text/plain": str(self._text)}
        if self._handle is None:
            self._handle = display(data, raw=True, display_id=True)
        else:
            self._handle.update(data, raw=True)


class RunText:
    """A run in a line, and its last warnings below."""

    def __init__(self, network: str) -> None:
        self._network = network
        self._phase = "starting"
        self._budget: Budget | None = None
        self._lanes: dict[str, LaneUpdated] = {}
        self._warnings: deque[str] = deque(maxlen=_WARNINGS)

    def absorb(self, event: Event) -> bool:
        """Take an event into account; whether it should be seen at once."""
        match event:
            case PhaseStarted(name):
                self._phase = name
            case JobOpened():
                self._budget = event.budget
            case LaneUpdated():
                self._lanes[event.weighted.task.task_id] = event
                return False
            case Note(text, warning=True):
                self._warnings.append(text)
            case JobEnded(error):
                self._phase = f"failed: {error}" if error else "done"
            case _:
                return False
        return True

    def __str__(self) -> str:
        line = ", ".join([f"{self._network}: {self._phase}", *self._counts()])
        return "\n".join([line, *(f"warning: {text}" for text in self._warnings)])

    def _counts(self) -> list[str]:
        lanes = self._lanes.values()
        if not lanes:
            return []
        trials, failed = sum(lane.trials for lane in lanes), sum(lane.failed for lane in lanes)
        limit = self._budget.trials if self._budget else None
        measured = sum(lane.best_s is not None for lane in lanes)
        return [
            f"{trials} of {limit} trials" if limit else f"{trials} trials",
            f"{measured} of {len(lanes)} tasks measured",
            *([f"{failed} trials failed"] if failed else []),
        ]
