"""The log of a run: a file below home with what its observers are told, and how it failed.

A line is `2026-11-28 00:10:01,123 WARNING  profile 5d2cf01a#3 of job 3f2a81c0: run_crash: ...`. A
file that grows beyond a limit is rotated.
"""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Callable, Iterator
from logging.handlers import RotatingFileHandler
from pathlib import Path

from tunefleet.core.events import (
    Event,
    JobContinued,
    JobEnded,
    JobHeld,
    JobOpened,
    LaneUpdated,
    Note,
    Observer,
    PhaseStarted,
    ResourceBack,
    ResourceQuarantined,
    StageAbandoned,
    StageCommitted,
    StageStarted,
    StepCommitted,
)
from tunefleet.core.home import SHORTEST_ID, Home
from tunefleet.core.printing import printable
from tunefleet.core.stage import BuildResult, ProfileResult
from tunefleet.errors import InputError, InternalError

#: Bytes of a file, and files of a run that are kept beside the newest.
_MOST_BYTES, _OLDER = 4 << 20, 2
#: Levels by their names, from the least.
LEVELS = {name: getattr(logging, name.upper()) for name in ("debug", "info", "warning", "error")}
#: The last line of a run that came to its end.
ENDED = "the run has ended"

_LINE = re.compile(r"\S+ \S+ (DEBUG|INFO|WARNING|ERROR) ")


class RunLog:
    """An observer that writes a log and passes each event on. `run_id` names the file; it may
    change until a run's job is known. Any thread may call.

    A log that cannot be written ends no run.
    """

    def __init__(self, folder: Path, run_id: Callable[[], str], observer: Observer) -> None:
        self._folder = folder
        self._run_id = run_id
        self._observer = observer
        self._handlers: dict[str, logging.Handler] = {}

    def __call__(self, event: Event) -> None:
        for level, text in lines_of(event):
            self._write(level, text)
        self._observer(event)

    def failed(self, error: Exception) -> None:
        """What ended the run, a bug with its traceback."""
        text = str(error) or type(error).__name__
        if isinstance(error, InternalError) and error.details:
            text = f"{text}\n{error.details}"
        self._write(logging.ERROR, text)

    def close(self) -> None:
        """Release the files."""
        for handler in self._handlers.values():
            handler.close()
        self._handlers.clear()

    def _write(self, level: int, text: str) -> None:
        run_id = self._run_id()
        handler = self._handlers.get(run_id)
        if handler is None:
            try:
                self._folder.mkdir(parents=True, exist_ok=True)
            except OSError:
                return
            handler = _QuietHandler(
                self._folder / f"{run_id}.log", maxBytes=_MOST_BYTES, backupCount=_OLDER,
                encoding="utf-8", delay=True,
            )  # fmt: skip
            handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)-8s %(message)s"))
            self._handlers[run_id] = handler
        # What follows the first line is of the same record.
        safe = "\n  ".join(printable(line) for line in text.splitlines())
        handler.handle(logging.LogRecord("tunefleet", level, "", 0, safe, (), None))


class _QuietHandler(RotatingFileHandler):
    """Keeps an error to itself: a disk that is full is told by whoever needs it."""

    def handleError(self, record: logging.LogRecord) -> None:
        pass


def lines_of(event: Event) -> Iterator[tuple[int, str]]:
    """The levels and texts of what an event says."""
    match event:
        case PhaseStarted(name):
            yield logging.INFO, f"phase: {name}"
        case JobOpened():
            yield logging.INFO, f"job {event.job_id} {'goes on' if event.resumed else 'begins'}"
        case JobHeld(reason):
            yield logging.WARNING, f"held: {reason}"
        case JobContinued():
            yield logging.INFO, "goes on"
        case JobEnded(error):
            yield logging.INFO, f"{ENDED} with an error" if error else ENDED
        case StageStarted():
            yield logging.DEBUG, f"{event.key} begins on {event.resource_id or 'the host'}"
        case StageCommitted():
            run = event.run
            where = f" on {run.resource_id}" if run.resource_id else ""
            attempt = f", attempt {run.attempt}" if run.attempt > 1 else ""
            yield logging.INFO, f"{run.key}: {run.seconds:.2f} s{where}{attempt}"
            if run.note:
                yield logging.WARNING, f"{run.key}: {run.note}"
            if isinstance(run.result, BuildResult | ProfileResult):
                for candidate_id, failure in run.result.failed:
                    text = f"candidate {candidate_id[:8]}: {failure.kind}: {failure.text}"
                    yield logging.WARNING, f"{run.key}: {text}"
        case StepCommitted():
            span = event.span
            yield logging.INFO, f"{span.key}: {span.seconds:.2f} s on {span.resource_id}"
        case StageAbandoned(key, reason):
            yield logging.WARNING, f"{key} was given up: {reason}"
        case ResourceQuarantined(resource_id, reason, seconds):
            yield logging.WARNING, f"{resource_id} pauses for {seconds:.0f} s: {reason}"
        case ResourceBack(resource_id):
            yield logging.INFO, f"{resource_id} is tried again"
        case LaneUpdated():
            lane = event
            best = "" if lane.best_s is None else f", best {lane.best_s * 1e6:.4g} us"
            name = f"{lane.weighted.task.name} {lane.weighted.task.task_id[:8]}"
            yield logging.DEBUG, f"{name}: {lane.trials} trials, {lane.failed} failed{best}"
        case Note(text, warning):
            yield (logging.WARNING if warning else logging.INFO), text


def log_file(home: Path, run: str) -> Path:
    """The log of the one run whose id begins so. Raises InputError."""
    cure = "see `tunefleet jobs`"
    if len(run) < SHORTEST_ID:
        raise InputError(f"{run!r} is too short for a run", cure=f"give {SHORTEST_ID} characters")
    found = [path for path in sorted(Home(home).logs.glob("*.log")) if path.name.startswith(run)]
    if not found:
        raise InputError(f"there is no log of {run} in {home}", cure=cure)
    if len(found) > 1:
        names = ", ".join(path.stem for path in found)
        raise InputError(f"{run} names {len(found)} runs: {names}", cure="give more characters")
    return found[0]


def read_log(
    path: Path, level: str = "info", wait: Callable[[], None] | None = None
) -> Iterator[str]:
    """The lines of a log from a level on, the oldest first, its rotated parts included; what
    follows the first line of a record belongs to it. With `wait`, which is called while nothing is
    written, also those that come until the run has ended."""
    parts = [path.with_name(f"{path.name}.{number}") for number in range(_OLDER, 0, -1)]
    chosen = _Chosen(level)
    for part in parts:
        if part.is_file():
            with part.open(encoding="utf-8", errors="replace") as file:
                yield from filter(chosen, (line.rstrip("\n") for line in file))
    yield from filter(chosen, _lines(path, wait))


def _lines(path: Path, wait: Callable[[], None] | None) -> Iterator[str]:
    """The lines of a file that may grow, and of the one that takes its place when it is rotated."""
    file, line, last = path.open(encoding="utf-8", errors="replace"), "", ""
    try:
        while True:
            line += file.readline()
            if line.endswith("\n"):
                last, line = line.rstrip("\n"), ""
                yield last
            elif wait is None or (_LINE.match(last) is not None and ENDED in last):
                return
            elif path.is_file() and not os.path.samestat(path.stat(), os.fstat(file.fileno())):
                file.close()
                file = path.open(encoding="utf-8", errors="replace")
            else:
                wait()
    finally:
        file.close()


class _Chosen:
    """Whether a line is of a level or above; a line without one goes with the line before it."""

    def __init__(self, level: str) -> None:
        self._least = LEVELS[level]
        self._shown = False

    def __call__(self, line: str) -> bool:
        match = _LINE.match(line)
        if match is not None:
            self._shown = LEVELS[match.group(1).lower()] >= self._least
        return self._shown
