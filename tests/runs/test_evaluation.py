"""Figures that a disturbed measurement left out are filled in by a later one."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from tests.core.figures import BUSY, measured
from tests.store.values import make_spec
from tunefleet.artifacts.artifact import Artifact, update_result
from tunefleet.artifacts.signature import is_signed
from tunefleet.core.job import JobState
from tunefleet.core.result import Evaluation, MeasuredShape, RunResult, of_shape
from tunefleet.hardware.processor import device_identity
from tunefleet.report import render_html
from tunefleet.runs.evaluation import fill_in
from tunefleet.store import open_store

RUN = "a" * 32
HERE = device_identity()


def evaluation(shape: MeasuredShape) -> Evaluation:
    return Evaluation(**of_shape(shape))


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A home with a job whose end was disturbed."""
    store = open_store(tmp_path)
    store.jobs.open(make_spec(), job_id=RUN, now=0.0)
    store.jobs.finish(RUN, JobState.SUCCEEDED, disturbed().to_dict())
    store.close()
    return tmp_path


def disturbed() -> RunResult:
    return RunResult(run=RUN, job=RUN).measured_again([measured(9.0, BUSY)])


def an_artifact(home: Path) -> Artifact:
    spec = make_spec()
    path = home / "artifacts" / RUN
    path.mkdir(parents=True)
    artifact = Artifact(
        path, spec.network, spec.target, HERE, spec.toolchain, disturbed().to_dict()
    )
    return update_result(artifact, render_html(disturbed()))


def in_artifact(artifact: Artifact) -> float | None:
    speedup = json.loads(artifact.manifest.read_text())["result"]["speedup"]
    return None if speedup is None else float(speedup["median"])


def in_jobs(home: Path) -> float | None:
    store = open_store(home)
    speedup = store.jobs.summary(RUN)["speedup"]
    store.close()
    return None if speedup is None else float(speedup["median"])


def test_a_quiet_evaluation_is_in_the_report_and_in_jobs(home: Path) -> None:
    artifact = an_artifact(home)
    assert "not measurable now" in artifact.report.read_text()
    assert fill_in(evaluation(measured(3.0)), artifact, HERE, home).filled_in == ("report", "jobs")
    assert (in_artifact(artifact), in_jobs(home)) == (2.0, 2.0)
    assert "not measurable now" not in artifact.report.read_text()


def test_a_signed_artifact_is_not_touched(home: Path) -> None:
    artifact = an_artifact(home)
    artifact.manifest.with_name("artifact.json.sig").write_text("signed")
    assert is_signed(artifact.manifest)
    before = {path: path.read_bytes() for path in artifact.path.iterdir()}
    assert fill_in(evaluation(measured(3.0)), artifact, HERE, home).filled_in == ("jobs",)
    assert before == {path: path.read_bytes() for path in artifact.path.iterdir()}
    assert in_jobs(home) == 2.0


def test_a_disturbed_evaluation_fills_nothing_in(home: Path) -> None:
    artifact = an_artifact(home)
    assert fill_in(evaluation(measured(3.0, BUSY)), artifact, HERE, home).filled_in == ()
    assert (in_artifact(artifact), in_jobs(home)) == (None, None)


def test_a_figure_that_is_there_is_left(home: Path) -> None:
    artifact = an_artifact(home)
    fill_in(evaluation(measured(3.0)), artifact, HERE, home)
    written = json.loads(artifact.manifest.read_text())["result"]
    again = fill_in(evaluation(measured(5.0)), replace(artifact, result=written), HERE, home)
    assert again.filled_in == ()
