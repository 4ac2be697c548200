"""Connections to servers of TVM's RPC, whose calls are waited for within a time."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable
from typing import Any, TypeVar

from tunefleet.compiler.code.build import one_line
from tunefleet.compiler.toolchain import load_tvm
from tunefleet.core.device import DeviceSpec, RpcAddress
from tunefleet.devices import tracker
from tunefleet.devices.health import cause_of, health_of, unreachable
from tunefleet.errors import ForeignError, RetryElsewhereError

tvm = load_tvm()

T = TypeVar("T")

_FIRST_WAIT_S, _LONGEST_WAIT_S = 0.1, 2.0
#: For which a server that a tracker lent before is waited for. It is free when its session ended.
_SAME_S = 10.0


class NoAnswerError(ForeignError):
    """A call did not come back in its time: it may still hang in its thread."""


class RpcLine:
    """A thread that makes the calls of one session, so that who asks can stop waiting for one."""

    def __init__(self) -> None:
        self._calls: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        threading.Thread(target=self._work, daemon=True).start()

    def call(self, function: Callable[[], T], limit_s: float) -> T:
        """Raises NoAnswerError after `limit_s`; what the call gives later is dropped."""
        values: list[T] = []
        errors: list[BaseException] = []
        ended = threading.Event()

        def make() -> None:
            try:
                value = function()
                if not ended.is_set():
                    values.append(value)
            except BaseException as error:
                errors.append(error)
            ended.set()

        self._calls.put(make)
        if not ended.wait(limit_s):
            ended.set()
            raise NoAnswerError
        if errors:
            raise errors.pop()  # or it would hold itself, and with it the session
        return values[0]

    def _work(self) -> None:
        while True:
            self._calls.get()()


def connected(
    address: RpcAddress,
    patience_s: float,
    away_s: float,
    line: RpcLine,
    wanted: RpcAddress | None,
) -> tuple[Any, RpcAddress]:
    """A session of TVM's and its server; tried again, at growing intervals, until the patience
    ends, or that with a server that takes no connection."""
    started = time.monotonic()
    ends = started + patience_s
    wait_s = _FIRST_WAIT_S
    while True:
        left_s = max(ends - time.monotonic(), _FIRST_WAIT_S)
        try:
            server = _lent(address, left_s, wanted) if address.tracker else address
            place = (server.host, server.port, server.key)
            return line.call(lambda: tvm.rpc.connect(*place), left_s), server  # noqa: B023
        except RetryElsewhereError:
            raise
        except NoAnswerError:
            raise RetryElsewhereError(
                f"{address.url} takes connections and answers none: another session has it, or it "
                "hangs",
                cure="wait for the other, or start the server again",
            ) from None
        except Exception as error:
            if time.monotonic() + wait_s >= started + min(patience_s, away_s):
                raise unreachable(address, _cause(address, error)) from error
        time.sleep(wait_s)
        wait_s = min(2 * wait_s, _LONGEST_WAIT_S)


def _lent(address: RpcAddress, wait_s: float, wanted: RpcAddress | None) -> RpcAddress:
    """A server of a tracker, if possible the wanted one: others that it lends meanwhile are given
    back. Raises RetryElsewhereError where none is free, and OSError or what no tracker says."""
    others: list[RpcAddress] = []
    try:
        ends = time.monotonic() + min(wait_s, _SAME_S)
        while wanted is not None:
            try:
                server = tracker.lent(address, max(ends - time.monotonic(), _FIRST_WAIT_S))
            except tracker.NoneFreeError:
                break
            if (server.host, server.port) == (wanted.host, wanted.port):
                return server
            others.append(server)
        return others.pop() if others else tracker.lent(address, wait_s)
    except tracker.NoneFreeError:
        raise RetryElsewhereError(
            f"{address.url} lends no server: none is free",
            cure="wait for who has them, or start another server",
        ) from None
    finally:
        for other in others:
            # It begins a session and ends it, after which the server offers itself anew.
            health_of(DeviceSpec(rpc=other))


def _cause(address: RpcAddress, error: Exception) -> str:
    """Why nobody answers, where TVM only says that nobody does."""
    if isinstance(error, OSError):
        return cause_of(error)
    try:
        tracker.knock(address).close()
    except OSError as refused:
        return cause_of(refused)
    return one_line(error)
