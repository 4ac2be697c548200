"""PyTorch when a model needs it: it is optional, and slow to import."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from typing import Any

from tunefleet.errors import SetupError


@lru_cache(maxsize=1)
def torch() -> Any:
    """The package. Raises SetupError where it is missing."""
    try:
        import torch as package
    except ImportError as error:
        raise SetupError(
            "neural cost models need PyTorch", cure="install tunefleet[torch]"
        ) from error
    return package


def has_cuda() -> bool:
    """Whether there is a GPU that PyTorch can use. Raises SetupError without PyTorch."""
    return bool(torch().cuda.is_available())


@contextmanager
def one_thread() -> Iterator[None]:
    """One thread for what is inside: models learn beside measurements, and repeat exactly."""
    before = torch().get_num_threads()
    torch().set_num_threads(1)
    try:
        yield
    finally:
        torch().set_num_threads(before)
