"""A service as its users have it: a file goes there by the command line, and its artifact runs."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

from tunefleet import load
from tunefleet.cli.app import run

from ..networks import write_small

pytestmark = [pytest.mark.tvm, pytest.mark.frameworks, pytest.mark.slow]


@contextmanager
def serving(home: Path) -> Iterator[tuple[str, str]]:
    """The address of a service in a process of its own, and the token of its admin."""
    command = [sys.executable, "-m", "tunefleet", "serve", "--http", "0", "--threads", "1"]
    with subprocess.Popen(
        [*command, "--home", str(home)], stderr=subprocess.PIPE, text=True, start_new_session=True
    ) as process:
        assert process.stderr is not None
        url = token = ""
        while not token:
            line = process.stderr.readline()
            assert line, "the service ended"
            url = url or "".join(re.findall(r"answering at (\S+)", line))
            token = "".join(re.findall(r"shown again: (tf_\S+)", line))
        try:
            yield url, token
        finally:
            process.terminate()
            process.communicate(timeout=60)


@pytest.fixture
def service(tmp_path: Path) -> Iterator[tuple[str, str]]:
    with serving(tmp_path / "home") as made:
        yield made


def test_a_file_is_tuned_and_fetched(
    service: tuple[str, str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    url, token = service
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    (tmp_path / "token").write_text(token, encoding="utf-8")
    network = write_small(tmp_path / "small.onnx")
    assert run(["login", url, "--token-file", str(tmp_path / "token")]) == 0
    assert "signed in" in capsys.readouterr().out
    submit = ["submit", str(network), "--threads", "1", "--trials", "6", "--wait", "--quiet"]
    code = run(submit)
    told = capsys.readouterr()
    assert code == 0, told.err
    [artifact] = re.findall(r"tunefleet fetch (\w+)", told.out)
    assert run(["jobs", "--server", url]) == 0
    assert "succeeded" in capsys.readouterr().out
    assert run(["fetch", artifact, "--out", str(tmp_path)]) == 0
    folder = capsys.readouterr().out.strip()
    with load(folder) as module:
        [output] = module.run([np.zeros((1, 3, 16, 16), np.float32)])
    assert np.isfinite(output).all()
    assert run(["users", "add", "bob"]) == 0
    assert "tf_" in capsys.readouterr().out
    assert run(["submit", str(network), "--server", "http://127.0.0.1:1"]) == 2
    assert "tunefleet login" in capsys.readouterr().err
