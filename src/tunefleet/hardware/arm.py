"""Names and features of Arm processors, whose kernels report numbers instead of names."""

from __future__ import annotations

import re

#: Features that affect the emitted instructions, by the kernel's name: HWCAP (0) or HWCAP2 (1) and
#: the bit in it (arch/arm64/include/uapi/asm/hwcap.h).
_BITS = {
    "asimd": (0, 1), "fphp": (0, 9), "asimdhp": (0, 10), "asimdrdm": (0, 12), "asimddp": (0, 20),
    "asimdfhm": (0, 23), "atomics": (0, 8), "sve": (0, 22), "sve2": (1, 1), "svei8mm": (1, 9),
    "svebf16": (1, 12), "i8mm": (1, 13), "bf16": (1, 14), "sme": (1, 23), "sme2": (1, 37),
}  # fmt: skip
FEATURES = tuple(sorted(_BITS))

#: Common processors by implementer and part (Arm's manuals, register MIDR_EL1).
_PARTS = {
    (0x41, 0xD03): "Cortex-A53", (0x41, 0xD04): "Cortex-A35", (0x41, 0xD05): "Cortex-A55",
    (0x41, 0xD07): "Cortex-A57", (0x41, 0xD08): "Cortex-A72", (0x41, 0xD09): "Cortex-A73",
    (0x41, 0xD0A): "Cortex-A75", (0x41, 0xD0B): "Cortex-A76", (0x41, 0xD0C): "Neoverse-N1",
    (0x41, 0xD0D): "Cortex-A77", (0x41, 0xD40): "Neoverse-V1", (0x41, 0xD41): "Cortex-A78",
    (0x41, 0xD44): "Cortex-X1", (0x41, 0xD46): "Cortex-A510", (0x41, 0xD47): "Cortex-A710",
    (0x41, 0xD49): "Neoverse-N2", (0x41, 0xD4F): "Neoverse-V2", (0x41, 0xD42): "Cortex-A78AE",
    (0x4E, 0x004): "Carmel", (0x51, 0x001): "Oryon", (0x61, 0x022): "Apple M1",
    (0xC0, 0xAC3): "Ampere-1",
}  # fmt: skip


def features_of_hwcaps(hwcap: int, hwcap2: int) -> frozenset[str]:
    """The features in the hardware capability words of a process."""
    words = (hwcap, hwcap2)
    return frozenset(name for name, (word, bit) in _BITS.items() if words[word] >> bit & 1)


def part_name(cpuinfo: str) -> str:
    """`Cortex-A53 and Cortex-A72` from a text of /proc/cpuinfo; "" if it names no part.

    Boards often have cores of two kinds.
    """
    cores = re.findall(
        r"^CPU implementer\s*:\s*(0x[0-9a-fA-F]+)$.*?^CPU part\s*:\s*(0x[0-9a-fA-F]+)$",
        cpuinfo,
        re.M | re.S,
    )
    kinds = sorted({(int(implementer, 16), int(part, 16)) for implementer, part in cores})
    return " and ".join(
        _PARTS.get(kind, f"implementer {kind[0]:#04x} part {kind[1]:#05x}") for kind in kinds
    )
