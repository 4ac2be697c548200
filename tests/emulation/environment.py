"""Processes that have an emulated GPU.

    environment = emulated_environment(folder)
    subprocess.run(command, env={**os.environ, **environment})

TVM's own CUDA runtime then loads the emulated driver, and nvcc is the emulated one.
`EMULATED_GPU_MEMORY` in the environment is the bytes of a card, 64 MiB without it.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from tests.emulation.compiling import make_driver, make_engine

_ROOT = Path(__file__).parents[2]


def emulated_environment(folder: Path, cards: int = 1) -> dict[str, str]:
    """The variables for a process with so many cards, which is to be started.

    What they name is compiled into `folder` by the first call: some seconds. Raises
    subprocess.CalledProcessError where g++ cannot.
    """
    nvcc = folder / "bin" / "nvcc"
    if not nvcc.exists():
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
    return {
        "PATH": _before("PATH", nvcc.parent),
        "LD_LIBRARY_PATH": _before("LD_LIBRARY_PATH", folder),
        "EMULATED_GPU_COUNT": str(cards),
        # What it is outside says which real cards are to be used.
        "CUDA_VISIBLE_DEVICES": ",".join(map(str, range(cards))),
    }


def _before(variable: str, folder: Path) -> str:
    return os.pathsep.join([str(folder), *filter(None, [os.environ.get(variable)])])
