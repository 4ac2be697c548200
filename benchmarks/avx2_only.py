"""Processes that see a processor with AVX2 alone, on one with AVX-512 (`avx2_only.c` has how)."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

#: The target of modules for such a processor.
TARGET = "llvm -mcpu=core-avx2"
_VARIABLE, _LIBRARY = "LD_AUDIT", "avx2_only.so"


def environment(folder: Path) -> dict[str, str]:
    """What a program needs in its environment to see AVX2 alone; `folder` gets the library."""
    source = Path(__file__).with_suffix(".c")
    library = (folder / _LIBRARY).resolve()
    command = ["cc", "-O2", "-shared", "-fPIC", "-o", str(library), str(source)]
    subprocess.run(command, check=True)
    return {_VARIABLE: str(library)}


def is_set() -> bool:
    """Whether this program sees AVX2 alone."""
    return os.environ.get(_VARIABLE, "").endswith(_LIBRARY)
