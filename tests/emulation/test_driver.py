"""The emulated driver and compiler themselves. Each test runs a function of `calls.py` in a fresh
process."""

from __future__ import annotations

import pytest

from tests.emulation.fresh import FreshProcesses

pytestmark = [pytest.mark.tvm, pytest.mark.slow]

NOT_INITIALIZED, INVALID_IMAGE, NO_BINARY, ILLEGAL_ADDRESS = 3, 200, 209, 700
CAPTURE_UNSUPPORTED, CAPTURE_INVALIDATED = 900, 901


def test_the_driver_is_initialized_first(processes: FreshProcesses) -> None:
    assert processes.result("calls.before_initialization") == [NOT_INITIALIZED, 0, 0]


def test_cards_have_names_of_their_own(processes: FreshProcesses) -> None:
    environment = {"EMULATED_GPU_COUNT": "2", "CUDA_VISIBLE_DEVICES": "0,1"}
    assert len(set(processes.result("calls.identifiers", environment=environment))) == 2
    assert processes.result("calls.names") == ["emulated GPU"] * 2


def test_a_child_of_a_process_with_cuda_has_none(processes: FreshProcesses) -> None:
    assert processes.result("calls.after_a_fork") == NOT_INITIALIZED


def test_a_stream_that_records_is_not_waited_for(processes: FreshProcesses) -> None:
    codes = processes.result("calls.synchronized_capture")
    assert codes == [CAPTURE_UNSUPPORTED, CAPTURE_INVALIDATED]


@pytest.mark.parametrize(
    ("arch", "code"),
    [("sm_80", 0), ("sm_90", NO_BINARY), ("sm_75", NO_BINARY), ("", INVALID_IMAGE)],
)
def test_code_for_other_cards_is_not_loaded(
    arch: str, code: int, processes: FreshProcesses
) -> None:
    assert code == processes.result("calls.loading_code", arch)


@pytest.mark.parametrize(
    ("body", "offset", "code"),
    [
        ("x[threadIdx.x + 32] = 1;", 0, 0),
        ("x[threadIdx.x + 33] = 1;", 0, ILLEGAL_ADDRESS),
        ("x[threadIdx.x + 32] = 1;", 4, ILLEGAL_ADDRESS),
        ("x[(int)threadIdx.x - 1] = 1;", 4, ILLEGAL_ADDRESS),
        ("*(float4*)(x + threadIdx.x * 2) = make_float4(0, 0, 0, 0);", 0, ILLEGAL_ADDRESS),
        ("if (threadIdx.x % 8 == 0) *(float4*)(x + threadIdx.x) = make_float4(0, 0, 0, 0);", 0, 0),
        ("x[threadIdx.x] = 1; x[63] = x[(threadIdx.x + 1) % 32];", 0, ILLEGAL_ADDRESS),
        ("if (threadIdx.x < 16) __syncthreads();", 0, ILLEGAL_ADDRESS),
        ("for (int i = 0; i < 3; ++i) { __shared__ alignas(64) float kept[32]; "
         "kept[threadIdx.x] = i; x[threadIdx.x] = kept[threadIdx.x]; }", 0, 0),
        ("__syncthreads(); x[threadIdx.x] = 1; __syncthreads(); x[32 + threadIdx.x] = "
         "x[(threadIdx.x + 1) % 32];", 0, 0),
    ],
)  # fmt: skip
def test_kernels_keep_to_the_rules(
    body: str, offset: int, code: int, processes: FreshProcesses
) -> None:
    assert code == processes.result("calls.kernel_code", body, offset)
