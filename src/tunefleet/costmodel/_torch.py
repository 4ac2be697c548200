"""Lazy import of PyTorch, which is optional and slow to import."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from typing import Any

from tunefleet.errors import SetupError


@lru_cache(maxsize=1)
def torch() -> Any:
    """The package. Raises SetupError if it is not installed."""
    try:
        import torch as package
    except ImportError as error:
        raise SetupError(
            "neural cost models need PyTorch", cure="install tunefleet[torch]"
        ) from error
    return package


def has_cuda() -> bool:
    """Whether PyTorch can use a GPU. Raises SetupError without PyTorch."""
    return bool(torch().cuda.is_available())


@contextmanager
def one_thread() -> Iterator[None]:
    """Run PyTorch in one thread: training must not disturb measurements, and is reproducible."""
    before = torch().get_num_threads()
    torch().set_num_threads(1)
    try:
        yield
    finally:
        torch().set_num_threads(before)
