"""A `tune` that tunes nothing: what the commands need of the package, without a compiler."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any

import pytest

from tunefleet.cli.app import run
from tunefleet.core.events import JobEnded, Observer, PhaseStarted
from tunefleet.core.result import ResultNetwork, RunResult, TaskResult
from tunefleet.core.statistics import Interval
from tunefleet.errors import TunefleetError
from tunefleet.runs.tuning import Tuned

from .streams import a_run

RESULT = RunResult(
    run="a" * 32,
    network=ResultNetwork(name="tiny_cnn"),
    trials=64,
    wall={"select": 3.0, "build": 4.0},
    tasks=(TaskResult(name="conv2d+add", network_share=1.0, latency_us=12.0),),
    speedup=Interval(3.0, 2.9, 3.1),
    artifact="/somewhere/aaaa",
)


@dataclass
class Outcome:
    code: int
    out: str
    err: str


Invoke = Callable[..., Outcome]


class FakeContext(dict[str, Any]):
    """What a context is made of."""

    @property
    def device_names(self) -> Any:
        return self["device"]

    def each_kind(self) -> list[FakeContext]:
        return [self]


@dataclass
class FakeTuning:
    """Remembers what it was asked for; `raises` is raised in the middle of tuning, `errors` are
    what ends networks there."""

    raises: BaseException | None = None
    errors: dict[str, TunefleetError] = field(default_factory=dict)
    result: RunResult = RESULT
    calls: list[dict[str, Any]] = field(default_factory=list)
    context: FakeContext = field(default_factory=FakeContext)

    def new_context(self, **given: Any) -> FakeContext:
        self.context = FakeContext(given)
        return self.context

    def tune(
        self,
        networks: Sequence[str],
        *,
        contexts: Sequence[FakeContext],
        observer: Callable[[int], Observer],
        tell: Callable[[Sequence[Tuned]], None],
        leave: Callable[[], bool],
        **request: Any,
    ) -> list[Tuned]:
        assert list(contexts) == [self.context]
        self.calls.append({"networks": list(networks)} | request)
        outcomes = [self._tuned(network, observer(i)) for i, network in enumerate(networks)]
        tell(outcomes)
        return outcomes

    def _tuned(self, network: str, observe: Observer) -> Tuned:
        error = self.errors.get(network)
        for event in a_run(tasks=3, rounds=6):
            if event == PhaseStarted("verify winners"):
                if self.raises is not None:
                    raise self.raises
                if error is not None:
                    observe(JobEnded(str(error)))
                    return Tuned(network, error=error)
            observe(event)
        return Tuned(network, self.result)

    @property
    def asked(self) -> dict[str, Any]:
        """What the one call asked for."""
        (call,) = self.calls
        return call


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
def tuning(modules: Callable[..., None]) -> FakeTuning:
    fake = FakeTuning()
    modules("tunefleet.runs.context", BenchmarkContext=fake.new_context)
    modules("tunefleet.runs.tuning", tune=fake.tune)
    return fake
