from __future__ import annotations

import pytest

from tunefleet.hardware.llvm_names import ARM, X86, architecture, vector_bits


@pytest.mark.parametrize(
    ("expected", "names"),
    [
        (X86, ["znver4"]),
        (X86, ["unheard-of", "-avx512f"]),
        (X86, ["avx512_vnni"]),  # as the kernel calls it
        (ARM, ["neoverse-v1"]),
        (ARM, ["", "generic", "asimddp"]),
        (ARM, ["aarch64", "avx2"]),  # the first that tells
        ("riscv64", ["riscv64"]),
        ("", ["generic"]),
        ("", []),
    ],
)
def test_names_tell_an_architecture(expected: str, names: list[str]) -> None:
    assert expected == architecture(names)


def test_a_processor_and_its_features_tell_the_widest_vectors() -> None:
    assert vector_bits("haswell", ["+avx512f"]) == 512
    assert vector_bits("znver4", ["-avx512f"]) == 512
    assert vector_bits("cortex-a72") == 128
    assert vector_bits("unheard-of") is None
