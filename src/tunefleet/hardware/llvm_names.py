"""Maps LLVM's names of processors and features to the architecture and the vector width of the
generated code."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from tunefleet.hardware.arm import FEATURES as ARM_FEATURES
from tunefleet.hardware.processor import X86_FEATURES

#: Architectures: programs that are fast on one of their processors are often fast on the others.
X86, ARM, GPU = "x86", "arm", "gpu"

_PROCESSORS: dict[str, dict[int, tuple[str, ...]]] = {
    X86: {
        128: ("x86-64", "x86-64-v2", "core2", "penryn", "nehalem", "westmere", "silvermont",
              "goldmont"),
        256: ("x86-64-v3", "sandybridge", "ivybridge", "haswell", "broadwell", "skylake",
              "alderlake", "core-avx2", "znver1", "znver2", "znver3"),
        512: ("x86-64-v4", "skylake-avx512", "cascadelake", "cooperlake", "icelake-client",
              "icelake-server", "sapphirerapids", "emeraldrapids", "graniterapids", "rocketlake",
              "tigerlake", "znver4", "znver5"),
    },
    ARM: {
        128: ("cortex-a53", "cortex-a57", "cortex-a72", "cortex-a73", "cortex-a76", "neoverse-n1",
              "neoverse-n2", "neoverse-v2", "apple-m1", "apple-m2"),
        256: ("neoverse-v1",),
        512: ("a64fx",),
    },
}  # fmt: skip
_BITS = {
    name: bits
    for of_bits in _PROCESSORS.values()
    for bits, names in of_bits.items()
    for name in names
}
#: By processors, by features as LLVM and the kernel call them, by what machines call themselves,
#: and by TVM's key of targets for ARM.
_ARCHITECTURES = {
    **dict.fromkeys((*X86_FEATURES, *X86_FEATURES.values(), "x86_64", "i686"), X86),
    **dict.fromkeys(
        (*ARM_FEATURES, "neon", "dotprod", "aarch64", "arm64", "armv7l", "arm_cpu"), ARM
    ),
    "riscv64": "riscv64",
    **{
        name: architecture
        for architecture, of_bits in _PROCESSORS.items()
        for names in of_bits.values()
        for name in names
    },
}


def architecture(names: Iterable[str]) -> str:
    """The architecture of the first known name, out of processors, features with or without a sign,
    and machine names; "" if all are unknown."""
    known = (_ARCHITECTURES.get(name.lstrip("+-"), "") for name in names)
    return next(filter(None, known), "")


def vector_bits(processor: str, features: Collection[str] = ()) -> int | None:
    """The vector width for LLVM's `mcpu` and features (`+avx2`, or an instruction set as in
    `DeviceIdentity.isa`); None if unknown."""
    names = {name.removeprefix("+") for name in features if not name.startswith("-")}
    widths = [_BITS[processor]] if processor in _BITS else []
    if any(name.startswith("avx512") for name in names):
        widths.append(512)
    elif names & {"avx", "avx2"}:
        widths.append(256)
    elif names & {"neon", "asimd", "sse4.2", "sse4_2"}:
        widths.append(128)
    return max(widths, default=None)
