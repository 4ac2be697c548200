from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.emulation.fresh import FreshProcesses


@pytest.fixture(scope="session")
def processes(emulated_gpu: dict[str, str]) -> Iterator[FreshProcesses]:
    """Processes with an emulated GPU."""
    with FreshProcesses(emulated_gpu) as started:
        yield started
