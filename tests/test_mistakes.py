"""A bug of ours, wherever it is, ends as an internal error: never as a failed trial, as a file's
fault or as nothing."""

from __future__ import annotations

import ast
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import tunefleet

pytestmark = pytest.mark.tvm

SOURCE = Path(tunefleet.__file__).parent
TUNE = ["tune", "zoo:tiny_cnn", "--trials", "24", "--threads", "1", "--quiet"]

#: A function of every stage and step, in the module where it stands.
FUNCTIONS = {
    "import": ("compiler/frontends/zoo_.py", "load"),
    "graph": ("compiler/graph/pipeline.py", "prepare"),
    "select": ("search/selection.py", "select"),
    "replay": ("compiler/code/replay.py", "replay"),
    "build": ("compiler/code/build.py", "compile_module"),
    "profile": ("devices/measuring.py", "_measured"),
    "reference": ("devices/reference.py", "reference_kernel"),
    "peak": ("devices/reference.py", "peak_kernels"),
    "update": ("search/guide.py", "learn"),
    "finalists": ("devices/measuring.py", "_interleaved"),
    "check": ("devices/measuring.py", "_compared"),
    "compile": ("compiler/code/executable.py", "save_network"),
    "run": ("artifacts/network.py", "run"),
    "measure": ("compiler/code/executable.py", "time_interleaved"),
    "publish": ("artifacts/artifact.py", "write_artifact"),
    "report": ("report/html.py", "render_html"),
    "result": ("stages/result.py", "build_result"),
    "step, import": ("stages/importing.py", "prepare_network"),
    "step, check": ("stages/check.py", "compared"),
    "step, build finalists": ("stages/winners.py", "run_build"),
    "step, select winners": ("stages/winners.py", "run_select"),
    "step, compile": ("stages/compile_.py", "compile_program"),
    "step, verify": ("stages/verify.py", "run"),
    "step, publish": ("stages/publish.py", "artifact_of"),
    "step, measure": ("stages/measure.py", "_compared"),
}


def with_bug(folder: Path, file: str, function: str) -> None:
    """A copy of the package in which a function raises what a misspelt name does."""
    package = folder / "tunefleet"
    shutil.copytree(SOURCE, package, ignore=shutil.ignore_patterns("__pycache__"))
    path = package / file
    tree = ast.parse(path.read_text())
    found = [
        node
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef) and node.name == function
    ]
    assert found, f"{file} has no function {function}"
    for node in found:
        node.body.insert(0, ast.parse("os_path_that_is_not_there.attribute").body[0])
    path.write_text(ast.unparse(ast.fix_missing_locations(tree)))


def told(
    name: str, functions: dict[str, tuple[str, str]], command: list[str], folder: Path
) -> None:
    """Runs a command with a bug in a function, and looks at how it ends."""
    with_bug(folder / "source", *functions[name])
    environment = {
        **os.environ,
        "PYTHONPATH": str(folder / "source"),
        "TUNEFLEET_HOME": str(folder / "home"),
    }
    code = "import sys; from tunefleet.cli import main; sys.argv[0] = 'tunefleet'; main()"
    ended = subprocess.run(
        [sys.executable, "-c", code, *command],
        capture_output=True,
        text=True,
        env=environment,
        cwd=folder,
    )
    assert ended.returncode == 70, ended.stderr
    # TVM may complain from C++ of what was left half done, as the process ends.
    (last,) = (line for line in ended.stderr.splitlines() if "internal error" in line)
    assert "os_path_that_is_not_there" in last
    (written,) = (folder / "home" / "bugs").iterdir()
    assert str(written) in last
    assert functions[name][0] in written.read_text()


@pytest.mark.slow
@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_bug_in_any_stage_is_told_as_ours(name: str, tmp_path: Path) -> None:
    told(name, FUNCTIONS, TUNE, tmp_path)


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
    told(name, FRONTENDS, ["tasks", str(path)], tmp_path)
