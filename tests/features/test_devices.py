from __future__ import annotations

from dataclasses import replace

import pytest

from tunefleet.core.identity import DeviceIdentity
from tunefleet.core.target import CpuTarget, CudaTarget
from tunefleet.features.devices import Place

MACHINE = DeviceIdentity(
    "cpu", "Made up", ("avx2", "avx512f"), 4, (("L1", 32 * 1024), ("L2", 1 << 20)), 8
)
PEAK, BANDWIDTH, USED, CLOCK, BITS, L1, L2, L3, SHARED, UNITS = range(1, 11)


def values(place: Place) -> list[float]:
    """Not as logarithms."""
    return [round(2**number - 1, 3) for number in place.numbers()]


def test_a_gpu_is_looked_up() -> None:
    found = values(Place(("v100",), gpu=True))
    assert (found[USED], found[UNITS], found[SHARED]) == (80, 80, 96)


@pytest.mark.parametrize("target", ["cuda -arch=sm_70", '{"kind":"cuda"}'])
def test_a_gpu_that_is_not_known_is_still_one(target: str) -> None:
    assert Place.of_record("", target, {}).numbers() == (1.0, *[0.0] * 10)


def test_a_job_on_a_gpu_is_told_of_the_gpu_and_not_of_its_host() -> None:
    target = CudaTarget("sm_70", CpuTarget("skylake-avx512", 1))
    place = Place.of_job(target, replace(MACHINE, kind="cuda", key="v100"))
    assert place.numbers() == Place(("v100",), gpu=True).numbers()


def test_an_unknown_cpu_tells_of_itself() -> None:
    found = values(Place.of_job(CpuTarget("skylake-avx512", 2), MACHINE))
    assert [found[i] for i in (BITS, USED, UNITS, L1, L2, L3)] == [512, 2, 4, 32, 1024, 0]
    assert found[PEAK] == pytest.approx(2 * 3.0 * 16 * 2 * 2)


def test_code_for_older_processors_has_narrower_vectors() -> None:
    widths = [
        values(Place.of_job(CpuTarget(name, 1), MACHINE))[BITS]
        for name in ("nehalem", "haswell", "znver4", "unheard-of")
    ]
    assert widths == [128, 256, 512, 512]


def test_a_known_cpu_has_the_share_of_its_peak_that_is_used() -> None:
    known = replace(MACHINE, key="epyc-7452")
    whole, half = (
        values(Place.of_job(CpuTarget("znver2", threads), known))[PEAK] for threads in (32, 16)
    )
    assert half == pytest.approx(whole / 2, rel=1e-3)
    narrow = values(Place.of_job(CpuTarget("nehalem", 32), known))[PEAK]
    assert narrow == pytest.approx(whole / 2, rel=1e-3)


@pytest.mark.parametrize(
    "target",
    [
        '{"kind":"llvm","mcpu":"haswell","num-cores":2,"mattr":["+avx2"]}',
        "llvm -keys=cpu -mcpu=haswell -num-cores=2 -mattr=+avx2",
    ],
)
def test_a_record_and_a_job_are_told_alike(target: str) -> None:
    job = Place.of_job(CpuTarget("haswell", 2, ("+avx2",)), MACHINE)
    record = Place.of_record("Made up", target, {"device": MACHINE.to_json()})
    assert job.numbers() == record.numbers()


@pytest.mark.parametrize(
    ("expected", "device", "target"),
    [
        ("x86", "", '{"kind":"llvm","mcpu":"haswell"}'),
        ("arm", "", "llvm -keys=arm_cpu,cpu -device=arm_cpu"),
        ("arm", "", "llvm -mtriple=aarch64-linux-gnu -mcpu=generic"),
        ("arm", "a72", "llvm"),  # as the device table says
        ("gpu", "", "cuda -arch=sm_70"),
        ("gpu", "v100", ""),
        ("", "nobody's", "llvm"),
    ],
)
def test_a_record_tells_its_architecture(expected: str, device: str, target: str) -> None:
    assert Place.of_record(device, target, {}).architecture == expected


def test_a_job_tells_the_architecture_of_its_device() -> None:
    unknown = CpuTarget("unheard-of", 1)
    assert Place.of_job(unknown, MACHINE).architecture == "x86"
    assert Place.of_job(unknown, replace(MACHINE, isa=("asimd",))).architecture == "arm"
    board = CpuTarget("generic", 1, mtriple="aarch64-linux-gnu")
    assert Place.of_job(board, MACHINE).architecture == "arm"
    assert Place.of_job(CudaTarget("sm_70", unknown), MACHINE).architecture == "gpu"


@pytest.mark.parametrize("target", ["", "[]", "[" * 9999, '{"kind":[],"mattr":1}', "llvm -x -y="])
@pytest.mark.parametrize("device", [{}, {"device": 1}, {"device": {"cores": 0}}])
def test_nonsense_says_nothing(target: str, device: dict[str, object]) -> None:
    assert sum(Place.of_record("", target, device).numbers()) == 0
