"""TVM's own CUDA runtime on the emulated driver. Each test runs a function of `programs.py` in a
fresh process."""

from __future__ import annotations

import signal

import pytest

from tests.devices.servers import served
from tests.emulation.fresh import FreshProcesses

pytestmark = [pytest.mark.tvm, pytest.mark.slow]

ILLEGAL = "cudaErrorIllegalAddress (700)"


def test_a_card_says_that_it_is_emulated(processes: FreshProcesses) -> None:
    assert processes.result("programs.attributes") == {
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


@pytest.mark.parametrize(
    ("visible", "expected"),
    [
        ("0,1", [True, True, False]),
        ("1", [True, False, False]),
        ("GPU-656d756c", [True, False, False]),
        ("5,0", [False, False, False]),
        ("", [False, False, False]),
    ],
)
def test_cards_are_those_that_are_visible(
    visible: str, expected: list[bool], processes: FreshProcesses
) -> None:
    environment = {"EMULATED_GPU_COUNT": "2", "CUDA_VISIBLE_DEVICES": visible}
    assert expected == processes.result("programs.existing", environment=environment)


def test_a_product_is_numpys(processes: FreshProcesses) -> None:
    assert processes.result("programs.product_error", 33, 30, 40) < 1e-5


def test_a_library_that_is_built_beside_a_gpu_holds_machine_code(
    processes: FreshProcesses,
) -> None:
    assert processes.result("programs.library_has_source") is False


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_floats_of_16_bits_are_rounded_once_by_each_operation(
    dtype: str, processes: FreshProcesses
) -> None:
    assert processes.result("programs.small_float_error", dtype) == 0.0


def test_time_is_taken_by_events(processes: FreshProcesses) -> None:
    seconds = processes.result("programs.timed_product")
    assert len(seconds) == 3
    assert min(seconds) > 0


def test_a_full_memory_is_an_error_that_passes(processes: FreshProcesses) -> None:
    error, result = processes.result("programs.filled_memory")
    assert "cudaErrorMemoryAllocation (2)" in error
    assert result == [62.0, 63.0]


def test_a_card_has_the_memory_that_is_asked_for(processes: FreshProcesses) -> None:
    attributes = processes.result(
        "programs.attributes", environment={"EMULATED_GPU_MEMORY": str(3 << 20)}
    )
    assert attributes["memory"] == 3 << 20


@pytest.mark.parametrize(
    ("kernel", "cause"), [("outside", "out of bounds"), ("racing", "two threads write")]
)
def test_what_a_kernel_does_wrong_is_told_when_it_is_waited_for_and_ever_after(
    kernel: str, cause: str, processes: FreshProcesses
) -> None:
    errors = processes.result("programs.errors_after", kernel)
    assert len(errors) == 4
    for error in errors:
        assert ILLEGAL in error
        assert cause in error
    assert processes.result("programs.kernel_result", "fair") == [62.0, 63.0]


def test_a_tensor_that_is_freed_after_an_illegal_address_ends_the_process(
    processes: FreshProcesses,
) -> None:
    """By TVM, whose destructors raise errors."""
    assert processes.run("programs.freed_after", "outside").status == signal.SIGABRT


def test_a_kernel_that_hangs_is_ended_with_its_process(processes: FreshProcesses) -> None:
    assert processes.run("programs.kernel_result", "endless", limit_s=3.0).status is None


def test_code_of_the_host_cannot_touch_memory_of_the_gpu(processes: FreshProcesses) -> None:
    assert processes.run("programs.touched_by_the_host").status == signal.SIGSEGV


def test_blocks_have_the_shared_memory_of_a_gpu(processes: FreshProcesses) -> None:
    assert processes.result("programs.shared_result", 48, "shared") == [1.0, 0.0]
    assert "too much shared data" in processes.run("programs.shared_result", 50, "shared").error
    assert processes.result("programs.shared_result", 96, "shared.dyn") == [1.0, 0.0]
    assert "shared memory size" in processes.run("programs.shared_result", 102, "shared.dyn").error


def test_a_block_has_no_more_threads_than_a_gpu_allows(processes: FreshProcesses) -> None:
    error = processes.run("programs.kernel_result", "fair", 2048).error
    assert "CUDA_ERROR_INVALID_VALUE" in error


@pytest.mark.parametrize("graphs", [False, True], ids=["kernels", "graphs"])
def test_a_network_computes_what_it_does_on_the_cpu(
    graphs: bool, processes: FreshProcesses
) -> None:
    assert processes.result("programs.network_error", graphs) < 1e-5


def test_tvms_server_offers_the_card(
    processes: FreshProcesses, emulated_gpu: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in emulated_gpu.items():
        monkeypatch.setenv(name, value)
    with served() as server:
        name, error = processes.result("programs.remote_product", server.port)
    assert name == "emulated GPU"
    assert error < 1e-5
