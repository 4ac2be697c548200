"""How wide the vectors are that LLVM generates code with for a processor."""

from __future__ import annotations

from collections.abc import Collection

_BITS: dict[int, tuple[str, ...]] = {
    128: ("x86-64", "x86-64-v2", "core2", "penryn", "nehalem", "westmere", "silvermont", "goldmont",
          "cortex-a53", "cortex-a57", "cortex-a72", "cortex-a73", "cortex-a76", "neoverse-n1",
          "neoverse-n2", "neoverse-v2", "apple-m1", "apple-m2"),
    256: ("x86-64-v3", "sandybridge", "ivybridge", "haswell", "broadwell", "skylake", "alderlake",
          "core-avx2", "znver1", "znver2", "znver3", "neoverse-v1"),
    512: ("x86-64-v4", "skylake-avx512", "cascadelake", "cooperlake", "icelake-client",
          "icelake-server", "sapphirerapids", "emeraldrapids", "graniterapids", "rocketlake",
          "tigerlake", "znver4", "znver5", "a64fx"),
}  # fmt: skip
_BY_PROCESSOR = {name: bits for bits, names in _BITS.items() for name in names}


def vector_bits(processor: str, features: Collection[str] = ()) -> int | None:
    """Of LLVM's `mcpu` and features (`+avx2`, or an instruction set as of `DeviceIdentity.isa`);
    None where neither tells."""
    names = {name.removeprefix("+") for name in features if not name.startswith("-")}
    told = [_BY_PROCESSOR[processor]] if processor in _BY_PROCESSOR else []
    if any(name.startswith("avx512") for name in names):
        told.append(512)
    elif names & {"avx", "avx2"}:
        told.append(256)
    elif names & {"neon", "asimd", "sse4.2", "sse4_2"}:
        told.append(128)
    return max(told, default=None)
