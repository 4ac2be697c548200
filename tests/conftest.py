"""Fixtures shared by all tests."""

from __future__ import annotations

import importlib.util

import pytest
from hypothesis import settings

# A busy machine is no error of the code: examples have no time limit of their own.
settings.register_profile("any machine", deadline=None)
settings.load_profile("any machine")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if importlib.util.find_spec("tvm") is None:
        skip = pytest.mark.skip(reason="apache-tvm is not installed")
        for item in items:
            if "tvm" in item.keywords:
                item.add_marker(skip)


@pytest.fixture(autouse=True)
def _own_home(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """No test reads or writes the user's own records."""
    monkeypatch.setenv("HOME", str(tmp_path_factory.mktemp("home")))
    monkeypatch.delenv("TUNEFLEET_HOME", raising=False)
