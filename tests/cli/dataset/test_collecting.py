"""`dataset collect`: what it refuses and what it shows at its end."""

from __future__ import annotations

from pathlib import Path

import pytest

from tunefleet.cli.app import run
from tunefleet.cli.dataset import collecting
from tunefleet.runs.collection import Gathered


def test_a_wrong_network_is_refused_before_anything_is_collected(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "records.parquet"
    given = ("--networks", "zoo:tiny_cnn", "--networks", "zoo:nothing", "-o", str(out))
    assert run(["dataset", "collect", *given, "--home", str(tmp_path / "home")]) == 2
    assert "the zoo has no network 'nothing'" in capsys.readouterr().err
    assert not out.exists()


def test_the_figures_stand_beside_a_long_target(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "100")
    collecting._show([Gathered("net", "llvm -mattr=" + ",".join(["+avx512f"] * 20), 12, 345)])
    shown = capsys.readouterr().out
    for text in ("networks", "failed networks", "12", "345"):
        assert text in shown
