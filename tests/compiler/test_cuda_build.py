"""Code for GPUs without a GPU, and for CPUs of another architecture."""

from __future__ import annotations

import os
import shutil
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tunefleet.core.trial import Built, Failure, FailureKind
from tunefleet.errors import SetupError

pytestmark = pytest.mark.tvm

AARCH64, X86_64 = 0xB7, 0x3E


def machine_field(path: str) -> int:
    """Of an ELF file: which architecture its code is for."""
    head = Path(path).read_bytes()[:20]
    assert head.startswith(b"\x7fELF")
    return int(struct.unpack_from("<H", head, 18)[0])


def candidate(program: str, target: Any, folder: Path) -> Built | Failure:
    from tunefleet.compiler.code.build import build_candidate
    from tunefleet.compiler.space.opening import task_space

    decisions = task_space(program, target).decisions
    (trace,) = decisions.traces(decisions.sample(1, np.random.default_rng(0)))
    return build_candidate(program, target, "x", trace, str(folder))


def need_nvcc() -> None:
    from tunefleet.compiler.toolchain.nvcc import find_nvcc

    if find_nvcc() is None:
        pytest.skip("no nvcc")


def packed_modules(path: str) -> list[bytes]:
    """The modules of kind CUDA that a library brings along, as TVM's loader is given them."""
    import tvm_ffi

    from tunefleet.compiler.toolchain import load_tvm

    given: list[bytes] = []

    def load(data: bytes) -> None:
        given.append(bytes(data))
        raise RuntimeError("there is no GPU in a test")

    tvm_ffi.register_global_func("ffi.Module.load_from_bytes.cuda", load, override=True)
    try:
        with pytest.raises(RuntimeError, match="no GPU in a test"):
            load_tvm().runtime.load_module(path)
    finally:
        tvm_ffi.registry.remove_global_func("ffi.Module.load_from_bytes.cuda")
    return given


def test_a_candidate_for_a_gpu_is_built_to_machine_code(conv_task: Any, tmp_path: Path) -> None:
    from tunefleet.compiler.toolchain import load_tvm
    from tunefleet.compiler.toolchain.host import parse_target

    need_nvcc()
    if load_tvm().cuda(0).exist:
        pytest.skip("where a GPU is, TVM's own loader is in use")
    built = candidate(conv_task.program, parse_target("cuda/sm_80"), tmp_path)
    assert isinstance(built, Built)
    (module,) = packed_modules(built.path)
    assert module.startswith(struct.pack("<Q", 5) + b"cubin")
    assert b"\x7fELF" in module
    assert b"__global__" not in module
    assert sorted(path.suffix for path in tmp_path.iterdir()) == [".o", ".so"]


@pytest.mark.parametrize("text", ["cuda/sm_80", "llvm -mtriple=aarch64-linux-gnu -mcpu=cortex-a72"])
def test_a_network_is_compiled_for_another_device(text: str, tmp_path: Path) -> None:
    """With plain schedules; it takes the device to run it."""
    from tunefleet.compiler.code.executable import compile_network, save_network
    from tunefleet.compiler.toolchain.host import is_foreign, machine_of, parse_target
    from tunefleet.stages.importing import import_network

    target = parse_target(text)
    if is_foreign(target) and shutil.which(f"{machine_of(target)}-linux-gnu-gcc") is None:
        pytest.skip("no cross compiler")
    if target.kind == "cuda":
        need_nvcc()
    network = compile_network(import_network("zoo:tiny_cnn", target).module, target, {})
    save_network(network, tmp_path / "net.so")
    if target.kind == "cuda":
        assert b"__global__" not in (tmp_path / "net.so").read_bytes()
    elif is_foreign(target):
        assert machine_field(str(tmp_path / "net.so")) == AARCH64


@pytest.mark.parametrize(("dtype", "name"), [("float32", "fmaf"), ("float64", "fma")])
def test_a_product_and_sum_that_are_rounded_once_have_a_name_in_cuda(dtype: str, name: str) -> None:
    """As 8-bit networks round."""
    from tunefleet.compiler.code.build import lowered
    from tunefleet.compiler.code.device_code import device_sources
    from tunefleet.compiler.space.spaces import plainly_scheduled
    from tunefleet.compiler.toolchain import load_tvm
    from tunefleet.compiler.toolchain.host import parse_target

    tvm, target = load_tvm(), parse_target("cuda/sm_80")
    x = tvm.te.placeholder((64,), dtype, "x")
    y = tvm.te.compute((64,), lambda i: tvm.tirx.op.fma(x[i], x[i], x[i]), name="y")
    function = tvm.te.create_prim_func([x, y]).with_attr("global_symbol", "main")
    module = plainly_scheduled(tvm.IRModule({"main": function}), target)
    (source,) = device_sources(lowered(module, target))
    assert f"{name}(" in source


def test_nvcc_names_the_error_of_what_it_refuses() -> None:
    from tunefleet.compiler.toolchain.nvcc import CudaError, compile_cubin, nvcc_version

    need_nvcc()
    with pytest.raises(CudaError, match='error: identifier "unheard" is undefined') as caught:
        compile_cubin("int x = unheard;", "sm_80")
    assert "\n" not in str(caught.value)
    assert nvcc_version().count(".") == 2


def test_what_nvcc_refuses_is_a_failed_trial(
    conv_task: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tunefleet.compiler.code import device_code
    from tunefleet.compiler.toolchain.host import parse_target
    from tunefleet.compiler.toolchain.nvcc import CudaError

    def refuse(source: str, arch: str) -> bytes:
        raise CudaError("error: too much shared data")

    monkeypatch.setattr(device_code, "compile_cubin", refuse)
    failed = candidate(conv_task.program, parse_target("cuda/sm_80"), tmp_path)
    assert failed == Failure(FailureKind.BUILD_ERROR, "error: too much shared data")


def test_without_nvcc_it_is_said_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    from tunefleet.compiler.toolchain import nvcc

    monkeypatch.setattr(nvcc, "find_nvcc", lambda: None)
    with pytest.raises(SetupError, match=r"tunefleet\[cuda\]"):
        nvcc.compile_cubin("", "sm_80")


@pytest.mark.skipif(os.uname().machine != "x86_64", reason="a cross compiler from x86")
def test_a_candidate_for_arm_is_linked_for_arm(conv_task: Any, tmp_path: Path) -> None:
    from tunefleet.compiler.toolchain.host import parse_target

    text = "llvm -mtriple=aarch64-linux-gnu -mcpu=cortex-a72 -mattr=+neon"
    target = parse_target(text, threads=4)
    if shutil.which("aarch64-linux-gnu-gcc") is None:
        pytest.skip("no gcc-aarch64-linux-gnu")
    built = candidate(conv_task.program, target, tmp_path)
    assert isinstance(built, Built)
    assert machine_field(built.path) == AARCH64


def test_without_a_cross_linker_its_package_is_named(
    conv_task: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tunefleet.compiler.toolchain.host import parse_target

    machine, package = (
        ("riscv64", "gcc-riscv64-linux-gnu")
        if os.uname().machine == "aarch64"
        else ("aarch64", "gcc-aarch64-linux-gnu")
    )
    monkeypatch.setattr("shutil.which", lambda name: None)
    with pytest.raises(SetupError, match=package):
        candidate(conv_task.program, parse_target(f"llvm -mtriple={machine}-linux-gnu"), tmp_path)


def test_code_for_this_machine_is_linked_as_ever(
    conv_task: Any, target: Any, tmp_path: Path
) -> None:
    built = candidate(conv_task.program, target, tmp_path)
    assert isinstance(built, Built)
    if os.uname().machine == "x86_64":
        assert machine_field(built.path) == X86_64
