"""A bug of ours, wherever it is, ends as an internal error: never as a failed trial, as a file's
fault or as nothing."""

from __future__ import annotations

import sys
from itertools import cycle
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parents[1] / "benchmarks"))
from mistakes_bugs import BUGS, SOURCE, faults_of, run, with_bug

pytestmark = pytest.mark.tvm

TUNE = ["tune", "zoo:tiny_cnn", "--trials", "24", "--threads", "1", "--quiet"]

#: A function of every stage and step, in the module where it stands, and the kind of the bug.
FUNCTIONS = {
    "import": ("compiler/frontends/zoo_.py", "load", "KeyError"),
    "graph": ("compiler/graph/pipeline.py", "prepare", "ValueError"),
    "select": ("search/selection.py", "select", "ValueError of unpacking"),
    "replay": ("compiler/code/replay.py", "replay", "RuntimeError"),
    "build": ("compiler/code/build.py", "compile_module", "TypeError in json"),
    "profile": ("devices/measuring.py", "_measured", "ValueError of unpacking"),
    "reference": ("devices/reference.py", "reference_kernel", "RuntimeError"),
    "peak": ("devices/reference.py", "peak_kernels", "OSError"),
    "update": ("search/guide.py", "learn", "ValueError in numpy"),
    "finalists": ("devices/measuring.py", "_interleaved", "RecursionError"),
    "check": ("devices/measuring.py", "_compared", "ValueError in numpy"),
    "compile": ("compiler/code/executable.py", "save_network", "OSError, bad descriptor"),
    "run": ("artifacts/network.py", "run", "ValueError"),
    "measure": ("compiler/code/executable.py", "time_interleaved", "RuntimeError"),
    "publish": ("artifacts/artifact.py", "write_artifact", "UnicodeDecodeError"),
    "report": ("report/html.py", "render_html", "IndexError"),
    "result": ("stages/result.py", "build_result", "OperationalError in sqlite3"),
    "step, import": ("stages/importing.py", "prepare_network", "NameError"),
    "step, check": ("stages/check.py", "compared", "AssertionError"),
    "step, build finalists": ("stages/winners.py", "run_build", "ValueError"),
    "step, select winners": ("stages/winners.py", "run_select", "JSONDecodeError in json"),
    "step, compile": ("stages/compile_.py", "compile_program", "ValueError"),
    "step, verify": ("stages/verify.py", "run", "RuntimeError"),
    "step, publish": ("stages/publish.py", "artifact_of", "KeyError"),
    "step, measure": ("stages/measure.py", "_compared", "AttributeError"),
    "thread": ("fleet/executor.py", "_work", "ValueError"),
    "thread, reports": ("fleet/shell.py", "report", "RuntimeError"),
    "worker, initialiser": ("workers/pool.py", "_write_to_log", "OSError"),
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
def test_a_bug_in_any_stage_is_told_as_ours(name: str, tmp_path: Path) -> None:
    file, function, bug = FUNCTIONS[name]
    ends_as_ours(file, function, bug, TUNE, tmp_path)
    assert not list(tmp_path.glob("home/artifacts/*")) or name == "step, measure"


@pytest.mark.slow
def test_a_bug_in_the_search_of_a_home_with_records_is_no_end_of_it(tmp_path: Path) -> None:
    assert run(SOURCE.parent, tmp_path / "home", TUNE, 240).code == 0
    again = [*TUNE, "--seed", "7"]
    ends_as_ours("search/selection.py", "select", "ValueError of unpacking", again, tmp_path)


#: Of each frontend: where it meets what users bring, and would otherwise go on without it.
FRONTENDS = {
    "onnx": ("compiler/frontends/onnx_.py", "load"),
    "onnx, types": ("compiler/frontends/onnx_infer.py", "with_types"),
    "onnx, graph": ("compiler/frontends/onnx_graph.py", "_check_output"),
    "onnx, order": ("compiler/frontends/onnx_prepare.py", "_sorted"),
    "pt2": ("compiler/frontends/torch_.py", "load"),
    "pt2, archive": ("artifacts/torch_safety.py", "_dangerous"),
    "pt2, nodes": ("compiler/frontends/torch_translate.py", "convert"),
    "pt2, lowering": ("compiler/frontends/torch_lower.py", "_table"),
    "tflite": ("compiler/frontends/tflite_.py", "_convert"),
    "keras": ("compiler/frontends/keras_.py", "_inputs"),
}


#: The kind of the bug in each.
KINDS = dict(
    zip(FRONTENDS, cycle(["ValueError", "NameError", "RuntimeError", "ValueError in numpy"]))
)


def network(kind: str, folder: Path) -> Path:
    from tests.compiler import test_keras, test_tflite

    path = folder / f"network.{kind}"
    if kind == "tflite":
        test_tflite._convolution(path)
    elif kind == "keras":
        path = Path(test_keras._saved(folder))
    elif kind == "onnx":
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
# Keras's own, as it saves a model of torch tensors.
@pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")
@pytest.mark.parametrize("name", FRONTENDS)
def test_a_bug_in_any_frontend_is_told_as_ours(name: str, tmp_path: Path) -> None:
    path = network(name.partition(",")[0], tmp_path)
    file, function = FRONTENDS[name]
    ends_as_ours(file, function, KINDS[name], ["tasks", str(path)], tmp_path)
