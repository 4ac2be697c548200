"""Runs the CUDA source of a program on the CPU, thread after thread.

What it shows: that the code which each thread runs computes the product, with the barriers that it
has, in two orders of the threads; that all threads of a warp ask for the same fragments, and that
these begin where they may. What it does not: how a GPU spreads a fragment over a warp's threads and
rounds its sums, what a barrier is needed for that neither order misses, how long anything takes.
"""

from __future__ import annotations

import ctypes
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tunefleet.compiler.code.build import lowered
from tunefleet.compiler.code.device_code import device_sources
from tunefleet.compiler.code.replay import replay
from tunefleet.compiler.toolchain import load_tvm
from tunefleet.compiler.toolchain.programs import load_program

tvm = load_tvm()

_HEADER = Path(__file__).parent / "emulated_cuda.h"
KERNEL = re.compile(r'^extern "C" __global__ void .*?(main_kernel\w*)\((.*)\) \{$', re.MULTILINE)
_DYNAMIC = re.compile(r"extern __shared__ __align__\(\d+\) (\w[\w ]*?) (\w+)\[\];")
STATIC = re.compile(r"__shared__ (alignas\(\d+\)) (\w[\w ]*?) (\w+)\[(\d+)\];")
#: Bytes of what one kernel leaves for the next.
_BETWEEN = 1 << 20
#: What results are before they are written.
UNWRITTEN = 77


def need_compiler() -> None:
    if shutil.which("g++") is None:
        pytest.skip("no g++")
    flags = ["-std=c++17", "-x", "c++", "-fsyntax-only", "-include", str(_HEADER), "/dev/null"]
    if subprocess.run(["g++", *flags], capture_output=True).returncode:
        pytest.skip("g++ knows no half floats")


def source_of(program: str, target: Any, trace: str) -> str:
    """The CUDA source of a program of a task."""
    (source,) = device_sources(lowered(replay(load_program(program), target, trace).mod, target))
    return source


def results_of(
    program: str, target: Any, trace: str, arrays: list[Any], folder: Path, source: str = ""
) -> tuple[Any, Any]:
    """The result with threads in ascending and in descending order, of a program's source or of
    another with the same kernels."""
    function = load_program(program)["main"]
    names = [str(parameter.name) for parameter in function.params]
    launches = _launches(replay(load_program(program), target, trace).mod["main"])
    library = _compiled(source or source_of(program, target, trace), names, launches, folder)
    last = tvm.s_tir.meta_schedule.arg_info.ArgInfo.from_prim_func(function)[-1]

    def result(*, descending: bool) -> Any:
        made = np.full([int(d) for d in last.shape], UNWRITTEN, str(last.dtype))
        pointers = [a.ctypes.data_as(ctypes.c_void_p) for a in (*arrays, made)]
        call(library.run, pointers, ctypes.c_bool(descending))
        return made

    return result(descending=False), result(descending=True)


def call(run: Any, pointers: list[Any], *others: Any) -> None:
    """Runs kernels; an AssertionError says what a thread did wrong."""
    run.restype = ctypes.c_char_p
    wrong = run((ctypes.c_void_p * len(pointers))(*pointers), *others)
    assert wrong is None, wrong.decode()


def _launches(function: Any) -> list[tuple[int, int, int]]:
    """Blocks, and threads along x and y, of each kernel, in order."""
    body = function.body.block.body
    kernels = []
    for statement in body.seq if isinstance(body, tvm.tirx.SeqStmt) else [body]:
        extents: dict[str, int] = {}
        _bound(statement, extents)
        kernels.append(
            (extents["blockIdx.x"], extents["threadIdx.x"], extents.get("threadIdx.y", 1))
        )
    return kernels


def _bound(node: Any, extents: dict[str, int]) -> None:
    """Of the loops in a statement that are bound to threads."""
    if isinstance(node, tvm.tirx.For) and node.thread_binding is not None:
        extents[str(node.thread_binding.thread_tag)] = int(node.extent)
    if isinstance(node, tvm.s_tir.SBlockRealize):
        node = node.block
    for below in getattr(node, "seq", [getattr(node, "body", None)]):
        if below is not None:
            _bound(below, extents)


def _compiled(
    source: str, names: list[str], launches: list[tuple[int, int, int]], folder: Path
) -> Any:
    code = re.sub(r"^\s*#include.*$", "", source, flags=re.MULTILINE)
    code = _DYNAMIC.sub(r"\1* \2 = reinterpret_cast<\1*>(emulated::dynamic);", code)
    code = STATIC.sub(r"\1 static \2 \3[\4]; emulated::shared(\3, sizeof(\3));", code)
    calls, between = [], set()
    for (name, parameters), (blocks, x, y) in zip(KERNEL.findall(source), launches, strict=True):
        arguments = []
        for parameter in parameters.split(", "):
            kind, _, own = parameter.partition("* __restrict__ ")
            buffer = own.removesuffix("_ptr")
            if buffer in names:
                arguments.append(f"static_cast<{kind}*>(given[{names.index(buffer)}])")
            else:
                arguments.append(f"reinterpret_cast<{kind}*>(between_{buffer})")
                between.add(f"alignas(64) static char between_{buffer}[{_BETWEEN}];")
        calls.append(
            f"emulated::launch({blocks}, {{{x}, {y}, 1}}, descending, "
            f"[&] {{ {name}({', '.join(arguments)}); }});"
        )
    begin = (
        'extern "C" const char* run(void** given, bool descending) {return emulated::outcome([&] {'
    )
    end = "}); }"
    path = folder / f"emulated{len(list(folder.glob('*.cpp')))}.cpp"
    path.write_text("\n".join([code, *sorted(between), begin, *calls, end]))
    library = path.with_suffix(".so")
    command = ["g++", "-std=c++17", "-O1", "-w", "-shared", "-fPIC", "-include", str(_HEADER)]
    subprocess.run([*command, "-o", str(library), str(path)], check=True)
    return ctypes.CDLL(str(library))
