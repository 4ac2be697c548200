"""`tunefleet store` as a user meets it."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import pytest

from tests.store import values as v
from tunefleet.cli.app import run
from tunefleet.core.trial import Trial
from tunefleet.store import open_store, store_path


@pytest.fixture
def home(tmp_path: Path) -> Path:
    with closing(open_store(tmp_path)) as store:
        v.open_with_task(store, "job")
        v.commit_measured(store, {"a": 1e-3, "b": 2e-3})
    return tmp_path


def _trials(home: Path) -> list[Trial]:
    with closing(open_store(home)) as store:
        return store.records.trials("job")


def test_a_store_is_checked_copied_and_repaired(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = store_path(home)
    assert run(["store", "check", "--home", str(home)]) == 0
    assert capsys.readouterr().out == f"{path} is whole\n"
    copy = home / "copy.sqlite"
    assert run(["store", "backup", "-o", str(copy), "--home", str(home)]) == 0
    before, whole = _trials(home), path.read_bytes()
    path.write_bytes(whole[: len(whole) // 2])
    assert run(["store", "check", "--home", str(home)]) == 3
    assert "save what can be read: tunefleet store repair" in capsys.readouterr().err
    assert run(["store", "repair", "--home", str(home)]) == 0
    assert "rows are lost; the damaged file is" in capsys.readouterr().out
    assert run(["store", "check", "--home", str(home)]) == 0
    copy.replace(path)
    assert run(["store", "check", "--home", str(home)]) == 0
    assert _trials(home) == before


@pytest.mark.parametrize("command", [["check"], ["repair"], ["backup", "-o", "copy.sqlite"]])
def test_a_home_without_a_store_is_told(
    command: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["store", *command, "--home", str(tmp_path)]) == 2
    assert "there is no store at" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())
