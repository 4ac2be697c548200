"""Processes that have an emulated GPU.

    environment = emulated_environment(folder)
    subprocess.run(command, env={**os.environ, **environment})

TVM's own CUDA runtime then loads the emulated driver, and nvcc is the emulated one.
In their environment may be besides:

    EMULATED_GPU_MEMORY     bytes of a card; 64 MiB without it
    EMULATED_GPU_HELD_DOWN  bits of what holds its clocks down, as NVML has them
    EMULATED_GPU_OTHERS     how many other processes use it
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from tests.emulation.compiling import digest, make_driver, make_engine

_ROOT = Path(__file__).parents[2]


def emulated_environment(folder: Path, cards: int = 1) -> dict[str, str]:
    """The variables for a process with so many cards, which is to be started.

    What they name is compiled into `folder` by the first call, and where it has changed: some
    seconds.
    """
    folder = folder.absolute()
    nvcc, stamp = folder / "bin" / "nvcc", folder / "digest"
    if not stamp.exists() or stamp.read_text(encoding="utf-8") != digest():
        folder.mkdir(parents=True, exist_ok=True)
        make_engine(folder)
        make_driver(folder)
        nvcc.parent.mkdir(exist_ok=True)
        nvcc.write_text(
            f'#!/bin/sh\nPYTHONPATH="{_ROOT}" exec "{sys.executable}" -S -m tests.emulation.nvcc '
            f'"{folder}" "$@"\n',
            encoding="utf-8",
        )
        nvcc.chmod(0o755)
        stamp.write_text(digest(), encoding="utf-8")
    return {
        "PATH": _before("PATH", nvcc.parent),
        "LD_LIBRARY_PATH": _before("LD_LIBRARY_PATH", folder),
        # Where a process in a sandbox may read modules: the emulated nvcc's.
        "PYTHONPATH": _before("PYTHONPATH", _ROOT),
        "EMULATED_GPU_COUNT": str(cards),
        # What it is outside says which real cards are to be used.
        "CUDA_VISIBLE_DEVICES": ",".join(map(str, range(cards))),
    }


def _before(variable: str, folder: Path) -> str:
    return os.pathsep.join([str(folder), *filter(None, [os.environ.get(variable)])])
