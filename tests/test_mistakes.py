"""A bug of ours, wherever it is, ends as an internal error: never as a failed trial, as a file's
fault or as nothing."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.networks import write_small
from tunefleet import BenchmarkContext, Session
from tunefleet.runs.submitting import server_of

sys.path.append(str(Path(__file__).parents[1] / "benchmarks"))
from mistakes_bugs import BUGS, faults_of, run, with_bug

pytestmark = pytest.mark.tvm

TUNE = ["tune", "small.onnx", "--trials", "8", "--threads", "1", "--quiet"]

#: Of commands, stages, threads and workers; any place: `benchmarks/mistakes.py`.
FUNCTIONS = {
    "graph": ("compiler/graph/pipeline.py", "prepare", "ValueError"),
    "build": ("compiler/code/build.py", "compile_module", "TypeError in json"),
    "profile": ("devices/measuring.py", "_measured", "ValueError in numpy"),
    # Its message is empty.
    "check": ("stages/check.py", "compared", "AssertionError"),
    "thread": ("fleet/executor.py", "_work", "RecursionError"),
    "initialiser": ("workers/_worker.py", "_write_to_log", "OSError"),
    "store": ("store/commits.py", "write_run", "OperationalError in sqlite3"),
}


def ends_as_ours(file: str, function: str, bug: str, command: list[str], folder: Path) -> None:
    """Runs a command with a bug in a function, and looks at how it ends."""
    with_bug(folder / "source", file, function, BUGS[bug])
    ended = run(folder / "source", folder / "home", command, 240)
    assert faults_of(ended, 240) == [], ended.said
    (written,) = (folder / "home" / "bugs").iterdir()
    assert str(written) in ended.said
    assert file in written.read_text()


@pytest.mark.slow
@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_bug_of_any_kind_is_told_as_ours(name: str, tmp_path: Path) -> None:
    file, function, bug = FUNCTIONS[name]
    write_small(tmp_path / "small.onnx")
    ends_as_ours(file, function, bug, TUNE, tmp_path)
    assert not list(tmp_path.glob("home/artifacts/*"))


@pytest.mark.slow
def test_a_bug_in_the_search_of_a_home_with_records_is_no_end_of_it(tmp_path: Path) -> None:
    write_small(tmp_path / "small.onnx")
    with Session(BenchmarkContext(threads=1, home=tmp_path / "home")) as session:
        session.from_network(tmp_path / "small.onnx").autotune(trials=8)
    again = [*TUNE, "--seed", "7"]
    ends_as_ours("search/selection.py", "select", "ValueError of unpacking", again, tmp_path)


@pytest.mark.slow
@pytest.mark.long
def test_a_bug_in_one_job_is_no_end_of_its_server(tmp_path: Path) -> None:
    source, home = tmp_path / "source", tmp_path / "home"
    only_in_one = "if self.name == 'bad': name_that_is_not_there"
    with_bug(source, "runs/driver.py", "_complete", only_in_one)
    environment = {**os.environ, "PYTHONPATH": str(source), "TUNEFLEET_HOME": str(home)}
    server = subprocess.Popen([sys.executable, "-m", "tunefleet", "serve"], env=environment)
    try:
        for name, width in (("bad", 8), ("good", 4)):
            write_small(tmp_path / f"{name}.onnx", width)
        while server_of(home) is None:
            assert server.poll() is None
            time.sleep(0.1)
        tune = ["--trials", "2", "--threads", "1", "--quiet"]
        bad = run(source, home, ["tune", "bad.onnx", *tune], 240)
        assert faults_of(bad, 240) == [], bad.said
        assert "NameError" in bad.written
        assert "runs/driver.py" in bad.written
        good = run(source, home, ["tune", "good.onnx", *tune], 240)
        assert good.code == 0, good.said
        asked = server_of(home)
        assert asked is not None
        assert server.pid == asked.pid
    finally:
        server.terminate()
        server.wait()


#: Where a frontend meets what users bring, and would otherwise go on without it.
FRONTENDS = {
    "onnx": ("compiler/frontends/onnx_infer.py", "with_types", "RuntimeError"),
    "pt2": ("compiler/frontends/torch_lower.py", "_table", "NameError"),
}


def network(kind: str, folder: Path) -> Path:
    path = folder / f"network.{kind}"
    if kind == "onnx":
        from onnx import TensorProto, helper, save

        nodes = [helper.make_node("Gelu", ["x"], ["y"]), helper.make_node("Relu", ["y"], ["z"])]
        types = [helper.make_tensor_value_info(n, TensorProto.FLOAT, [2, 3]) for n in ("x", "z")]
        graph = helper.make_graph(nodes, "network", types[:1], types[1:])
        save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)]), path)
    else:
        import torch

        program = torch.export.export(torch.nn.Sequential(torch.nn.GELU()), (torch.ones(2, 3),))
        torch.export.save(program, path)
    return path


@pytest.mark.slow
@pytest.mark.parametrize("name", FRONTENDS)
def test_a_bug_in_a_frontend_is_told_as_ours(name: str, tmp_path: Path) -> None:
    path = network(name, tmp_path)
    file, function, bug = FRONTENDS[name]
    ends_as_ours(file, function, bug, ["tasks", str(path)], tmp_path)
