from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tunefleet.compiler.toolchain.host import native_target
from tunefleet.core.statistics import Interval
from tunefleet.devices import doctor, neighbours
from tunefleet.devices.neighbours import JoinedCores, joined_cores
from tunefleet.hardware.processor import cpu_info

pytestmark = pytest.mark.tvm


def test_vectors_that_llvm_would_not_prefer_are_no_hidden_instructions(monkeypatch):
    target = native_target()
    kept = tuple(attribute for attribute in target.mattr if not attribute.startswith("-"))
    wide = replace(target, mattr=(*kept, "-prefer-256-bit"))
    monkeypatch.setattr(doctor, "native_target", lambda: wide)
    assert doctor._isa()["severity"] == "ok"


@pytest.mark.skipif(len(cpu_info().granted) < 2, reason="one core")
@pytest.mark.parametrize(
    ("measured", "told"),
    [
        ([], "no core slows another down"),
        ([JoinedCores((0, 1), Interval(1.62, 1.5, 1.7))], "0 and 1 1.6 times"),
    ],
)
def test_cores_that_slow_each_other_are_told_and_kept(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, measured: list[JoinedCores], told: str
) -> None:
    monkeypatch.setattr(neighbours, "core_pairs", lambda siblings: [(0, 1)])
    monkeypatch.setattr(neighbours, "measure_joined", lambda pairs, directory: measured)
    assert told in doctor._neighbours(tmp_path)["value"]
    assert joined_cores(tmp_path) == tuple(each.cores for each in measured)
