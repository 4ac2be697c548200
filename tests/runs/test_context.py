"""Where a run builds and measures."""

from __future__ import annotations

import pytest

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
