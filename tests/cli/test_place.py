from pathlib import Path
from typing import Any

import pytest

from tests.devices.servers import absent
from tunefleet.cli.app import run

pytestmark = pytest.mark.tvm


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What `runs.errands.place` is called with, which then refuses."""
    from tunefleet.errors import JobError
    from tunefleet.runs import errands

    calls: list[Any] = []

    def place(*args: Any, **precision: Any) -> Any:
        calls.append((*args, precision))
        raise JobError("not here")

    monkeypatch.setattr(errands, "place", place)
    return calls


def test_devices_are_named_with_their_targets(asked: list[Any], tmp_path: Path) -> None:
    given = ["--device", "local", "--device", "board=llvm -mcpu=haswell", "--threads", "1"]
    given += ["--precision", "bf16"]
    assert run(["place", "zoo:tiny_cnn", *given, "--home", str(tmp_path)]) == 6
    (_, contexts, options, _, precision), = asked  # fmt: skip
    assert precision == {"precision": "bf16", "calibrate": None}
    assert options.whole
    assert [(c.device_names, c.target_text) for c in contexts.values()] == [
        (("local",), "cpu"),
        (("board",), "llvm -mcpu=haswell"),
    ]


def test_a_device_that_is_given_twice_is_refused(
    asked: list[Any], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["place", "zoo:tiny_cnn", "--device", "a", "--device", "a=haswell"]) == 2
    assert "a is given twice" in capsys.readouterr().err
    assert not asked


def test_a_device_that_nobody_named_is_refused(tmp_path: Path) -> None:
    given = ["--device", "local", "--device", "board", "--home", str(tmp_path), "--json", "-"]
    assert run(["place", "zoo:tiny_cnn", *given, "--quiet"]) == 2


def test_a_device_that_is_away_is_told_before_anything_is_imported(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    url = absent(tmp_path)
    given = ["--device", "local", "--device", "gone", "--home", str(tmp_path)]
    assert run(["place", "zoo:tiny_cnn", *given]) == 4
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"error: {url} is not there: connection refused; start it: python -m")
