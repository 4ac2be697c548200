"""TVM's own CUDA runtime on the emulated driver. Each test runs a function of `programs.py` in a
fresh process."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.emulation.fresh import FreshProcesses

pytestmark = [pytest.mark.tvm, pytest.mark.slow]


@pytest.fixture(scope="module")
def processes(emulated_gpu: dict[str, str]) -> Iterator[FreshProcesses]:
    with FreshProcesses(emulated_gpu) as started:
        yield started


def test_a_card_says_that_it_is_emulated(processes: FreshProcesses) -> None:
    assert processes.result("attributes") == {
        "exist": True,
        "name": "emulated GPU",
        "compute": "8.0",
        "warp": 32,
        "threads": 1024,
        "multiprocessors": 1,
        "clock_khz": 1000,
        "l2": 64 << 10,
        "memory": 64 << 20,
        "free": 64 << 20,
    }


def test_there_is_one_card(processes: FreshProcesses) -> None:
    assert processes.result("existing") == [True, False, False]


def test_a_product_is_numpys(processes: FreshProcesses) -> None:
    assert processes.result("product_error", 33, 30, 40) < 1e-5
