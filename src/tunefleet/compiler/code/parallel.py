"""A network's programs as several object files.

LLVM takes most of the time of compiling a network, and TVM calls it with one thread for all
programs together. Here they are divided among threads, but for those whose code is there: it was
compiled to be measured. The rest calls them by name, and the linker joins them.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import tvm_ffi

from tunefleet.compiler.code.build import lowered
from tunefleet.compiler.toolchain import load_tvm
from tunefleet.compiler.toolchain.linking import objcopy
from tunefleet.core.target import CudaTarget, Target

tvm = load_tvm()
relax = tvm.relax

#: Groups of programs per thread: they take unequal times.
_GROUPS = 4
#: Before the names of functions in an object file.
_SYMBOL = "__tvm_ffi_"


def separated(mod: Any, target: Target, ready: Collection[str]) -> tuple[Any, list[Any]]:
    """A lowered network without most of its programs, and modules of these that are not `ready`;
    without any where one thread compiles all, as for a GPU."""
    threads = _threads()
    programs = [
        (gvar, function)
        for gvar, function in mod.functions_items()
        if isinstance(function, tvm.tirx.PrimFunc)
    ]
    programs.sort(key=lambda program: str(program[0].name_hint) in ready)
    # One stays: TVM takes the target of a library from its code.
    programs = programs[1:]
    left = [program for program in programs if str(program[0].name_hint) not in ready]
    if threads < 2 or len(left) < threads:
        programs, left = programs[len(left) :], []
    if not programs or isinstance(target, CudaTarget):
        return mod, []
    names = {str(gvar.name_hint) for gvar, _ in programs}

    def by_name(gvar: Any) -> Any:
        return relax.ExternFunc(gvar.name_hint) if str(gvar.name_hint) in names else gvar

    rest = {
        gvar: tvm_ffi.structural_map(function, [(tvm.ir.GlobalVar, by_name)])
        for gvar, function in mod.functions_items()
        if str(gvar.name_hint) not in names
    }
    count = min(len(left), _GROUPS * threads)
    groups = [tvm.IRModule(dict(left[n::count])) for n in range(count)]
    return tvm.IRModule(rest, attrs=mod.attrs), groups


def write_objects(modules: Sequence[Any], target: Target, folder: Path) -> list[str]:
    """Compile modules of programs; the paths of their object files in `folder`."""

    def write(number: int, module: Any) -> str:
        path = str(folder / f"programs{number}.o")
        lowered(module, target).write_to_file(path)
        return path

    with ThreadPoolExecutor(_threads()) as pool:
        return list(pool.map(write, range(len(modules)), modules))


def renamed(codes: Mapping[str, Path], target: Target, folder: Path) -> list[str]:
    """Copies in `folder` of object files of one program each, which a network calls by these names.
    The files are numbered: a name of many fused operators is longer than that of a file may be."""
    paths = [str(folder / f"ready{number}.o") for number in range(len(codes))]
    for path, (name, code) in zip(paths, codes.items(), strict=True):
        symbol = f"--redefine-sym={_SYMBOL}main={_SYMBOL}{name}"
        subprocess.run([objcopy(target), symbol, str(code), path], check=True, capture_output=True)
    return paths


def _threads() -> int:
    return len(os.sched_getaffinity(0))
