"""How much of the cores something else took while this process measured."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager

import psutil

from tunefleet.system.cgroups import throttled_s


class Watch:
    """`share` of the time of this process's cores that it did not get and that was not idle; known
    when the block has ended."""

    share = 0.0


@contextmanager
def watched() -> Iterator[Watch]:
    """Counts what others do on the cores that this process may use, time stolen by a hypervisor and
    time in which a container's quota was used up included."""
    cores = sorted(os.sched_getaffinity(0))
    watch = Watch()
    started, busy, own, waited = time.monotonic(), _busy_s(cores), _own_s(), throttled_s()
    yield watch
    wall = time.monotonic() - started
    others = (_busy_s(cores) - busy) - (_own_s() - own)
    taken = max(0.0, others) + throttled_s() - waited
    watch.share = min(1.0, taken / (wall * len(cores))) if wall else 0.0


def _busy_s(cores: list[int]) -> float:
    """CPU seconds of anything on the cores."""
    times = psutil.cpu_times(percpu=True)
    every = [times[core] for core in cores if core < len(times)]
    # A guest's time is part of its user time.
    return float(sum(t.user + t.nice + t.system + t.irq + t.softirq + t.steal for t in every))


def _own_s() -> float:
    used = os.times()
    return used.user + used.system
