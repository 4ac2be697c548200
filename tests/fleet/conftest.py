from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.fleet.jobs import SETTINGS, SHARED


@pytest.fixture(scope="session")
def tiny() -> Any:
    from tunefleet.compiler.host import native_target
    from tunefleet.fleet.network_work import import_network

    return import_network("zoo:tiny_cnn", native_target(1))


@pytest.fixture(scope="session")
def machine() -> Iterator[Any]:
    from tunefleet.compiler.host import native_target
    from tunefleet.fleet.machine import Machine

    with Machine(native_target(1), SETTINGS, SHARED) as made:
        yield made
