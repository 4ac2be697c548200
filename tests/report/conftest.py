"""Makes the made-up results importable from the tests beside them."""

from __future__ import annotations

from typing import Any

import pytest

from .results import a_result


@pytest.fixture
def result() -> dict[str, Any]:
    return a_result()
