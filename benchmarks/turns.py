"""Sides of a comparison, each in a process of its own, measured in turn.

A side prepares, says "ready" with what it has to tell, and measures one round for every line that
it reads. None runs beside another.
"""

from __future__ import annotations

import json
import math
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from typing import IO, Any

from tunefleet.workers import disturbance

ROUND_S = 1.0
#: Rounds of a side that takes longer than a round for one inference: a few tell enough.
_SLOW_ROUNDS = 3
#: Threads that spin for the next inference of one side have gone to sleep after this, seconds.
_PAUSE_S = 0.1

_READY, _ROUND = "ready ", "round "


def serve(run: Callable[[], Any], told: Any = None) -> None:
    """What a side's process does with one inference; `told` is JSON for the process that asked."""
    for _ in range(3):
        run()
    print(_READY + json.dumps(told), flush=True)
    for _ in sys.stdin:
        with disturbance.watched() as watch:
            seconds = _round(run)
        print(_ROUND + json.dumps([seconds, watch.share]), flush=True)


def _round(run: Callable[[], Any]) -> float:
    """The median of the fastest quarter of a second's inferences, in seconds: a shared machine only
    ever adds time."""
    started = time.perf_counter()
    run()  # what another side left in the caches is not this one's
    first = time.perf_counter() - started
    times: list[float] = []
    spent = 0.0
    while spent < ROUND_S or (len(times) < 5 and spent < 5 * ROUND_S):
        started = time.perf_counter()
        run()
        times.append(time.perf_counter() - started)
        spent += times[-1]
        if first > ROUND_S:
            break
    fastest = sorted(times)[: max(1, math.ceil(len(times) / 4))]
    return fastest[len(fastest) // 2]


@dataclass
class Turns:
    """Seconds of each side by round, what each told, and why others failed. `disturbed` are the
    shares of the cores that other processes took in each round of any side."""

    rounds: dict[str, list[float]] = field(default_factory=dict)
    told: dict[str, Any] = field(default_factory=dict)
    failed: dict[str, str] = field(default_factory=dict)
    disturbed: list[float] = field(default_factory=list)


def in_turn(commands: Mapping[str, Sequence[str]], rounds: int) -> Turns:
    """Measure sides by name, A B C A B C ..., from the commands that start them."""
    found = Turns()
    with ExitStack() as stack:
        sides: dict[str, _Side] = {}
        for name, command in commands.items():
            side = _Side(command, stack)
            try:
                found.told[name] = side.answer(_READY)
            except EOFError:
                found.failed[name] = side.error()
            else:
                sides[name], found.rounds[name] = side, []
        for index in range(rounds):
            for name, side in list(sides.items()):
                times = found.rounds[name]
                if index >= _SLOW_ROUNDS and times[-1] > ROUND_S:
                    continue
                time.sleep(_PAUSE_S)
                try:
                    seconds, share = side.answer(_ROUND, "go")
                except EOFError:
                    found.failed[name] = side.error()
                    del sides[name], found.rounds[name]
                else:
                    times.append(seconds)
                    found.disturbed.append(share)
    return found


class _Side:
    def __init__(self, command: Sequence[str], stack: ExitStack) -> None:
        # A pipe that nobody reads would fill and stop it.
        errors = tempfile.TemporaryFile("w+", encoding="utf-8")  # noqa: SIM115 (the stack closes it)
        self._errors: IO[str] = stack.enter_context(errors)
        self._process = stack.enter_context(
            subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._errors,
                text=True,
            )
        )  # fmt: skip

    def answer(self, word: str, ask: str = "") -> Any:
        """The JSON behind the next line's `word`. Other libraries print, too.

        Raises EOFError where the process ends before.
        """
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        if ask:
            with suppress(BrokenPipeError):
                self._process.stdin.write(f"{ask}\n")
                self._process.stdin.flush()
        for line in self._process.stdout:
            if line.startswith(word):
                return json.loads(line[len(word) :])
        raise EOFError

    def error(self) -> str:
        """The end of what it said before it died."""
        self._process.wait()
        self._errors.seek(0)
        return " ".join(self._errors.read().split())[-500:]
