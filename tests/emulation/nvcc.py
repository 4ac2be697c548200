"""An nvcc that makes a library for the emulated driver in place of a cubin.

It needs nothing but the standard library, so it starts at once.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from tests.emulation.compiling import compile_kernels
from tests.emulation.rewriting import shared_object

_VERSION = """nvcc: an emulation of NVIDIA's compiler, which makes code for this machine's CPU
Cuda compilation tools, release 13.0, V13.0.0
"""
_FORMATS = {"--cubin", "-cubin", "--fatbin", "-fatbin"}


def main(engine: str, arguments: Sequence[str]) -> int:
    """Exit status of a call; `engine` is the folder of `compiling.make_engine`."""
    if "--version" in arguments:
        print(_VERSION, end="")
        return 0
    text = " ".join(arguments)
    arch = re.search(r"\bsm_(\d+)", text)
    sources = [argument for argument in arguments if argument.endswith(".cu")]
    if arch is None or len(sources) != 1 or "-o" not in arguments:
        return _refused("give one .cu file, -arch=sm_NN and -o")
    if not _FORMATS & set(arguments):
        return _refused("the emulated nvcc makes cubins alone")
    made = arguments[arguments.index("-o") + 1]
    source = Path(sources[0]).read_text(encoding="utf-8")
    with tempfile.TemporaryDirectory(prefix="nvcc-") as folder:
        code = Path(folder, "kernels.cpp")
        code.write_text(shared_object(source, int(arch[1])), encoding="utf-8")
        try:
            compile_kernels(code, Path(made), Path(engine))
        except subprocess.CalledProcessError as error:
            return _refused(error.stderr.replace(f"{folder}/", ""))
    return 0


def _refused(text: str) -> int:
    print(f"nvcc fatal   : {text}" if "error" not in text else text, file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2:]))
