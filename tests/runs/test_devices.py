"""Networks tuned on devices behind TVM's own servers, which these tests start."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.devices import servers
from tests.devices.servers import absent
from tests.fleet.jobs import SETTINGS
from tunefleet import BenchmarkContext, Session, tune
from tunefleet.cli.app import run
from tunefleet.core.device import DeviceDescription, DeviceSpec, RegisteredDevice, RpcAddress
from tunefleet.core.events import StageCommitted, StageStarted
from tunefleet.core.home import Home
from tunefleet.core.identity import DeviceIdentity
from tunefleet.core.stage import StageKind
from tunefleet.devices.health import health_of
from tunefleet.devices.registry import DeviceRegistry
from tunefleet.errors import InputError, RetryElsewhereError
from tunefleet.hardware.processor import device_identity
from tunefleet.store import open_store

pytestmark = pytest.mark.tvm

TRIALS = 12


@contextlib.contextmanager
def registered(home: Path, count: int) -> Iterator[list[servers.Server]]:
    """Servers that a home knows as `board-0` and so on."""
    from tunefleet.devices import open_device

    with contextlib.ExitStack() as stack:
        begun = [stack.enter_context(servers.served()) for _ in range(count)]
        for index, server in enumerate(begun):
            spec = DeviceSpec(rpc=RpcAddress("127.0.0.1", server.port))
            device = open_device(spec, 1)
            description = device.describe()
            device.close()
            found = RegisteredDevice(f"board-{index}", spec, description, 0.0)
            DeviceRegistry(Home(home).devices).add(found)
        yield begun


def test_two_devices_take_the_batches_of_one_job(small: Path, tmp_path: Path) -> None:
    events: list[Any] = []
    with registered(tmp_path, 2):
        context = BenchmarkContext(home=tmp_path, device_kind="cpu", threads=1)
        (outcome,) = tune(
            [small],
            context=context,
            observer=lambda index: events.append,
            trials=TRIALS,
            settings=SETTINGS,
        )
    result = outcome.result
    assert result is not None, outcome.error
    assert result.trials == TRIALS
    assert result.verified or result.why_plain
    assert [b.kind for b in result.baselines] == ["untuned"]
    assert result.tuned_ms is not None
    started = [e for e in events if isinstance(e, StageStarted)]
    measured = {e.resource_id for e in started if e.key.kind is StageKind.PROFILE}
    assert measured == {"board-0", "board-1"}
    store = open_store(tmp_path)
    (job,) = store.jobs.page()
    store.close()
    assert job.spec.device == context.device
    # This very machine stands behind both: its records are those of this machine.
    assert job.spec.device.exact == BenchmarkContext().device.exact
    with Session.load(context.run_id, tmp_path) as session:
        assert session.run(*_inputs(session))[0].shape


@pytest.mark.long
def test_the_servers_of_a_tracker_take_the_batches_of_one_job(small: Path, tmp_path: Path) -> None:
    events: list[Any] = []
    with contextlib.ExitStack() as stack:
        tracker = stack.enter_context(servers.served(what="rpc_tracker"))
        place = f"127.0.0.1:{tracker.port}"
        for _ in range(2):
            stack.enter_context(servers.served("--tracker", place, "--key", "lab"))
        spec = DeviceSpec(rpc=RpcAddress("127.0.0.1", tracker.port, "lab", tracker=True))
        servers.until(lambda: health_of(spec).free == 2, 20)
        assert run(["device", "add", spec.url, "--home", str(tmp_path)]) == 0
        servers.until(lambda: health_of(spec).free == 2, 20)
        with Session(
            BenchmarkContext(home=tmp_path, device="lab", threads=1), observer=events.append
        ) as session:
            session.from_network(small).autotune(trials=TRIALS, settings=SETTINGS)
            assert session.result().trials == TRIALS
            assert session.result().failures == {}
    started = [e for e in events if isinstance(e, StageStarted)]
    measured = {e.resource_id for e in started if e.key.kind is StageKind.PROFILE}
    assert measured == {"lab/1", "lab/2"}


def _inputs(session: Session) -> list[Any]:
    from tunefleet.artifacts.opening import open_artifact
    from tunefleet.compiler.frontends.examples import seeded_inputs

    artifact = open_artifact(session.result().run, Path(str(session.result().artifact)).parents[1])
    return list(seeded_inputs(artifact.network.inputs))


def test_a_server_that_is_killed_in_the_middle_costs_no_trial(small: Path, tmp_path: Path) -> None:
    events: list[Any] = []
    with registered(tmp_path, 1) as (server,):
        killed: list[threading.Thread] = []

        def observe(event: Any) -> None:
            events.append(event)
            profiled = isinstance(event, StageStarted) and event.key.kind is StageKind.PROFILE
            if profiled and not killed:
                server.kill()
                again = threading.Timer(1, server.start)
                killed.append(again)
                again.start()

        (outcome,) = tune(
            [small],
            context=BenchmarkContext(home=tmp_path, device="board-0", threads=1),
            observer=lambda index: observe,
            trials=TRIALS,
            settings=SETTINGS,
        )
        killed[0].join()
    assert outcome.result is not None, outcome.error
    assert outcome.result.trials == TRIALS
    assert outcome.result.failures == {}
    profiles = [e for e in events if isinstance(e, StageCommitted)]
    assert len({e.run.key for e in profiles}) == len(profiles)


@pytest.mark.long
def test_a_device_that_stays_away_ends_the_job_which_can_go_on(
    small: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tunefleet.fleet import shell

    monkeypatch.setattr(shell, "AWAY_S", 1.0)
    with registered(tmp_path, 1) as (server,):

        def observe(event: Any) -> None:
            if isinstance(event, StageStarted) and event.key.kind is StageKind.PROFILE:
                server.kill()

        def tuned(trials: int, watch: Any) -> Any:
            (outcome,) = tune(
                [small],
                context=BenchmarkContext(home=tmp_path, device="board-0", threads=1),
                observer=lambda index: watch,
                trials=trials,
                settings=SETTINGS,
            )
            return outcome

        outcome = tuned(TRIALS, observe)
        assert isinstance(outcome.error, RetryElsewhereError)
        server.start()
        again = tuned(TRIALS, lambda event: None)
        assert again.result is not None, again.error
        assert again.result.resumed
        assert again.result.trials == TRIALS


def test_no_job_begins_where_no_device_can_be_reached(tmp_path: Path) -> None:
    url = absent(tmp_path)
    context = BenchmarkContext(home=tmp_path, device="gone", threads=1)
    with pytest.raises(RetryElsewhereError, match=f"{url} is not there: connection refused"):
        tune(["zoo:tiny_cnn"], context=context, trials=1)
    with contextlib.closing(open_store(tmp_path)) as store:
        assert store.jobs.page() == []


def test_a_device_that_nobody_named_is_told(tmp_path: Path) -> None:
    context = BenchmarkContext(home=tmp_path, device="board")
    with pytest.raises(InputError, match="no device is called 'board'; there are: none"):
        tune(["zoo:tiny_cnn"], context=context, trials=1)


IDENTITY = DeviceIdentity("cpu", "Cortex-A72", ("asimd",), 4, (("L2", 1 << 20),), 8)


def board(home: Path, name: str, identity: DeviceIdentity) -> None:
    spec = DeviceSpec(rpc=RpcAddress("127.0.0.1", servers.free_port()))
    found = RegisteredDevice(name, spec, DeviceDescription(identity, "aarch64", (0,)), 0.0)
    DeviceRegistry(Home(home).devices).add(found)


def test_devices_that_are_alike_are_of_one_context(tmp_path: Path) -> None:
    board(tmp_path, "pi-1", IDENTITY)
    board(tmp_path, "pi-2", IDENTITY)
    board(tmp_path, "twin", device_identity())
    names = ("pi-1", "twin", "local", "pi-2")
    kinds = BenchmarkContext(home=tmp_path, device=names).each_kind()
    assert [kind.place for kind in kinds] == ["local, twin", "pi-1, pi-2"]
    assert [kind.is_here for kind in kinds] == [True, False]
    assert [kind.device for kind in kinds] == [device_identity(), IDENTITY]
    assert [k.place for k in BenchmarkContext(home=tmp_path).each_kind()] == ["local"]


@pytest.mark.parametrize("device", [("local", "pi-1"), ("pi-1", "twin")])
def test_a_session_is_of_one_kind_of_device(tmp_path: Path, device: tuple[str, ...]) -> None:
    board(tmp_path, "pi-1", IDENTITY)
    board(tmp_path, "twin", device_identity())
    local = BenchmarkContext(home=tmp_path, device="local")
    assert local.devices == ()
    assert BenchmarkContext(home=tmp_path).device == local.device
    with pytest.raises(InputError, match="are not alike"):
        _ = BenchmarkContext(home=tmp_path, device=device).devices
