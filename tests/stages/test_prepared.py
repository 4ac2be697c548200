"""Steps on whole networks: what they need, and what happens where they do not get it."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from tunefleet.core.home import Home
from tunefleet.errors import JobError
from tunefleet.workers.memory import Memory

pytestmark = pytest.mark.tvm

GIB = 2**30


class _Device:
    """A device worker whose calls end as it is told, one after the other."""

    def __init__(self, *outcomes: Any) -> None:
        self._outcomes = list(outcomes)
        self.pool = self

    def call(self, function: Any, *args: Any, timeout_s: float) -> Any:
        return self._outcomes.pop(0)


class _Place:
    """A workplace whose device is this machine's."""

    remote = None
    is_here = True

    def __init__(self, *outcomes: Any) -> None:
        self.device = _Device(*outcomes)
        self.machine = self
        self.pool = self.device
        self.granted = 0

    def grant_all(self) -> None:
        self.granted += 1


def _failure(end: str, text: str = "worker died: SIGSEGV") -> Any:
    from tunefleet.workers.pool import CallEnd, CallFailure

    return CallFailure(CallEnd(end), text)


@pytest.mark.parametrize("end", ["memory", "crash"])
def test_a_step_that_meets_its_limit_is_tried_again_without_it(end: str) -> None:
    from tunefleet.stages.prepared import on_device

    place: Any = _Place(_failure(end), 42)
    assert on_device(place, "it failed", len) == 42
    assert place.granted == 1


def test_a_step_that_fails_by_itself_is_not_tried_again() -> None:
    from tunefleet.stages.prepared import on_device

    place: Any = _Place(_failure("error", "no such kernel"))
    with pytest.raises(JobError, match="it failed: no such kernel"):
        on_device(place, "it failed", len)
    assert place.granted == 0


def test_what_fails_in_its_own_framework_is_the_networks() -> None:
    from tunefleet.stages.prepared import beside_device

    place: Any = _Place(_failure("error", "must have the same dtype, got Float and Half"))
    with pytest.raises(JobError, match="Float and Half; see whether it runs there"):
        beside_device(place, "the source framework failed", len)


def test_a_step_that_lacks_memory_twice_says_what_is_free() -> None:
    from tunefleet.stages.prepared import on_device

    place: Any = _Place(_failure("memory", "out of memory"), _failure("crash", "died: SIGKILL"))
    with pytest.raises(JobError, match=r"GiB of memory are free.*goes on from its records"):
        on_device(place, "it failed", len)


def test_a_network_that_cannot_fit_is_refused_before_it_is_read(
    tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tunefleet.compiler.toolchain.host import native_target
    from tunefleet.stages import importing

    path = tmp_path / "large.pt2"
    with path.open("wb") as file:
        file.truncate(4 * GIB)  # a hole: it takes no disk
    monkeypatch.setattr(importing, "machine_memory", lambda: Memory(8 * GIB, 7 * GIB))
    with pytest.raises(JobError, match=r"large needs 9\.5 GiB"):
        importing.import_network(str(path), native_target(1))


def test_a_network_that_cannot_run_is_refused_at_its_import(
    tiny: Any, tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tunefleet.stages import check
    from tunefleet.stages.prepared import PreparedNetwork

    imported: Any = SimpleNamespace(info=tiny.info, footprint=tiny.footprint)
    monkeypatch.setattr(check, "machine_memory", lambda: Memory(GIB, GIB))
    with pytest.raises(JobError, match="tiny_cnn needs"):
        check.compared(
            PreparedNetwork(imported, tmp_path, Home(tmp_path), "zoo:tiny_cnn"), [], _place(None)
        )


def test_a_network_of_which_a_part_stays_here_is_not_tuned_elsewhere(
    tiny: Any, tmp_path: Any
) -> None:
    from tunefleet.core.step import SegmentInfo
    from tunefleet.stages import check
    from tunefleet.stages.prepared import PreparedNetwork

    segment = SegmentInfo(("NonZero",), "no converter", "ONNX Runtime")
    imported: Any = SimpleNamespace(info=tiny.info, footprint=tiny.footprint, segments=(segment,))
    with pytest.raises(JobError, match="ONNX Runtime runs a part of it, and is not there"):
        check.compared(
            PreparedNetwork(imported, tmp_path, Home(tmp_path), "zoo:tiny_cnn"),
            [],
            _place(object()),
        )


def _place(remote: Any) -> Any:
    """A workplace that is asked for nothing but where it measures."""
    return SimpleNamespace(remote=remote, is_here=remote is None)


def test_a_footprint_has_the_weights_once_and_what_lives_at_once(tiny: Any) -> None:
    found = tiny.footprint
    inputs = 4 * sum(spec.size for spec in tiny.info.inputs)
    assert inputs < found.activations < 2**22
    assert 0 < found.weights < 2**20


def test_a_worker_gets_what_a_large_network_needs(machine: Any) -> None:
    from tunefleet.core.network import Footprint

    before = machine.device.config
    try:
        machine.grant(Footprint(2**20))
        assert machine.device.config == before
        machine.grant(Footprint(4 * GIB))
        assert machine.device.config.memory_gib >= 24 + before.memory_gib
    finally:
        machine.device.config = before
        machine.device.restart()


def _caveats(*outputs: Any, tolerance: float = 1e-3) -> tuple[str, ...]:
    from tunefleet.stages.agreement import Agreement
    from tunefleet.stages.check import caveats_of

    return caveats_of(Agreement((), (list(outputs),), 0.0, tolerance))


def test_a_verification_that_says_little_is_told() -> None:
    import numpy as np

    assert not _caveats(np.ones(3, "float32"), np.zeros(3, "int64"))
    (small,) = _caveats(np.ones(3, "float32"), np.full(3, 2e-4, "float32"))
    assert "1e-06 are not seen" in small
    (unsure,) = _caveats(np.ones(3, "float32"), tolerance=0.04)
    assert "4.0e-02 of the largest output is accepted" in unsure
