"""What a worker has in it as it starts."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tunefleet.compiler.frontends.spec import is_torch

pytestmark = [pytest.mark.tvm, pytest.mark.frameworks]

_WORKER = """
from tunefleet.workers._spawn import start_server, worker_context
start_server(torch=True)
found = "import os, sys; os._exit(40 + len({'tvm', 'torch', 'torch._dynamo'} & {*sys.modules}))"
worker = worker_context().Process(target=exec, args=(found,))
worker.start()
worker.join()
print(worker.exitcode)
"""


@pytest.mark.slow
def test_workers_of_pytorch_s_networks_need_not_load_it() -> None:
    pytest.importorskip("torch")
    ended = subprocess.run([sys.executable, "-c", _WORKER], capture_output=True, text=True)
    assert (ended.stdout, ended.stderr) == ("43\n", "")


def test_pytorch_reads_networks_of_the_zoo_its_own_files_and_transformers(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    assert [is_torch(spec) for spec in ("zoo:x", "a/b.pt2", str(tmp_path))] == [True] * 3
    assert [is_torch(spec) for spec in ("b.onnx", "folder")] == [False] * 2
