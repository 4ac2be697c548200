"""A session that tunes nothing: what the commands need of the package, without a compiler."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any

import pytest

from tunefleet.cli.app import run
from tunefleet.core.events import Event
from tunefleet.request import SearchRequest

from .streams import a_run

RESULT: dict[str, Any] = {
    "schema": "tunefleet-result/1",
    "run": "a" * 32,
    "network": {"name": "tiny_cnn"},
    "trials": 64,
    "wall": {"select": 3.0, "build": 4.0},
    "tasks": [{"name": "conv2d+add", "weight": 1, "network_share": 1.0, "latency_us": 12.0}],
    "speedup": {"median": 3.0, "low": 2.9, "high": 3.1},
    "artifact": "/somewhere/aaaa",
}


@dataclass
class Outcome:
    code: int
    out: str
    err: str


Invoke = Callable[..., Outcome]


@dataclass
class FakeSession:
    """Remembers what it was asked for; `fails` is raised in the middle of tuning."""

    fails: BaseException | None = None
    calls: list[tuple[str, dict[str, Any]]] = field(default_factory=list)
    context: dict[str, Any] = field(default_factory=dict)
    before: dict[str, Any] | None = None
    released: bool = False
    closed: bool = False
    peak_gflops: float = 100.0
    observer: Callable[[Event], None] = lambda event: None

    def release(self) -> None:
        self.released = True

    def close(self) -> None:
        self.closed = True

    def delivered_before(self, request: SearchRequest) -> dict[str, Any] | None:
        return self.before

    def from_network(self, spec: str, **importing: Any) -> FakeSession:
        self.calls.append(("from_network", {"spec": spec} | importing))
        return self

    def autotune(self, **request: Any) -> FakeSession:
        self.calls.append(("autotune", request))
        for event in a_run(tasks=3, rounds=6):
            self.observer(event)
        if self.fails is not None:
            raise self.fails
        return self

    def build(self) -> FakeSession:
        self.calls.append(("build", {}))
        return self

    def save(self) -> FakeSession:
        self.calls.append(("save", {}))
        return self

    def evaluate(self) -> FakeSession:
        self.calls.append(("evaluate", {}))
        return self

    def result(self) -> dict[str, Any]:
        assert not self.released
        return RESULT

    def asked(self, step: str) -> dict[str, Any]:
        return dict(self.calls)[step]


@pytest.fixture
def invoke(capsys: pytest.CaptureFixture[str]) -> Invoke:
    def call(*arguments: str) -> Outcome:
        code = run(arguments)
        captured = capsys.readouterr()
        return Outcome(code, captured.out, captured.err)

    return call


@pytest.fixture
def modules(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Puts a made-up module with the given attributes in the place of one of the package."""

    def put(name: str, **attributes: Any) -> None:
        module = ModuleType(name)
        vars(module).update(attributes)
        monkeypatch.setitem(sys.modules, name, module)

    return put


@pytest.fixture
def session(modules: Callable[..., None]) -> FakeSession:
    fake = FakeSession()

    def context(**given: Any) -> dict[str, Any]:
        fake.context = given
        return given

    def start(context: dict[str, Any], *, observer: Callable[[Event], None]) -> FakeSession:
        fake.observer = observer
        return fake

    modules("tunefleet.session", BenchmarkContext=context, Session=start)
    return fake
