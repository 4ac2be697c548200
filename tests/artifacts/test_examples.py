from __future__ import annotations

import io
import os
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tunefleet

EXAMPLES = Path(__file__).parents[2] / "examples"

pytestmark = pytest.mark.tvm


def test_an_artifact_runs_from_c_plus_plus(artifact: Path, image: Any, tmp_path: Path) -> None:
    for name in ("Makefile", "run.cc"):
        (tmp_path / name).write_bytes((EXAMPLES / "cpp" / name).read_bytes())
    subprocess.run(["make", "-s", f"PYTHON={sys.executable}"], cwd=tmp_path, check=True)
    image.tofile(tmp_path / "input.bin")
    command = ["./run", str(artifact), "input.bin", "output.bin"]
    # Nothing but what the example says is on its path.
    subprocess.run(command, cwd=tmp_path, check=True, env={"PATH": "/usr/bin:/bin"})
    with tunefleet.load(artifact) as module:
        expected = module(image)
    np.testing.assert_array_equal(
        np.fromfile(tmp_path / "output.bin", np.float32), expected.ravel()
    )


@contextmanager
def served(artifact: Path) -> Iterator[str]:
    command = [sys.executable, str(EXAMPLES / "serve.py"), str(artifact), "0"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=dict(os.environ))
    try:
        assert process.stdout is not None
        yield process.stdout.readline().split()[-1]
    finally:
        process.terminate()
        process.communicate()


def test_an_artifact_is_served(artifact: Path, image: Any) -> None:
    sent = io.BytesIO()
    np.save(sent, image)
    with served(artifact) as address:
        with urllib.request.urlopen(address, sent.getvalue(), timeout=30) as answer:
            received = np.load(io.BytesIO(answer.read()))
        with pytest.raises(urllib.error.HTTPError) as caught:
            urllib.request.urlopen(address, b"no array", timeout=30)
        with caught.value as refused:  # it holds the connection
            assert refused.code == 400
    with tunefleet.load(artifact) as module:
        np.testing.assert_array_equal(received, module(image))
