"""Replaces CUDA source in built libraries by machine code.

TVM compiles CUDA source only with its CUDA runtime, which needs a driver. Without a driver (on a
build host), the library contains source, and each process that loads it would compile it again,
during measurements. Therefore the source is compiled here and replaced by machine code. With a
driver TVM is kept from compiling it: libraries are the same wherever they are built.

TVM writes the imported modules of a library as one symbol: its length, the import tree, and the
kind and bytes of each module. The bytes of a CUDA module are the code format, the signatures of the
kernels and the code. Texts and bytes are preceded by their length in eight bytes.
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


@tvm.register_global_func("tvm_callback_cuda_compile", override=True)  # type: ignore[untyped-decorator]
def _left_as_source(source: str) -> bytes:
    """What TVM takes for machine code. Its own callback compiles by NVRTC, from a package that few
    have, and with approximate functions."""
    return str(source).encode()


def device_sources(module: Any) -> list[str]:
    """The CUDA sources in the imports of a built module."""
    own = [str(module.inspect_source("cuda"))] if module.kind == "cuda" else []
    return own + [source for each in module.imports for source in device_sources(each)]


def packed_imports(module: Any, target: CudaTarget, folder: str) -> str:
    """The path of a new object file in `folder` with the imports of `module` as machine code.

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
    """The packed modules `data` with one module's source replaced. Code in another format was
    already compiled by TVM."""
    old = _text(source)
    if old not in data:
        return data
    begin, end = data.index(old), data.index(old) + len(old)
    # The module's bytes start with the format, after the kind and the length.
    formats = {data.rfind(_text(each), 0, begin): each for each in (_SOURCE, _MACHINE_CODE)}
    head = max(formats)
    length = int.from_bytes(data[head - 8 : head], "little")
    if head < 8 or not head < end <= head + length or data.count(old) != 1:
        raise InternalError("TVM's format of packed CUDA modules is not the expected one")
    whole = data[head : head + length]
    signatures = whole[len(_text(formats[head])) : begin - head]
    made = _text(_MACHINE_CODE) + signatures + _text(cubin) + whole[end - head :]
    packed = data[8 : head - 8] + _text(made) + data[head + length :]
    return _text(packed)


def _text(content: bytes) -> bytes:
    return len(content).to_bytes(8, "little") + content


def _run(command: list[str]) -> None:
    subprocess.run(command, check=True, capture_output=True, text=True, errors="replace")
