"""Targets of devices elsewhere, from what they say of themselves."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tunefleet.compiler.toolchain.of_device import device_target
from tunefleet.core.device import DeviceDescription
from tunefleet.core.identity import DeviceIdentity
from tunefleet.core.target import CpuTarget
from tunefleet.errors import InputError

pytestmark = pytest.mark.tvm

HASWELL = ("avx", "avx2", "bmi1", "bmi2", "f16c", "fma", "sse4_1", "sse4_2")


def described(machine: str, name: str, isa: tuple[str, ...], cores: int = 4) -> DeviceDescription:
    identity = DeviceIdentity("cpu", name, isa, cores, (), 8)
    return DeviceDescription(identity, machine, tuple(range(cores)))


BOARD = described("aarch64", "Neoverse-N1", ("asimd", "asimddp", "asimdhp"))


def test_a_known_arm_processor_has_its_name_and_its_features() -> None:
    assert device_target("native", BOARD, None) == CpuTarget(
        "neoverse-n1", 4, ("+dotprod", "+fullfp16", "+neon"), "aarch64-linux-gnu"
    )


def test_an_unknown_arm_processor_is_a_generic_one() -> None:
    target = device_target("cpu", described("aarch64", "my board", ("asimd",)), 2)
    assert target == CpuTarget("generic", 2, ("+neon",), "aarch64-linux-gnu")


@pytest.mark.parametrize(
    ("isa", "mcpu", "more"),
    [
        (("sse4_1", "sse4_2"), "x86-64-v2", ()),
        ((*HASWELL, "avx_vnni"), "x86-64-v3", ("+avxvnni",)),
        (("ssse3",), "x86-64", ()),
    ],
)
def test_another_x86_processor_gets_what_it_has(
    isa: tuple[str, ...], mcpu: str, more: tuple[str, ...]
) -> None:
    target = device_target("native", described("x86_64", "Somebody's", isa), 1)
    assert isinstance(target, CpuTarget)
    assert (target.mcpu, target.mattr) == (mcpu, more)


def test_a_machine_like_this_one_has_its_target() -> None:
    from tunefleet.compiler.toolchain.host import native_target
    from tunefleet.hardware.processor import describe_machine

    here = describe_machine()
    assert device_target("native", here, 1) == native_target(1)


@pytest.mark.parametrize(
    ("text", "threads", "said"),
    [
        ("native", 5, "5 threads are wanted, Neoverse-N1 gives 4 cores"),
        ("haswell", None, "is for x86_64, and Neoverse-N1 is aarch64"),
        ("cuda/sm_80", None, "needs a GPU"),
    ],
)
def test_what_does_not_run_there_is_refused(text: str, threads: int | None, said: str) -> None:
    with pytest.raises(InputError, match=said):
        device_target(text, BOARD, threads)


def test_instructions_that_it_lacks_are_named() -> None:
    other = described("x86_64", "Old one", ("sse4_1", "sse4_2"))
    with pytest.raises(InputError, match=r"uses avx.*, which Old one does not have"):
        device_target("haswell", other, None)


def test_an_architecture_that_nobody_knows_has_to_be_named() -> None:
    with pytest.raises(InputError, match="name it: --target 'llvm -mtriple=riscv64-linux-gnu"):
        device_target("native", replace(BOARD, machine="riscv64"), None)
