from __future__ import annotations

import os
from pathlib import Path

import pytest

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

    real = host.cpu_info()
    monkeypatch.setattr(host, "cpu_info", lambda: replace(real, flags=real.flags - {"avx2"}))
    assert "-avx2" in host.native_target().mattr
    with pytest.raises(InputError, match="avx2"):
        host.check_runs_here(host.Target("haswell", 1))


@pytest.mark.parametrize(
    ("text", "cause"),
    [
        ("llvm -mcpu=pentium99", "no processor 'pentium99'"),
        ("llvm -march=x", "cannot read '-march=x'"),
        ("znver3 znver4", "cannot read"),
        ("llvm", "no processor ''"),
        (" ", "target is empty"),
        ("llvm -mcpu=haswell -num-cores=0", "-num-cores"),
        ("llvm -mcpu=haswell -num-cores=two", "-num-cores"),
        (f"llvm -mcpu=haswell -num-cores={10**30}", "-num-cores"),
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
    from tunefleet.hardware.processor import physical_cores

    for core, siblings in ((0, "0,4\n"), (4, "0,4\n"), (5, "1-5:4\n")):
        topology = tmp_path / f"cpu{core}" / "topology"
        topology.mkdir(parents=True)
        (topology / "thread_siblings_list").write_text(siblings)
    assert physical_cores({5, 4, 0, 9}, tmp_path) == {0: 0, 4: 0, 5: 5, 9: 9}


def test_the_default_is_a_thread_per_physical_core() -> None:
    from tunefleet.compiler.toolchain.host import native_target
    from tunefleet.hardware.processor import cpu_info, machine_layout

    assert machine_layout().threads == native_target().threads == cpu_info().physical_cores


def test_a_target_text_reads_back() -> None:
    from tunefleet.compiler.toolchain.host import native_target, parse_target

    target = native_target()
    assert parse_target(str(target)) == target


def test_the_device_identity_is_stable() -> None:
    from tunefleet.hardware.processor import device_identity

    assert device_identity().exact == device_identity().exact
    assert device_identity("mine").exact != device_identity().exact
