"""Runs a network's CUDA source on the CPU, kernel after kernel, with plain schedules.

What it shows, beside what `emulated_cuda` does: that no index is out of bounds, and that no two
threads touch one element, one of them to write, without a barrier or the end of a kernel between
(`emulated_memory.h`). So the order of the threads does not matter. What it does not: how a GPU
rounds its functions, how long anything takes.
"""

from __future__ import annotations

import ctypes
import re
import subprocess
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
from tests.compiler.emulated_cuda import KERNEL, STATIC, UNWRITTEN, call, need_compiler

from tunefleet.compiler.code.build import lowered
from tunefleet.compiler.code.device_code import device_sources
from tunefleet.compiler.graph.forms import direct
from tunefleet.compiler.graph.tasks import call_counts, normalized
from tunefleet.compiler.space.spaces import plainly_scheduled
from tunefleet.compiler.toolchain import load_tvm

tvm = load_tvm()
relax, tirx = tvm.relax, tvm.tirx

__all__ = ["Emulated", "need_compiler"]

_HEADER = Path(__file__).parent / "emulated_memory.h"
_POINTER = re.compile(r"(\w[\w ]*?)\* __restrict__ (\w+)")
#: What TVM puts behind the name of a buffer.
_HELD = re.compile(r"_ptr(_\d+)?$")


class Emulated:
    """A prepared network for a GPU. `sources` are the CUDA sources of its programs by name, and
    `change` what is made of each before it runs. Called with arrays, it gives the outputs, or
    raises an AssertionError that says what a thread did wrong."""

    def __init__(
        self, mod: Any, target: Any, folder: Path, change: Callable[[str], str] = str
    ) -> None:
        self._main = mod["main"]
        self._outputs: dict[str, list[tuple[list[int], str]]] = {}
        self.sources: dict[str, str] = {}
        texts = []
        for variable, function in mod.functions_items():
            name = str(variable.name_hint)
            if name not in call_counts(mod):
                continue
            module = plainly_scheduled(_named_apart(normalized(direct(function))), target)
            (self.sources[name],) = device_sources(lowered(module, target))
            arguments = tvm.s_tir.meta_schedule.arg_info.ArgInfo.from_prim_func(module["main"])
            self._outputs[name] = [([int(d) for d in a.shape], str(a.dtype)) for a in arguments]
            source = change(self.sources[name])
            texts.append(_program(name, source, module["main"], self._outputs[name]))
        # A library that is loaded may not be written over.
        path = folder / f"network{len(list(folder.glob('*.cpp')))}.cpp"
        path.write_text("\n".join(texts))
        library = path.with_suffix(".so")
        command = ["g++", "-std=c++17", "-O0", "-w", "-shared", "-fPIC", "-include", str(_HEADER)]
        subprocess.run([*command, "-o", str(library), str(path)], check=True)
        self._library = ctypes.CDLL(str(library))

    def __call__(self, *inputs: Any) -> list[Any]:
        known = dict(zip(self._main.params, map(np.ascontiguousarray, inputs), strict=True))
        for block in self._main.body.blocks:
            for binding in block.bindings:
                known[binding.var] = self._value(binding.value, known)
        result = self._value(self._main.body.body, known)
        return result if isinstance(result, list) else [result]

    def _value(self, expr: Any, known: dict[Any, Any]) -> Any:
        if isinstance(expr, relax.Var):
            return known[expr]
        if isinstance(expr, relax.Tuple):
            return [self._value(field, known) for field in expr.fields]
        if isinstance(expr, relax.TupleGetItem):
            return self._value(expr.tuple_value, known)[expr.index]
        if isinstance(expr, relax.Call) and str(expr.op.name) == "relax.call_tir":
            arguments = [self._value(a, known) for a in expr.args[1].fields]
            return self._run(str(expr.args[0].name_hint), arguments)
        if isinstance(expr, relax.Call):
            shape = [int(extent) for extent in expr.ty.shape.values]
            return self._value(expr.args[0], known).reshape(shape)
        return np.ascontiguousarray(expr.value.numpy())

    def _run(self, name: str, arguments: list[Any]) -> Any:
        made = [
            np.full(shape, UNWRITTEN, dtype)
            for shape, dtype in self._outputs[name][len(arguments) :]
        ]
        pointers = [a.ctypes.data_as(ctypes.c_void_p) for a in (*arguments, *made)]
        call(self._library[f"run_{name}"], pointers)
        return made if len(made) > 1 else made[0]


def _named_apart(module: Any) -> Any:
    """A module whose function has no two buffers of one name, as when it is printed."""
    function = module["main"]
    names = [str(parameter.name) for parameter in function.params]
    names += [str(buffer.name) for buffer, _ in _allocated(function.body)]
    apart = len(set(names)) == len(names)
    return module if apart else tvm.script.from_source(module.script())


def _program(name: str, source: str, function: Any, arguments: list[Any]) -> str:
    """C++ with a function `run_NAME` of the pointers of all arguments."""
    code = re.sub(r"^\s*#include.*$", "", source, flags=re.MULTILINE)
    code = code.replace('extern "C" __global__', "static")
    code = STATIC.sub(r"static auto \3 = emulated::shared_memory<\2>(\4);", code)
    code = _POINTER.sub(r"emulated::Memory<\1> \2", code)
    own = [str(parameter.name) for parameter in function.params]
    sizes = _sizes(function.body)
    lines: dict[str, str] = {}
    kernels = iter(KERNEL.findall(source))

    def called() -> tuple[str, list[str | None]]:
        """A kernel, and what it is given; None for the number of a step."""
        kernel, parameters = next(kernels)
        given: list[str | None] = []
        for parameter in parameters.split(", "):
            pointer = _POINTER.fullmatch(parameter)
            if pointer is None:
                # Arguments of TVM's own kernels may begin anywhere in their memory.
                given.append("0" if "elem_offset" in parameter else None)
                continue
            kind, buffer = pointer[1], _HELD.sub("", pointer[2])
            memory = f"{buffer}_of_{kind.replace(' ', '_')}"
            if buffer in own:
                number = own.index(buffer)
                size, begin = str(int(np.prod(arguments[number][0]))), f"given[{number}]"
            else:
                size, begin = f"{sizes[buffer]} / sizeof({kind})", f"between_{buffer}"
                lines[buffer] = f"void* {begin} = emulated::between({sizes[buffer]});"
            lines[memory] = f"emulated::Memory<{kind}> {memory}({begin}, {size});"
            given.append(memory)
        return kernel, given

    calls = "\n".join(_host(function.body, called, [], count()))
    assert next(kernels, None) is None
    run = f'extern "C" const char* run_{name}(void** given) {{ return emulated::outcome([&] {{'
    whole = [f"namespace of_{name} {{", code, run, *lines.values(), calls, "}); }", "}"]
    return "\n".join(whole)


def _sizes(body: Any) -> dict[str, int]:
    """Bytes of the buffers that kernels hand on, by name. TVM lets those of blocks share memory."""
    own: dict[str, int] = {}
    of_blocks: dict[str, int] = {}
    for buffer, of_block in _allocated(body):
        extents = [int(extent) for extent in buffer.shape]
        size = int(np.prod(extents)) * np.dtype(str(buffer.dtype)).itemsize
        (of_blocks if of_block else own)[str(buffer.name)] = size
    return own | dict.fromkeys(of_blocks, max(of_blocks.values(), default=0))


def _allocated(node: Any) -> Iterator[tuple[Any, bool]]:
    """Buffers, and whether they are a block's."""
    if isinstance(node, tvm.s_tir.SBlockRealize):
        node = node.block
        for buffer in node.alloc_buffers:
            yield buffer, True
    if isinstance(node, tirx.AllocBuffer):
        yield node.buffer, False
    for below in getattr(node, "seq", [getattr(node, "body", None)]):
        if below is not None:
            yield from _allocated(below)


def _host(node: Any, called: Any, loops: list[str], numbers: Any) -> Iterator[str]:
    """The launches of a program's kernels, and the loops over them."""
    if isinstance(node, tvm.s_tir.SBlockRealize):
        node = node.block
    extents: dict[str, int] = {}
    if _bound(node, extents):
        kernel, given = called()
        # All numbers that a kernel is given are those of the loops around it.
        outer = iter(loops)
        passed = ", ".join(next(outer) if each is None else each for each in given)
        threads = [extents.get(f"threadIdx.{axis}", 1) for axis in "xyz"]
        yield (
            f"emulated::launch({extents.get('blockIdx.x', 1)}, {{{', '.join(map(str, threads))}}}, "
            f"false, [&] {{ {kernel}({passed}); }});"
        )
        return
    if isinstance(node, tirx.For):
        loop = f"loop{next(numbers)}"
        yield f"for (int {loop} = 0; {loop} < {int(node.extent)}; ++{loop}) {{"
        yield from _host(node.body, called, [*loops, loop], numbers)
        yield "}"
        return
    for below in getattr(node, "seq", [getattr(node, "body", None)]):
        if below is not None:
            yield from _host(below, called, loops, numbers)


def _bound(node: Any, extents: dict[str, int]) -> bool:
    """Whether a statement begins with a binding to threads, whose extents are noted."""
    if isinstance(node, tirx.For) and node.thread_binding is not None:
        extents[str(node.thread_binding.thread_tag)] = int(node.extent)
    elif isinstance(node, tirx.AttrStmt) and node.attr_key == "thread_extent":
        extents[str(node.node.thread_tag)] = int(node.value)
    else:
        return False
    _bound(node.body, extents)
    return True
