"""Runs functions of `programs.py` and `calls.py`, each in a fresh process that has TVM already.

A process with an error of CUDA cannot go on, and importing TVM takes seconds.
"""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType, TracebackType
from typing import Any, Self

NOTHING: Mapping[str, str] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Outcome:
    """`result` of a function, or the text of its `error`; `status` of its process as `wait` gives
    it, None where it was ended after the time limit."""

    result: Any
    error: str
    status: int | None


class FreshProcesses:
    """`environment` is that of the processes in addition to this one's."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        self._server = subprocess.Popen(
            [sys.executable, "-m", "tests.emulation.fresh"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, **environment},
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._server.communicate()

    def run(
        self,
        function: str,
        *arguments: Any,
        limit_s: float = 60.0,
        environment: Mapping[str, str] = NOTHING,
    ) -> Outcome:
        """`environment` is of this process alone."""
        assert self._server.stdin is not None
        assert self._server.stdout is not None
        asked = json.dumps([function, arguments, limit_s, dict(environment)])
        print(asked, file=self._server.stdin, flush=True)
        return Outcome(**json.loads(self._server.stdout.readline()))

    def result(
        self, function: str, *arguments: Any, environment: Mapping[str, str] = NOTHING
    ) -> Any:
        outcome = self.run(function, *arguments, environment=environment)
        assert (outcome.error, outcome.status) == ("", 0)
        return outcome.result


def _serve() -> None:
    # What the functions print goes where errors go.
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    from tests.emulation import calls, programs

    modules = {"calls": calls, "programs": programs}
    for line in sys.stdin:
        function, arguments, limit_s, environment = json.loads(line)
        receiver, sender = os.pipe()
        child = os.fork()
        if not child:
            os.close(receiver)
            os.environ.update(environment)
            module, _, name = function.partition(".")
            _answer(getattr(modules[module], name), arguments, sender)
        os.close(sender)
        said, status = _wait(child, receiver, limit_s)
        answer = json.loads(said or '{"result": null, "error": ""}')
        print(json.dumps({**answer, "status": status}), file=answers, flush=True)


def _answer(function: Callable[..., Any], arguments: list[Any], sender: int) -> None:
    answer = {"result": None, "error": ""}
    try:
        answer["result"] = function(*arguments)
    except BaseException as error:
        answer["error"] = f"{type(error).__name__}: {error}"
    os.write(sender, json.dumps(answer).encode())
    os._exit(0)


def _wait(child: int, receiver: int, limit_s: float) -> tuple[bytes, int | None]:
    said, deadline = b"", time.monotonic() + limit_s
    with os.fdopen(receiver, "rb", buffering=0) as pipe:
        while select.select([pipe], [], [], max(0.0, deadline - time.monotonic()))[0]:
            part = pipe.read(1 << 16)
            if not part:
                return said, os.waitpid(child, 0)[1]
            said += part
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return said, None


if __name__ == "__main__":
    _serve()
