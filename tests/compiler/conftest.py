"""A tiny network and its target, prepared once."""

from __future__ import annotations

from typing import Any

import pytest


@pytest.fixture(scope="session")
def target() -> Any:
    from tunefleet.compiler.toolchain.host import native_target

    return native_target(1)


@pytest.fixture(scope="session")
def tiny(target: Any) -> Any:
    """(imported, prepared module, tasks) of zoo:tiny_cnn."""
    from tunefleet.stages.importing import import_network

    return import_network("zoo:tiny_cnn", target)


@pytest.fixture(scope="session")
def conv_task(tiny: Any) -> Any:
    """The task with the most FLOPs."""
    return tiny.tasks[0].task
