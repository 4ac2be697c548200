from __future__ import annotations

import hashlib
import html
import json
import multiprocessing
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.fleet.jobs import SETTINGS
from tests.runs.served import killed, served
from tunefleet import BenchmarkContext, Session, evaluate_artifact, list_tasks, run_artifact
from tunefleet.cli.app import run
from tunefleet.core.coordination import ControlRequest
from tunefleet.core.events import Event, JobContinued, JobHeld, JobOpened, Note, PhaseStarted
from tunefleet.core.home import Home
from tunefleet.core.job import JobState
from tunefleet.core.step import DELIVERY, PREPARATION, WINNERS
from tunefleet.errors import (
    InputError,
    JobError,
    StepOrderError,
    TunefleetError,
)
from tunefleet.hardware.processor import cpu_info
from tunefleet.report.result import read_result
from tunefleet.runs.jobs import list_jobs
from tunefleet.store import open_store
from tunefleet.workers.apart import call_apart

pytestmark = pytest.mark.tvm


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("home")


@pytest.fixture(scope="module")
def tuned(home: Path) -> Iterator[Session]:
    context = BenchmarkContext("cpu", threads=1, home=home)
    with Session(context) as session:
        session.from_network("zoo:tiny_cnn").autotune(trials=12, settings=SETTINGS)
        session.build().save().evaluate(rounds=3)
        yield session


def artifact_of(session: Session) -> Path:
    artifact = session.result().artifact
    assert artifact is not None
    return Path(artifact)


def copy_of(session: Session, folder: Path) -> Path:
    """To measure again, which writes figures into an artifact whose own were disturbed."""
    return shutil.copytree(artifact_of(session), folder / "artifacts" / session.context.run_id)


def test_the_result_holds_what_is_promised(tuned: Session) -> None:
    result = tuned.result()
    for name in ("network", "target", "device", "trials", "failures", "wall_s", "wall",
                 "baselines", "tuned_ms", "verified", "artifact"):  # fmt: skip
        assert getattr(result, name) is not None, name
    assert (result.speedup is None) == bool(result.why_no_speedup)
    assert result.trials == 12
    assert result.tuned_ms is not None
    assert result.tuned_ms.low <= result.tuned_ms.median <= result.tuned_ms.high
    assert read_result(json.loads(json.dumps(result.to_dict())), "result") == result


def test_every_step_is_timed(tuned: Session) -> None:
    result = tuned.result()
    steps = {str(kind) for kind in (*PREPARATION, *WINNERS, *DELIVERY)}
    assert {step.step for step in result.steps} == steps
    assert {*steps, "select", "build", "profile", "update"} <= set(result.wall)


def test_the_gain_is_that_over_what_the_user_has(tuned: Session) -> None:
    result = tuned.result()
    assert [b.name for b in result.baselines] == ["PyTorch"]
    source = result.baselines[0]
    assert result.speedup == source.speedup
    if result.tuned_ms and source.speedup:  # nothing else runs
        ratio = source.latency_ms.median / result.tuned_ms.median
        assert ratio == pytest.approx(source.speedup.median, rel=0.5)


def test_it_runs_what_it_saved_and_says_what_it_knows(tuned: Session) -> None:
    from tunefleet.compiler.frontends import load_network

    imported = load_network("zoo:tiny_cnn")
    (expected,) = imported.reference(imported.example_inputs, 1)
    np.testing.assert_allclose(tuned.run(*imported.example_inputs), expected, rtol=1e-3, atol=1e-4)
    assert tuned.module_path.is_file()
    assert tuned.peak_gflops is not None
    assert tuned.peak_gflops > 0


def test_a_network_that_is_not_there_leaves_no_session_open(small: Path, tmp_path: Path) -> None:
    from tunefleet import from_network

    with pytest.raises(InputError, match="nowhere"):
        from_network(tmp_path / "nowhere.onnx", context=BenchmarkContext(home=tmp_path, threads=1))
    with from_network(small, context=BenchmarkContext(home=tmp_path, threads=1)) as ours:
        for early in (ours.run, ours.save, ours.evaluate):
            with pytest.raises(StepOrderError, match="needs build first"):
                early()


def test_a_session_that_cannot_tell_its_result_ends_its_workers_all_the_same(
    small: Path,
    tmp_path: Path,
) -> None:
    cores, workers = os.sched_getaffinity(0), set(multiprocessing.active_children())
    context = BenchmarkContext(home=tmp_path, threads=1)
    session = Session(context).from_network(small)
    assert set(multiprocessing.active_children()) > workers
    Home(tmp_path).store.unlink()
    with pytest.raises(TunefleetError, match="was removed while it was in use"):
        session.close()
    assert workers == set(multiprocessing.active_children())
    assert cores == os.sched_getaffinity(0)
    session.close()


def test_a_new_job_takes_the_place_of_one_that_was_interrupted(small: Path, tmp_path: Path) -> None:
    with Session(BenchmarkContext(home=tmp_path, threads=1)) as session:
        session.from_network(small).autotune(trials=2, settings=SETTINGS)
        first = session.result().job
    with Session(BenchmarkContext(home=tmp_path, threads=1)) as session:
        session.from_network(small).autotune(trials=2, settings=SETTINGS, new_job=True)
        assert session.result().job != first
        with pytest.raises(StepOrderError, match="run needs save first"):
            session.build().run()
    store = open_store(tmp_path)
    states = {job.job_id: job.state for job in store.jobs.page()}
    store.close()
    assert states.pop(str(first)) is JobState.FAILED
    assert [*states.values()] == [JobState.RUNNING]


def test_a_run_id_has_32_characters(tuned: Session) -> None:
    assert re.fullmatch(r"[0-9a-f]{32}", tuned.context.run_id)


def test_the_artifact_computes_what_the_source_computes(tuned: Session, home: Path) -> None:
    from tunefleet.compiler.frontends import load_network

    imported = load_network("zoo:tiny_cnn")
    (expected,) = imported.reference(imported.example_inputs, 1)
    loaded = Session.load(tuned.context.run_id, home=home)
    actual = loaded.run(*imported.example_inputs)
    np.testing.assert_allclose(actual, expected, rtol=1e-3, atol=1e-4)


def test_the_artifact_is_complete(tuned: Session) -> None:
    path = artifact_of(tuned)
    names = {p.name for p in path.iterdir()}
    pages = {"report.html", "timeline.html", "README.md"}
    assert names == pages | {"module.so", "module.safetensors", "artifact.json", "records.jsonl"}
    records = [json.loads(line) for line in (path / "records.jsonl").read_text().splitlines()]
    assert all(r["checks"]["verified"] for r in records)
    assert "tiny_cnn" in (path / "report.html").read_text()


def test_the_report_links_to_a_timeline_that_the_manifest_lists(tuned: Session) -> None:
    path = artifact_of(tuned)
    assert 'href="timeline.html"' in (path / "report.html").read_text()
    assert "<svg" in (path / "timeline.html").read_text()
    manifest = json.loads((path / "artifact.json").read_text())
    digest = hashlib.sha256((path / "timeline.html").read_bytes()).hexdigest()
    assert manifest["files"]["timeline.html"] == digest
    assert tuned.result().timeline == str(path / "timeline.html")


def test_tasks_have_their_latency_before_and_their_distance_from_the_limit(tuned: Session) -> None:
    result = tuned.result()
    assert result.bandwidths
    measured = [task for task in result.tasks if task.latency_us]
    assert measured
    for task in measured:
        assert task.bytes
        assert task.limit_share is None or 0 < task.limit_share <= 1
        assert (
            task.default_us is None
            or task.source != "default"
            or (task.default_us == task.latency_us)
        )
    assert any(task.default_us for task in measured)
    assert any(task.limit_share for task in measured)
    assert "How far from the machine" in (artifact_of(tuned) / "report.html").read_text()


def test_the_python_of_the_report_runs_as_it_is(tuned: Session, tmp_path: Path) -> None:
    page = (artifact_of(tuned) / "report.html").read_text()
    snippet = html.unescape(page.split("<pre><code>")[1].split("</code>")[0])
    code = snippet + "print(outputs.shape)"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.stdout == "(1, 10)\n", done.stderr


def test_the_artifact_can_be_measured_again(tuned: Session, tmp_path: Path) -> None:
    value = evaluate_artifact(copy_of(tuned, tmp_path), tmp_path, rounds=2)
    assert value.tuned_ms is not None
    assert [b.kind for b in value.baselines] == ["source"]
    assert value.kernels


def test_a_job_that_was_interrupted_after_its_artifact_was_saved_has_one(
    small: Path, tmp_path: Path
) -> None:
    def begun() -> Session:
        session = Session(BenchmarkContext("cpu", threads=1, home=tmp_path))
        return session.from_network(small).autotune(trials=2, settings=SETTINGS)

    with begun() as first:
        job = first.build().save().result().job
    with begun() as second:
        result = second.build().save().evaluate(rounds=3).result()
    assert (result.job, result.resumed, result.trials) == (job, True, 2)
    assert [path.name for path in (tmp_path / "artifacts").iterdir()] == [job]


@pytest.mark.parametrize("by", ["run id", "beginning of the id", "path"])
def test_a_context_is_found_again_with_all_it_knows(tuned: Session, home: Path, by: str) -> None:
    run_id = tuned.context.run_id
    runs = {"run id": run_id, "beginning of the id": run_id[:8], "path": str(artifact_of(tuned))}
    loaded = BenchmarkContext.load(runs[by], home)
    own = tuned.context
    assert (loaded.run_id, loaded.created_at, loaded.home) == (run_id, own.created_at, home)
    assert (loaded.target, loaded.device, loaded.layout) == (own.target, own.device, own.layout)
    assert (loaded.host_cores, loaded.device_cores) == (
        own.layout.host_cores,
        own.layout.device_cores,
    )
    result = loaded.result
    assert result is not None
    assert result == tuned.result()
    assert (result.network.name, result.job) == ("tiny_cnn", run_id)
    assert {step.step for step in result.steps} >= {"import", "measure"}
    assert "network tiny_cnn" in repr(loaded)
    assert "latency" in repr(loaded)


def test_a_job_without_an_artifact_is_found_too(small: Path, tmp_path: Path) -> None:
    context = BenchmarkContext(home=tmp_path, threads=1)
    with Session(context) as session:
        session.from_network(small).autotune(trials=2, settings=SETTINGS)
    assert context.result is not None
    loaded = BenchmarkContext.load(context.run_id, tmp_path)
    assert (loaded.run_id, loaded.device) == (context.run_id, context.device)
    assert loaded.result is not None
    assert (loaded.result.trials, loaded.result.delivered) == (2, None)
    assert loaded.result.network == context.result.network
    assert "import" in [step.step for step in loaded.result.steps]
    with pytest.raises(InputError, match="no run 123456"):
        BenchmarkContext.load("123456", tmp_path)
    with pytest.raises(InputError, match="no run 123456"):
        BenchmarkContext.load("123456", tmp_path / "nowhere")


def test_an_artifact_elsewhere_has_its_context_without_a_store(
    tuned: Session, tmp_path: Path
) -> None:
    shutil.copytree(artifact_of(tuned), tmp_path / "artifact")
    loaded = BenchmarkContext.load(tmp_path / "artifact", tmp_path / "home")
    own = tuned.context
    assert (loaded.run_id, loaded.target, loaded.device) == (own.run_id, own.target, own.device)
    assert loaded.result is not None
    assert not (tmp_path / "home").exists()


def test_a_loaded_session_evaluates_and_runs_in_one_chain(tuned: Session, tmp_path: Path) -> None:
    inputs = [np.zeros((1, 3, 16, 16), np.float32)]
    events: list[Event] = []
    copy_of(tuned, tmp_path)
    with Session.load(tuned.context.run_id, tmp_path, events.append) as loaded:
        found = loaded.result()
        assert loaded.evaluate(rounds=2).run(*inputs).shape == (1, 10)
        again = loaded.result()
    assert [b.kind for b in again.baselines] == ["source"]
    assert again.tuned_ms not in (None, found.tuned_ms)
    assert (again.network, again.job, again.steps) == (found.network, found.job, found.steps)
    assert not [event for event in events if isinstance(event, Note) and event.warning]


def test_a_loaded_session_may_go_on_to_a_run_of_its_own(tuned: Session, home: Path) -> None:
    before = (artifact_of(tuned) / "artifact.json").read_bytes()
    with Session.load(tuned.context.run_id, home) as loaded:
        loaded.from_network("zoo:tiny_cnn")
        assert loaded.context.run_id != tuned.context.run_id
        with pytest.raises(StepOrderError, match="needs build first"):
            loaded.evaluate()
    assert before == (artifact_of(tuned) / "artifact.json").read_bytes()


def test_without_autotune_earlier_records_are_used(
    tuned: Session, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tunefleet.stages import compile_

    call, compiled = call_apart, []

    def seen(*args: Any, **more: Any) -> Any:
        *_, traces, codes = args
        compiled.append(set(traces))
        assert not codes  # those of this home's searches are gone
        return call(*args, **more)

    monkeypatch.setattr(compile_, "call_apart", seen)
    context = BenchmarkContext("cpu", threads=1, home=home)
    with Session(context) as session:
        session.from_network("zoo:tiny_cnn").build()
        verified = {
            r["task_id"]
            for r in map(
                json.loads,
                (artifact_of(tuned) / "records.jsonl").read_text().splitlines(),
            )
        }
        assert compiled == [verified]


@pytest.mark.long
def test_a_session_goes_on_to_another_network_with_nothing_of_the_one_before(
    tmp_path: Path,
) -> None:
    with Session(BenchmarkContext("cpu", threads=1, home=tmp_path)) as session:
        session.from_network("zoo:tiny_cnn").autotune(trials=2, settings=SETTINGS).build()
        first = session.context.run_id
        session.from_network("zoo:tiny_cnn?size=20").build().save()
        assert session.run(np.zeros((1, 3, 20, 20), np.float32)).shape == (1, 10)
        assert first != session.context.run_id
        session.autotune(trials=2, settings=SETTINGS)
        with pytest.raises(InputError, match="does not exist"):
            session.from_network(tmp_path / "nowhere.onnx")
        with pytest.raises(StepOrderError, match="from_network"):
            session.build()


def test_a_session_may_search_again(small: Path, tmp_path: Path) -> None:
    jobs = []
    with Session(BenchmarkContext("cpu", threads=1, home=tmp_path)) as session:
        session.from_network(small).autotune(trials=2, settings=SETTINGS).build()
        jobs.append(session.result().job)
        for trials, new_job in ((2, False), (3, False), (3, True)):
            session.autotune(trials=trials, settings=SETTINGS, new_job=new_job)
            assert session.result().trials == trials
            jobs.append(session.result().job)
        with pytest.raises(StepOrderError, match="build"):
            session.save()
    assert jobs[0] == jobs[1]
    assert len(set(jobs)) == 3


@pytest.mark.parametrize(
    ("step", "missing"),
    [
        (lambda s: s.autotune(trials=1), "from_network"),
        (lambda s: s.build(), "from_network"),
        (lambda s: s.save(), "build"),
        (lambda s: s.evaluate(), "build"),
        (lambda s: s.run(np.zeros(1)), "build"),
        (lambda s: s.result(), "from_network"),
    ],
)
def test_a_step_too_early_names_the_one_missing(tmp_path: Path, step: Any, missing: str) -> None:
    with (
        Session(BenchmarkContext(home=tmp_path)) as session,
        pytest.raises(StepOrderError, match=missing),
    ):
        step(session)


@pytest.mark.parametrize(
    ("inputs", "cause"),
    [
        ([], "takes 1 inputs, 0 were given"),
        ([np.zeros((1, 3, 16, 16), "float64")], r"float64\[1, 3, 16, 16\]"),
        ([np.zeros((1, 3, 8, 8), "float32")], r"float32\[1, 3, 8, 8\]"),
    ],
)
def test_wrong_inputs_are_named(tuned: Session, inputs: list[Any], cause: str) -> None:
    with pytest.raises(InputError, match=cause):
        run_artifact(artifact_of(tuned), inputs)


def damaged(tmp_path: Path, text: str | None) -> Path:
    path = tmp_path / "artifact"
    path.mkdir()
    if text is not None:
        (path / "artifact.json").write_text(text)
    return path


@pytest.mark.parametrize(
    ("text", "cause"),
    [
        (None, "no artifact.json"),
        ("{", "cannot be read"),
        ('{"schema": "tunefleet-artifact/99"}', "has schema"),
        ('{"schema": "tunefleet-artifact/2"}', "is damaged"),
        ('{"schema": "tunefleet-artifact/2", "network": 1}', "is damaged"),
        ("[]", "has schema None"),
    ],
)
def test_a_damaged_artifact_is_refused_in_one_line(
    tmp_path: Path, text: str | None, cause: str
) -> None:
    with pytest.raises(TunefleetError, match=cause) as caught:
        run_artifact(damaged(tmp_path, text), [])
    assert "\n" not in str(caught.value)


def test_an_artifact_of_another_machine_is_refused(
    tuned: Session, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # No name of a processor would do: this machine may be the newest there is.
    from tunefleet.artifacts import module

    here = cpu_info()
    poorer = replace(here, facts=replace(here.facts, flags=frozenset({"sse2"})))
    monkeypatch.setattr(module, "cpu_info", lambda: poorer)
    with pytest.raises(InputError, match="which this processor does not have"):
        run_artifact(artifact_of(tuned), [])


def test_tasks_can_be_listed_without_tuning() -> None:
    listing = list_tasks("zoo:tiny_cnn", "native", 1)
    assert sum(t["share"] for t in listing["tasks"]) == pytest.approx(1.0)


def test_a_job_is_paused_and_cancelled_while_it_is_delivered(small: Path, tmp_path: Path) -> None:
    told: list[Any] = []

    def observe(event: Any) -> None:
        told.append(event)
        controls = store.coordination
        job_id = next((e.job_id for e in told if isinstance(e, JobOpened)), "")
        if isinstance(event, PhaseStarted) and event.name == "verify winners":
            controls.ask(job_id, ControlRequest.PAUSE)
        elif isinstance(event, JobHeld):
            controls.ask(job_id, ControlRequest.RUN)
        elif isinstance(event, PhaseStarted) and event.name == "compile":
            controls.ask(job_id, ControlRequest.CANCEL)

    store = open_store(tmp_path)
    with (
        Session(BenchmarkContext(home=tmp_path, threads=1), observe) as session,
        pytest.raises(JobError, match="cancelled by its user"),
    ):
        session.from_network(small).autotune(trials=9, settings=SETTINGS).build()
    assert any(isinstance(event, JobContinued) for event in told)
    assert [job.state for job in store.jobs.page()] == [JobState.CANCELLED]
    store.close()


def _free_width(path: Path) -> Path:
    """A network over images of any width, with an operator that nothing here compiles."""
    import onnx
    from onnx import TensorProto, helper, numpy_helper

    weight = np.random.default_rng(0).standard_normal((4, 3, 3, 3)).astype("float32")
    graph = helper.make_graph(
        [
            helper.make_node("Conv", ["x", "w"], ["c"], pads=[1, 1, 1, 1]),
            helper.make_node("Cast", ["c"], ["t"], to=TensorProto.STRING),
            helper.make_node("Cast", ["t"], ["y"], to=TensorProto.FLOAT),
        ],
        "graph",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 3, 8, "width"])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n", 4, 8, "width"])],
        [numpy_helper.from_array(weight, "w")],
    )
    opset = [helper.make_opsetid("", 18)]
    onnx.save(helper.make_model(graph, opset_imports=opset, ir_version=9), path)
    return path


@pytest.mark.long
def test_one_artifact_takes_several_shapes_and_keeps_what_cannot_be_compiled(
    tmp_path: Path, home: Path
) -> None:
    context = BenchmarkContext("cpu", threads=1, home=home)
    with Session(context) as session:
        session.from_network(_free_width(tmp_path / "free.onnx"), dims={"width": (8, 12)})
        result = session.build().save().evaluate(rounds=3).result()
    assert [list(shape.inputs) for shape in result.shapes] == [
        ["x: float32[1, 3, 8, 8]"],
        ["x: float32[1, 3, 8, 12]"],
    ]
    assert result.outside is not None
    assert result.outside.segments[0].nodes
    loaded = Session.load(context.run_id, home=home)
    for width in (8, 12):
        assert (1, 4, 8, width) == loaded.run(np.ones((1, 3, 8, width), "float32")).shape
    assert "source" in [b.kind for b in evaluate_artifact(context.run_id, home, 2).baselines]
    (evaluated,) = [job for job in list_jobs(home) if job["kind"] == "evaluate"][:1]
    assert (evaluated["state"], evaluated["reason"]) == ("succeeded", "")
    assert evaluated["latency_ms"] > 0
    (tmp_path / "free.onnx").write_bytes(b"another network")
    with served(home):
        by_server = evaluate_artifact(context.run_id, home, 2)
        with killed(home), pytest.raises(JobError, match="its process ended by SIGKILL; give"):
            evaluate_artifact(context.run_id, home, 500)
        last = list_jobs(home, limit=1)[0]
        assert (last["kind"], last["state"]) == ("evaluate", "failed")
        assert "SIGKILL" in last["reason"]
    assert [shape.inputs for shape in result.shapes] == [s.inputs for s in by_server.shapes]
    np.save(tmp_path / "x.npy", np.ones((1, 3, 8, 8), "float32"))
    command = ["run", context.run_id, "--input", str(tmp_path / "x.npy"), "--repeat", "3"]
    assert run([*command, "--home", str(home)]) == 0
    assert tuple(list_jobs(home, limit=1)[0][k] for k in ("kind", "state")) == ("run", "succeeded")
    assert "source" in [b.kind for b in loaded.evaluate(rounds=2).result().baselines]
    (kept,) = Home(home).networks.glob("*/free.onnx")
    kept.write_bytes(b"another network")
    changed = loaded.evaluate(rounds=2).result()
    assert "has changed" in changed.warnings[-1]
    assert changed.baselines == ()
    with pytest.raises(InputError, match="give one of"):
        loaded.run(np.ones((1, 3, 8, 9), "float32"))


def test_a_network_that_draws_random_numbers_is_not_said_to_be_imported_wrongly(
    tmp_path: Path, home: Path
) -> None:
    from onnx import parser, save

    graph = """<ir_version: 9, opset_import: ["":18]> g (float[4,16] x) => (float[4,16] y)
    { r = Relu(x) n = RandomNormalLike(r) y = Add(r, n) }"""
    save(parser.parse_model(graph), tmp_path / "noisy.onnx")
    with (
        Session(BenchmarkContext("cpu", threads=1, home=home)) as session,
        pytest.raises(JobError, match="draws random numbers") as caught,
    ):
        session.from_network(tmp_path / "noisy.onnx")
    assert "--constant" in caught.value.cure


def test_a_network_that_must_be_whole_is_refused_with_what_would_stay_outside(
    tmp_path: Path, home: Path
) -> None:
    with (
        Session(BenchmarkContext("cpu", threads=1, home=home)) as session,
        pytest.raises(InputError, match="Cast"),
    ):
        session.from_network(_free_width(tmp_path / "free.onnx"), dims={"width": 8}, whole=True)


def test_outputs_that_are_next_to_nothing_are_warned_of(tmp_path: Path, home: Path) -> None:
    import onnx
    from onnx import parser

    graph = """<ir_version: 9, opset_import: ["":18]> g (float[2,8] x) => (float[2,8] y)
    { k = Constant<value_float = 30.0>() d = Sub(x, k) y = Sigmoid(d) }"""
    onnx.save(parser.parse_model(graph), tmp_path / "far.onnx")
    told: list[Event] = []
    with Session(BenchmarkContext("cpu", threads=1, home=home), told.append) as session:
        session.from_network(tmp_path / "far.onnx")
        warned = [each.text for each in told if isinstance(each, Note) and each.warning]
        assert "stays below 0.001" in warned[0]
        assert list(session.result().warnings) == warned


@pytest.mark.parametrize("measured", [1, 0])
def test_what_cannot_be_measured_is_delivered_all_the_same(
    home: Path, monkeypatch: pytest.MonkeyPatch, measured: int
) -> None:
    """Baselines are left out first: `measured` contenders can be measured."""
    from tunefleet.stages import measure, verify

    compare = measure.compare
    notes: list[Any] = []

    def limited(contenders: Any, *args: Any, **how: Any) -> Any:
        if len(contenders) > measured:
            raise JobError("measuring the network failed: out of memory", cure="free some")
        return compare(contenders, *args, **how)

    monkeypatch.setattr(measure, "compare", limited)
    monkeypatch.setattr(verify, "compare", limited)
    with Session(BenchmarkContext("cpu", threads=1, home=home), notes.append) as session:
        session.from_network("zoo:tiny_cnn?size=20").build().save().evaluate(rounds=3)
        result = session.result()
    assert result.delivered == "tuned"
    assert (result.tuned_ms is not None) == (measured == 1)
    assert result.baselines == ()
    assert (Path(str(result.artifact)) / "module.so").is_file()
    assert any("out of memory" in str(note) for note in notes)
