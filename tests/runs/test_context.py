"""Where a run builds and measures."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import tunefleet
from tests.store.values import make_spec
from tunefleet.core.job import JobKind, JobSpec, JobState
from tunefleet.core.result import RunResult
from tunefleet.errors import InputError
from tunefleet.hardware import processor
from tunefleet.hardware.processor import CpuInfo, MachineFacts
from tunefleet.runs.context import BenchmarkContext
from tunefleet.store import open_store


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


def _loaded(home: Path, spec: JobSpec, summary: object) -> BenchmarkContext:
    store = open_store(home)
    store.jobs.open(spec, job_id="a" * 32, now=5.0)
    store.jobs.finish("a" * 32, JobState.SUCCEEDED, summary)
    store.close()
    return BenchmarkContext.load("a" * 32, home)


def test_a_job_that_delivers_no_module_is_found_with_what_is_known(tmp_path: Path) -> None:
    spec = make_spec()
    context = _loaded(tmp_path, replace(spec, kind=JobKind.PLACE), {"best": "local"})
    assert (context.run_id, context.created_at) == ("a" * 32, 5.0)
    assert (context.target, context.device) == (spec.target, spec.device)
    assert context.result is not None
    assert (context.result.network.name, context.result.delivered) == ("net", None)


def test_a_build_is_found_by_its_job_and_named_by_its_module(tmp_path: Path) -> None:
    result = RunResult(run="b" * 32, job="a" * 32, host_cores="0-1", device_cores="3")
    spec = replace(make_spec(), kind=JobKind.BUILD)
    context = _loaded(tmp_path, spec, result.to_dict())
    assert (context.run_id, context.result) == ("b" * 32, result)
    assert (context.host_cores, context.device_cores) == ((0, 1), (3,))


def test_the_next_run_of_a_context_found_again_is_another_one(tmp_path: Path) -> None:
    context = _loaded(tmp_path, make_spec(), RunResult(run="a" * 32).to_dict())
    context.renew()
    assert context.result is None
    assert context.run_id != "a" * 32
