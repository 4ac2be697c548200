"""Cores that slow each other down although the kernel does not say so, as in virtual machines that
hide which cores are hyperthreads of one: measured by `doctor`, used by every layout."""

from __future__ import annotations

import json
import os
import socket
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from dataclasses import asdict, dataclass
from itertools import combinations
from pathlib import Path
from threading import Event
from typing import Any

from tunefleet.core.home import Home
from tunefleet.core.statistics import Interval, interval, median
from tunefleet.core.trial import Built, ranking_latency
from tunefleet.errors import SetupError
from tunefleet.hardware.processor import device_identity

SCHEMA = "tunefleet.neighbours/1"

#: Cores are joined if the kernel takes this many times as long in the median, and more than noise
#: at the low end of the interval. Hyperthreads share their FMA units, so it is 1.3 and more.
_SLOWER, _NOISE = 1.3, 1.15
#: Repeats of a pair; after the first few, most pairs are known to be independent.
_REPEATS, _FIRST = 9, 3
#: Up to this many cores, all pairs are measured.
_MOST_FOR_ALL = 8
#: Runs of the kernel in one repeat, about 30 ms.
_RUNS = 30

#: Seconds of the reference kernel on the first core: alone, and with the same work on the second.
Measure = Callable[[int, int], tuple[float, float]]


@dataclass(frozen=True, slots=True)
class JoinedCores:
    """Two cores that slow each other down, and how many times as long the reference kernel takes
    on one while it runs on the other too."""

    cores: tuple[int, int]
    slowdown: Interval


def core_pairs(siblings: Mapping[int, int]) -> list[tuple[int, int]]:
    """The pairs to measure; `siblings` maps each core to its physical core. On a machine with many
    cores, only pairs that hypervisors number hyperthreads as: n and n + 1, n and n + half."""
    if len(siblings) <= _MOST_FOR_ALL:
        pairs = set(combinations(sorted(siblings), 2))
    else:
        half = (max(siblings) + 1) // 2
        near = {(core, other) for core in siblings for other in (core ^ 1, core + half)}
        pairs = {(core, other) for core, other in near if core < other and other in siblings}
    return sorted((a, b) for a, b in pairs if siblings[a] != siblings[b])


def find_joined(pairs: Iterable[tuple[int, int]], measure: Measure) -> list[JoinedCores]:
    """The pairs of cores that slow each other down."""
    joined = []
    for pair in pairs:
        slowdowns: list[float] = []
        while len(slowdowns) < _REPEATS:
            alone_s, beside_s = measure(*pair)
            slowdowns.append(beside_s / alone_s)
            if len(slowdowns) == _FIRST and median(slowdowns) < _NOISE:
                break
        slowdown = interval(slowdowns)
        if slowdown.median >= _SLOWER and slowdown.low > _NOISE:
            joined.append(JoinedCores(pair, slowdown))
    return joined


def measure_joined(pairs: Iterable[tuple[int, int]], directory: str) -> list[JoinedCores]:
    """Measure pairs of this machine's cores; the kernel is compiled into `directory`."""
    from tunefleet.compiler.toolchain.host import native_target
    from tunefleet.devices.reference import reference_kernel

    built = reference_kernel(native_target(1), directory)

    def measure(first: int, second: int) -> tuple[float, float]:
        with (
            closing(_CoreThread(first, built)) as own,
            closing(_CoreThread(second, built)) as other,
        ):
            alone_s = own.latency()
            begun, ended = Event(), Event()
            busy = other.keep_busy(begun, ended)
            try:
                begun.wait()
                return alone_s, own.latency()
            finally:
                ended.set()
                busy.result()

    return find_joined(pairs, measure)


class _CoreThread:
    """The reference kernel in a thread that stays on one core."""

    def __init__(self, core: int, built: Built) -> None:
        self._thread = ThreadPoolExecutor(1, initializer=_settle, initargs=(core,))
        self._run: Any = self._thread.submit(_prepared, built).result()

    def latency(self) -> float:
        return self._thread.submit(lambda: ranking_latency(tuple(self._ran(_RUNS)))).result()

    def keep_busy(self, begun: Event, ended: Event) -> Future[None]:
        """Run it until `ended` is set; `begun` is set once it runs, or has failed."""

        def work() -> None:
            begun.set()
            while not ended.is_set():
                self._ran(1)

        return self._thread.submit(work)

    def _ran(self, repeat: int) -> list[float]:
        latencies: list[float] = self._run(number=1, repeat=repeat, preprocess="")
        return latencies

    def close(self) -> None:
        self._thread.shutdown()


def _settle(core: int) -> None:
    from tunefleet.artifacts.runtime import set_threads

    os.sched_setaffinity(0, {core})
    set_threads(1)


def _prepared(built: Built) -> Any:
    from tunefleet.devices.runners import runner

    run = runner(built)
    run(number=1, repeat=_RUNS, preprocess="")
    return run


def this_machine(home: Path) -> Path:
    """The file of this machine below a home."""
    return Home(home).neighbours(socket.gethostname())


def save_joined(joined: Sequence[JoinedCores], home: Path) -> None:
    """Keep what was measured, in place of an earlier measurement. Raises SetupError."""
    value = {
        "schema": SCHEMA,
        "processor": device_identity().to_json(),
        "measured_at": time.time(),
        "joined": [asdict(each) for each in joined],
    }
    path = this_machine(home)
    draft = path.with_suffix(f".{os.getpid()}.draft")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        draft.write_text(json.dumps(value, indent=1) + "\n", encoding="utf-8")
        os.replace(draft, path)
    except OSError as error:
        raise SetupError(
            f"cannot write {path}: {error.strerror}", cure="use --home DIR or TUNEFLEET_HOME"
        ) from error


def joined_cores(home: Path) -> tuple[tuple[int, int], ...]:
    """The pairs of cores that were measured to slow each other down; none if this machine was not
    measured, or the file is of another processor or version, or damaged: `doctor` writes it anew.
    """
    try:
        value = json.loads(this_machine(home).read_text(encoding="utf-8"))
        if value["schema"] != SCHEMA or value["processor"] != device_identity().to_json():
            return ()
        return tuple(_pairs(value["joined"]))
    except (OSError, ValueError, LookupError, TypeError):
        return ()


def _pairs(joined: Iterable[Mapping[str, Any]]) -> Iterator[tuple[int, int]]:
    for each in joined:
        first, second = each["cores"]
        yield int(first), int(second)
