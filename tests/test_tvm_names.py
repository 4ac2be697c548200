from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

CHECK = Path(__file__).parents[1] / "checks" / "tvm_names.py"

pytestmark = pytest.mark.tvm


def checked(source: str, folder: Path) -> tuple[int, str]:
    (folder / "module.py").write_text(source)
    command = [sys.executable, str(CHECK), str(folder)]
    told = subprocess.run(command, capture_output=True, text=True)
    return told.returncode, told.stdout


HEAD = """
from tunefleet.compiler.toolchain import load_tvm
tvm = load_tvm()
relax = tvm.relax
op = relax.op
"""


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("tvm.ir.structural_equal(a, b)", "TVM has no tvm.ir.structural_equal"),
        ("op.no_such_operator(a)", "TVM has no op.no_such_operator"),
        ("op.nn.softmax(a, axes=1)", "op.nn.softmax takes no 'axes'"),
        ("tvm.get_global_func('no.such.function')", "no global function 'no.such.function'"),
    ],
)
def test_what_tvm_lacks_is_found_where_no_test_runs(line: str, said: str, tmp_path: Path) -> None:
    code, output = checked(f"{HEAD}\ndef f(a, b):\n    if a:\n        {line}\n", tmp_path)
    assert code == 1
    assert said in output


def test_what_tvm_has_is_not_complained_of(tmp_path: Path) -> None:
    lines = "op.nn.softmax(a, axis=1); tvm.IRModule(a); tvm.get_global_func('runtime.NumThreads')"
    assert checked(f"{HEAD}\ndef f(a):\n    {lines}\n", tmp_path)[0] == 0
