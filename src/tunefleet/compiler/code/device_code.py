"""Machine code of a GPU in the library that launches it.

TVM compiles CUDA source where its CUDA runtime is, and that needs a driver. Where there is none (a
machine that builds for others), a library holds the source, and whoever loads it would have to
compile it, time and again and in the place of a measurement. So the source is compiled here, and
machine code put in its place.

TVM writes the modules that a library brings along as one symbol: after its own length, and what is
imported by what, each module's kind and bytes. Those of CUDA are the code's format, the kernels'
signatures and the code. Texts and bytes have their length before them, in eight bytes.
"""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

from tunefleet.compiler.toolchain import load_tvm
from tunefleet.compiler.toolchain.host import to_tvm
from tunefleet.compiler.toolchain.linking import objcopy
from tunefleet.compiler.toolchain.nvcc import compile_cubin
from tunefleet.core.target import CudaTarget
from tunefleet.errors import InternalError

tvm = load_tvm()

_SECTION = ".rodata"
_SOURCE, _MACHINE_CODE = b"cuda", b"cubin"


def device_sources(module: Any) -> list[str]:
    """The CUDA source of what a built module brings along."""
    own = [str(module.inspect_source("cuda"))] if module.kind == "cuda" else []
    return own + [source for each in module.imports for source in device_sources(each)]


def packed_imports(module: Any, target: CudaTarget, folder: str) -> str:
    """The path of a new object file in `folder` with what `module` brings along, as machine code.

    Raises CudaError for source that nvcc refuses, SetupError where a tool is missing.
    """
    path, section = Path(folder) / "devc.o", Path(folder) / "devc.bin"
    packer = tvm.get_global_func("runtime.ModulePackImportsToLLVM")
    packer(module, False, str(to_tvm(target.host)), "").write_to_file(str(path))
    tool = objcopy(target)
    _run([tool, "-O", "binary", f"--only-section={_SECTION}", str(path), str(section)])
    data = section.read_bytes()
    for source in device_sources(module):
        cubin = compile_cubin(source, target.arch)
        data = _replaced(data, source.encode(), cubin)
    section.write_bytes(data)
    _run([tool, f"--update-section={_SECTION}={section}", str(path)])
    return str(path)


def _replaced(data: bytes, source: bytes, cubin: bytes) -> bytes:
    """The packed modules `data` with one module's code replaced. Where the code is not in the form
    of source, TVM has compiled it."""
    old = _text(source)
    if old not in data:
        return data
    begin, end = data.index(old), data.index(old) + len(old)
    # The bytes of the module begin with its format, after its kind and their length.
    head = data.rfind(_text(_SOURCE), 0, begin)
    length = int.from_bytes(data[head - 8 : head], "little")
    if head < 8 or not head < end <= head + length or data.count(old) != 1:
        raise InternalError("TVM packs CUDA modules in another way than this version is known to")
    whole = data[head : head + length]
    signatures = whole[len(_text(_SOURCE)) : begin - head]
    made = _text(_MACHINE_CODE) + signatures + _text(cubin) + whole[end - head :]
    packed = data[8 : head - 8] + _text(made) + data[head + length :]
    return _text(packed)


def _text(content: bytes) -> bytes:
    return len(content).to_bytes(8, "little") + content


def _run(command: list[str]) -> None:
    subprocess.run(command, check=True, capture_output=True, text=True, errors="replace")
