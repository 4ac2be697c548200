from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest

from tunefleet.core.gpu import Gpu
from tunefleet.errors import InputError

pytestmark = pytest.mark.tvm


@pytest.mark.skipif(os.uname().machine != "x86_64", reason="x86 feature names")
def test_the_native_target_uses_only_what_the_processor_has() -> None:
    from tunefleet.compiler.toolchain.host import check_runs_here, native_target

    check_runs_here(native_target())


@pytest.mark.skipif(os.uname().machine != "x86_64", reason="x86 feature names")
def test_hidden_instructions_are_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """A hypervisor that hides AVX2 of a processor LLVM knows by name."""
    from dataclasses import replace

    from tunefleet.compiler.toolchain import host
    from tunefleet.core.target import CpuTarget
    from tunefleet.hardware.processor import cpu_info

    real = cpu_info()
    poorer = replace(real.facts, flags=real.facts.flags - {"avx2"})
    monkeypatch.setattr(host, "cpu_info", lambda: replace(real, facts=poorer))
    assert "-avx2" in host.native_target().mattr
    with pytest.raises(InputError, match="avx2"):
        host.check_runs_here(CpuTarget("haswell", 1))


@pytest.mark.skipif(os.uname().machine != "x86_64", reason="x86 feature names")
def test_what_llvm_does_not_know_of_this_processor_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    """A hypervisor that gives a new processor the model of an old one."""
    from dataclasses import replace

    from tunefleet.compiler.toolchain import host
    from tunefleet.hardware.processor import X86_FEATURES, cpu_info

    real = cpu_info()
    everything = replace(real.facts, flags=frozenset(X86_FEATURES.values()))
    monkeypatch.setattr(host, "cpu_info", lambda: replace(real, facts=everything))
    target = host.native_target()
    assert "+amx-tile" in target.mattr or "amx-tile" in host.llvm_features(target)
    assert host.codegen_features(target) == sorted(X86_FEATURES)
    assert host.parse_target(str(target)) == target


@pytest.mark.parametrize(
    ("mcpu", "mattr", "added"),
    [
        ("icelake-server", (), ("-prefer-256-bit",)),
        ("icelake-server", ("-avx512f",), ()),
        ("znver4", (), ()),
        ("haswell", (), ()),
    ],
)
def test_all_of_a_vector_register_is_used(
    mcpu: str, mattr: tuple[str, ...], added: tuple[str, ...]
) -> None:
    from tunefleet.compiler.toolchain import host
    from tunefleet.core.target import CpuTarget

    target = host.with_whole_vectors(CpuTarget(mcpu, 1, mattr))
    assert set(target.mattr) == {*mattr, *added}
    assert "prefer-256-bit" not in host.llvm_features(target) or not added


@pytest.mark.parametrize(
    ("text", "cause"),
    [
        ("llvm -mcpu=pentium99", "no processor 'pentium99'"),
        ("llvm -march=x", "cannot read '-march=x'"),
        ("znver3 znver4", "cannot read"),
        ("llvm", "-mcpu is missing"),
        ("llvm -mcpu=haswell -mcpu=nehalem", "duplicate option -mcpu"),
        ("llvm -mcpu=haswell -mattr=avx512f", "'avx512f' in -mattr has no sign; write .avx512f"),
        ("llvm -mcpu=haswell -mattr=+avx2,+avx1024", "no feature .avx1024. of"),
        ("llvm -mcpu=haswell -mattr=-", "no feature '' of"),
        (
            "llvm -mtriple=aarch64-linux-gnu -mcpu=cortex-a99",
            "no processor 'cortex-a99' of aarch64; .* such as cortex-a72",
        ),
        ("llvm -mtriple=aarch64-linux-gnu -mattr=-asimddp", "no feature 'asimddp' of aarch64"),
        (" ", "target is empty"),
        ("llvm -mcpu=haswell -num-cores=0", "-num-cores"),
        ("llvm -mcpu=haswell -num-cores=two", "-num-cores"),
        (f"llvm -mcpu=haswell -num-cores={10**30}", "-num-cores"),
        ("llvm -mtriple=sparc-sun -mcpu=generic", "cannot generate code for 'sparc-sun'"),
        ("llvm -mtriple=aarch64-linux-gnu -mcpu=haswell", "no processor 'haswell' of aarch64"),
        ("cuda/80", "written like sm_80"),
        ("cuda/sm_80 -x=1", "cannot read '-x=1'"),
        ("cuda/sm_80 -max_threads_per_block=0", "-max_threads_per_block"),
        ("cuda/sm_80 -max_threads_per_block=31", "32 threads of a warp"),
        ("cuda/sm_80 -host-mcpu=pentium99", "no processor 'pentium99'"),
    ],
)
def test_a_bad_target_is_refused_in_one_line(text: str, cause: str) -> None:
    from tunefleet.compiler.toolchain.host import parse_target

    with pytest.raises(InputError, match=cause) as caught:
        parse_target(text)
    assert "\n" not in str(caught.value)


def test_more_threads_than_cores_are_refused() -> None:
    from tunefleet.compiler.toolchain.host import check_runs_here, native_target

    with pytest.raises(InputError, match="4096 threads"):
        check_runs_here(native_target(4096))


def test_hyperthreads_are_found_and_unknown_cores_stand_alone(tmp_path: Path) -> None:
    from tunefleet.hardware.cores import physical_cores

    for core, siblings in ((0, "0,4\n"), (4, "0,4\n"), (5, "1-5:4\n")):
        topology = tmp_path / f"cpu{core}" / "topology"
        topology.mkdir(parents=True)
        (topology / "thread_siblings_list").write_text(siblings)
    assert physical_cores({5, 4, 0, 9}, tmp_path) == {0: 0, 4: 0, 5: 5, 9: 9}


def test_the_default_is_a_thread_per_physical_core() -> None:
    from tunefleet.compiler.toolchain.host import native_target
    from tunefleet.hardware.processor import cpu_info, machine_layout

    assert machine_layout().threads == native_target().threads == cpu_info().physical_cores


@pytest.mark.parametrize(
    "text",
    [
        "native",
        "cuda/sm_90",
        "cuda -arch=sm_80 -max_threads_per_block=512 -host-mcpu=haswell -host-num-cores=2",
        "llvm -mtriple=aarch64-linux-gnu -mcpu=cortex-a72 -mattr=+neon,+dotprod -num-cores=4",
    ],
)
def test_a_target_text_reads_back(text: str) -> None:
    from tunefleet.compiler.toolchain.host import parse_target

    target = parse_target(text)
    assert parse_target(str(target)) == target


def test_a_gpus_host_is_this_machine_with_one_thread() -> None:
    from tunefleet.compiler.toolchain.host import native_target, parse_target

    assert parse_target("cuda/sm_80", threads=7).cpu == native_target(1)


def test_code_for_another_architecture_is_refused_here() -> None:
    from tunefleet.compiler.toolchain.host import check_runs_here, instructions, parse_target

    other = "riscv64" if os.uname().machine == "aarch64" else "aarch64"
    target = parse_target(f"llvm -mtriple={other}-linux-gnu")
    assert instructions(target) == (other,)
    with pytest.raises(InputError, match=f"is for {other}, but this machine is"):
        check_runs_here(target)


#: A description like that of a driver.
GPU = Gpu(
    number=0, uuid="GPU-0", name="a GPU", capability=(8, 6), memory_bytes=2**30, multiprocessors=2,
    clock_khz=1000, memory_clock_khz=1000, l2_bytes=2**20, shared_memory_bytes=48 * 2**10,
    threads_per_block=1024, registers_per_block=65536, warp_size=32, driver="13.0",
)  # fmt: skip


@pytest.mark.parametrize(
    ("arch", "refused"), [("sm_80", ""), ("sm_86", ""), ("sm_89", "sm_86"), ("sm_90", "sm_86")]
)
def test_code_for_another_gpu_is_refused(
    arch: str, refused: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tunefleet.compiler.toolchain import gpu
    from tunefleet.compiler.toolchain.host import check_runs_here, parse_target

    monkeypatch.setattr(gpu, "gpus", lambda: (GPU,))
    assert str(parse_target("cuda")).startswith("cuda -arch=sm_86 ")
    if not refused:
        check_runs_here(parse_target(f"cuda/{arch}"))
        return
    with pytest.raises(InputError, match=f"which is {refused}"):
        check_runs_here(parse_target(f"cuda/{arch}"))


def test_without_a_gpu_its_targets_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    from tunefleet.compiler.toolchain import gpu
    from tunefleet.compiler.toolchain.host import check_runs_here, parse_target

    monkeypatch.setattr(gpu, "gpus", tuple)
    for refuse in (
        lambda: parse_target("cuda"),
        lambda: check_runs_here(parse_target("cuda/sm_80")),
    ):
        with pytest.raises(InputError, match="has none") as caught:
            refuse()
        assert "\n" not in str(caught.value)


def test_the_device_identity_is_stable() -> None:
    from tunefleet.hardware.processor import device_identity

    assert device_identity().exact == device_identity().exact
    assert device_identity("mine").exact != device_identity().exact


def test_the_toolchain_of_a_gpu_has_the_version_of_its_compiler(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from tunefleet.compiler.toolchain import host, toolchain_identity
    from tunefleet.core.target import CpuTarget, CudaTarget

    cpu = CpuTarget("generic", 1)
    assert host.toolchain_of(cpu) == toolchain_identity()
    monkeypatch.setattr(host, "nvcc_version", lambda: "13.0.88")
    monkeypatch.setattr(host, "driver_version", lambda: "12.8")
    found = host.toolchain_of(CudaTarget("sm_80", cpu))
    assert (found.cuda, found.driver) == ("13.0.88", "12.8")


def test_a_machine_without_a_driver_has_no_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    from tunefleet.hardware import gpu

    monkeypatch.setattr(gpu, "_driver", lambda: None)
    assert gpu.driver_version() == ""
    assert gpu.gpus() == ()
    with pytest.raises(InputError, match="this machine has no GPU cuda:1; there are: none"):
        gpu.gpu_device("cuda:1")


def test_a_gpu_is_named_by_its_number_or_the_beginning_of_its_uuid(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from tunefleet.hardware import gpu

    two = (replace(GPU, uuid="GPU-aa01"), replace(GPU, number=1, uuid="GPU-aa02"))
    monkeypatch.setattr(gpu, "gpus", lambda: two)
    for name in ("cuda:1", "cuda:GPU-aa02", "cuda:gpu-AA02"):
        assert gpu.gpu_device(name).name == "cuda:1"
    with pytest.raises(InputError, match="cuda:GPU-aa is more than one GPU: cuda:0"):
        gpu.gpu_device("cuda:GPU-aa")
    for name in ("cuda:2", "cuda:", "cuda:aa01"):
        with pytest.raises(InputError, match="this machine has no GPU"):
            gpu.gpu_device(name)
