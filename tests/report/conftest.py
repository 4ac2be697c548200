"""Makes the made-up results importable from the tests beside them."""

from __future__ import annotations

import pytest

from tunefleet.core.result import RunResult

from .results import a_run


@pytest.fixture
def result() -> RunResult:
    return a_run()
