"""Signals end a command, but no transaction in its middle."""

from __future__ import annotations

import os
import signal
import threading
import time
from pathlib import Path

import pytest

from tunefleet.store.sql import open_store
from tunefleet.system.interrupts import Uninterrupted, interrupting


def interrupted(number: signal.Signals = signal.SIGTERM) -> None:
    os.kill(os.getpid(), number)
    time.sleep(5)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_raises_at_once(number: signal.Signals) -> None:
    with interrupting() as came, pytest.raises(KeyboardInterrupt):
        interrupted(number)
    assert came == [number]


def test_it_waits_for_the_end_of_the_outermost_block() -> None:
    reached = []

    def nested() -> None:
        with Uninterrupted():
            with Uninterrupted():
                os.kill(os.getpid(), signal.SIGTERM)
                reached.append("inner")
            reached.append("outer")

    with interrupting(), pytest.raises(KeyboardInterrupt):
        nested()
    assert reached == ["inner", "outer"]
    with Uninterrupted():  # nothing is left of it
        pass


def test_other_threads_do_not_hold_it_back() -> None:
    inside, leave = threading.Event(), threading.Event()

    def hold() -> None:
        with Uninterrupted():
            inside.set()
            leave.wait(10)

    thread = threading.Thread(target=hold)
    thread.start()
    inside.wait(10)
    with interrupting(), pytest.raises(KeyboardInterrupt):
        interrupted()
    leave.set()
    thread.join(10)


def test_a_writer_that_is_interrupted_while_it_waits_leaves_the_store_to_others(
    tmp_path: Path,
) -> None:
    """The signal comes to another thread, so that the wait for the lock goes on to its end."""
    store = open_store(tmp_path)
    database = store._database
    written, ready = threading.Event(), threading.Event()

    def write() -> None:
        with database.writing():
            ready.set()
            me = threading.get_ident()
            time.sleep(0.2)
            signal.pthread_kill(me, signal.SIGTERM)
            time.sleep(0.2)
        written.set()

    other = threading.Thread(target=write)
    other.start()
    ready.wait(10)
    try:
        with interrupting(), database.writing():
            pass
    except KeyboardInterrupt as error:
        kept = error  # as a command keeps it while it cleans up
        clock = time.monotonic()
        with database.writing():
            pass
        assert time.monotonic() - clock < 5
        assert kept.__traceback__ is not None
    else:
        pytest.fail("the signal did not arrive")
    other.join(10)
    assert written.is_set()
    store.close()
