"""Where a run builds and measures."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import tunefleet
from tunefleet.errors import InputError
from tunefleet.hardware import processor
from tunefleet.hardware.processor import CpuInfo, MachineFacts
from tunefleet.runs.context import BenchmarkContext


def test_hosts_of_devices_elsewhere_build_on_cores_of_all_kinds(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    fast_and_slow = ((0, 0), (1, 1), (2, 2), (3, 3))
    cpu = CpuInfo(MachineFacts("Hybrid", frozenset(), 4, (), 8), fast_and_slow, frozenset({2, 3}))
    monkeypatch.setattr(processor, "cpu_info", lambda: cpu)
    context = BenchmarkContext(device="board")
    monkeypatch.setattr(context, "_devices", (object(),))
    assert context.layout.host_cores == context.layout.device_cores == (0, 1, 2, 3)


@pytest.mark.tvm
@pytest.mark.parametrize(
    "given",
    [{"threads": 0}, {"threads": -1}, {"threads": "2"}, {"target": None}, {"arch": 3}],
)
def test_a_target_of_another_kind_is_refused(given: dict[str, Any]) -> None:
    with pytest.raises(InputError, match=r"threads|a target is a text"):
        _ = BenchmarkContext(**given).target


@pytest.mark.tvm
def test_what_is_read_of_a_home_takes_its_path_as_a_text(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no runs in"):
        tunefleet.run_timeline("0123456789", home=str(tmp_path / "nowhere"))
    with pytest.raises(InputError, match="rounds is 0, not a positive number"):
        tunefleet.evaluate_artifact("0123456789", home=str(tmp_path), rounds=0)
    with pytest.raises(InputError, match="leave out its NUL"):
        tunefleet.from_network("a\0.onnx", context=BenchmarkContext(home=tmp_path))
