"""Runs the CUDA source of programs on the CPU, without a driver: the calls of kernels are made from
their TIR. Block after block, with all threads of a block in turn from one barrier, or one exchange
within a warp, to the next.

What it shows: that the threads compute what they should; that no index is out of bounds, of shared
memory and of a thread's own too, and no vector begins where it may not; that no two threads touch
one element, one of them to write, without a barrier or the end of a kernel between (so the order
of the threads does not matter); that all threads come to the same barriers, and those of a warp to
the same exchanges and fragments. What it does not: how a GPU spreads a fragment over a warp's
threads, how it rounds sums and functions, how long anything takes.
"""

from __future__ import annotations

import atexit
import ctypes
import re
import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np

from tests.emulation.compiling import compile_kernels, has_compiler, make_engine
from tests.emulation.rewriting import KernelText, emulated, kernels_of
from tunefleet.compiler.code.build import lowered
from tunefleet.compiler.code.device_code import device_sources
from tunefleet.compiler.code.replay import replay
from tunefleet.compiler.toolchain import load_tvm
from tunefleet.compiler.toolchain.programs import load_program

tvm = load_tvm()
tirx = tvm.tirx

#: What TVM puts behind the name of a buffer.
_HELD = re.compile(r"_ptr(_\d+)?$")
#: What results are before they are written.
UNWRITTEN = 77


def need_compiler() -> None:
    import pytest

    if not has_compiler():
        pytest.skip("no g++")


@cache
def _engine() -> Path:
    folder = tempfile.mkdtemp(prefix="emulated-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    make_engine(Path(folder))
    return Path(folder)


def source_of(program: str, target: Any, trace: str) -> str:
    """The CUDA source of a program of a task."""
    return source_of_module(replay(load_program(program), target, trace).mod, target)


def source_of_module(module: Any, target: Any) -> str:
    (source,) = device_sources(lowered(module, target))
    return source


def results_of(
    program: str,
    target: Any,
    trace: str,
    arrays: list[Any],
    folder: Path,
    change: Callable[[str], str] = str,
) -> Any:
    """The result of a program of a task; `change` and errors are those of a library."""
    module = replay(load_program(program), target, trace).mod
    return Library({"program": module}, target, folder, change).run("program", arrays)


class Library:
    """Scheduled modules by name, compiled from their CUDA `sources`. `change` is what is made of
    each source before it runs."""

    def __init__(
        self,
        modules: dict[str, Any],
        target: Any,
        folder: Path,
        change: Callable[[str], str] = str,
    ) -> None:
        apart = {name: _named_apart(module) for name, module in modules.items()}
        self.sources = {name: source_of_module(module, target) for name, module in apart.items()}
        self._arguments = {name: _arguments(module) for name, module in modules.items()}
        # A library that is loaded may not be written over.
        path = folder / f"emulated{len(list(folder.glob('*.cpp')))}.cpp"
        texts = [
            _program(name, change(self.sources[name]), module, self._arguments[name])
            for name, module in apart.items()
        ]
        path.write_text("\n".join(texts))
        library = path.with_suffix(".so")
        compile_kernels(path, library, _engine())
        self._library = ctypes.CDLL(str(library))

    def run(self, name: str, arrays: list[Any]) -> Any:
        """The output of a program, or its outputs; an AssertionError says what a thread did
        wrong."""
        rest = self._arguments[name][len(arrays) :]
        made = [np.full(shape, UNWRITTEN, dtype) for shape, dtype in rest]
        pointers = [a.ctypes.data_as(ctypes.c_void_p) for a in (*arrays, *made)]
        run = self._library[f"run_{name}"]
        run.restype = ctypes.c_char_p
        wrong = run((ctypes.c_void_p * len(pointers))(*pointers))
        assert wrong is None, wrong.decode()
        return made if len(made) > 1 else made[0]


def _arguments(module: Any) -> list[tuple[list[int], str]]:
    arguments = tvm.s_tir.meta_schedule.arg_info.ArgInfo.from_prim_func(module["main"])
    return [([int(d) for d in a.shape], str(a.dtype)) for a in arguments]


def _named_apart(module: Any) -> Any:
    """A module whose function has no two buffers of one name that kernels hand on, as when it is
    printed."""
    function = module["main"]
    names = [str(parameter.name) for parameter in function.params]
    names += [
        str(buffer.name) for buffer, _ in _allocated(function.body) if buffer.scope() == "global"
    ]
    apart = len(set(names)) == len(names)
    return module if apart else tvm.script.from_source(module.script())


def _program(name: str, source: str, module: Any, arguments: list[tuple[list[int], str]]) -> str:
    """C++ with a function `run_NAME` of the pointers of all arguments."""
    body = module["main"].body
    own = {_in_code(parameter): n for n, parameter in enumerate(module["main"].params)}
    sizes, dynamic = _sizes(body), dict[str, int]()
    kernels = kernels_of(source)
    if any(kernel.dynamic for kernel in kernels):
        dynamic = _dynamic(module)
    lines = [
        f"emulated::add_memory(given[{n}], {_size(shape, dtype)});"
        for n, (shape, dtype) in enumerate(arguments)
    ]
    left = iter(kernels)

    def call(loops: list[str], grid: list[int], block: list[int]) -> str:
        """A kernel's launch, in these loops."""
        kernel, outer = next(left), iter(loops)
        given = [f"{p.kind}{'*' * p.is_pointer} a{n}" for n, p in enumerate(kernel.parameters)]
        for n, parameter in enumerate(kernel.parameters):
            buffer = _HELD.sub("", parameter.name)
            if not parameter.is_pointer:
                # All numbers that a kernel is given are those of the loops around it, but that
                # arguments of TVM's own kernels may begin anywhere in their memory.
                value = "0" if "elem_offset" in parameter.name else next(outer)
            elif buffer in own:
                value = f"static_cast<{parameter.kind}*>(given[{own[buffer]}])"
            else:
                line = f"void* between_{buffer} = emulated::between({sizes[buffer]});"
                if line not in lines:
                    lines.append(line)
                value = f"static_cast<{parameter.kind}*>(between_{buffer})"
            given[n] += f" = {value};"
        everything = ", ".join(f"&a{n}" for n in range(len(given)))
        asked = dynamic.get(_HELD.sub("", kernel.dynamic), 0)
        return (
            f"{{ {' '.join(given)} void* all[] = {{{everything}}}; {_described(kernel)} "
            f"described.run(described, {{{_triple(grid)}, {_triple(block)}, {asked}, all, "
            "emulated::ALL_DEVICES}); }"
        )

    calls = list(_host(body, call, [], count()))
    assert next(left, None) is None
    return "\n".join(
        [
            # TVM's code has those of half floats in the namespace, which would hide all others.
            f"namespace of_{name} {{ using ::min; using ::max;",
            emulated(source),
            "static void host(void** given) {", *lines, *calls, "}",
            f'extern "C" const char* run_{name}(void** given) {{',
            "return emulated::outcome(host, given); }", "}",
        ]
    )  # fmt: skip


def _described(kernel: KernelText) -> str:
    return f"static constexpr emulated::Kernel described = {kernel.description};"


def _triple(extents: list[int]) -> str:
    return f"{{{', '.join(map(str, extents))}}}"


def _size(shape: list[int], dtype: str) -> int:
    return int(np.prod(shape)) * np.dtype(dtype).itemsize


def _sizes(body: Any) -> dict[str, int]:
    """Bytes of the buffers that kernels hand on, by name. TVM lets those of blocks share memory."""
    own: dict[str, int] = {}
    of_blocks: dict[str, int] = {}
    for buffer, of_block in _allocated(body):
        if str(buffer.scope()) == "global":
            (of_blocks if of_block else own)[_in_code(buffer)] = _bytes(buffer)
    return own | dict.fromkeys(of_blocks, max(of_blocks.values(), default=0))


def _in_code(named: Any) -> str:
    return re.sub(r"\W", "_", str(named.name))


def _bytes(buffer: Any) -> int:
    return _size([int(extent) for extent in buffer.shape], str(buffer.dtype))


def _dynamic(module: Any) -> dict[str, int]:
    """Bytes of the shared memory that kernels ask for at their launch, by the code's name of it."""
    transform = tvm.s_tir.transform
    for step in (
        "LowerInitBlock", "PlanAndUpdateBufferAllocationLocation", "ConvertBlocksToOpaque",
        "CompactBufferAllocation", "LowerMatchBuffer", "LowerOpaqueBlock",
    ):  # fmt: skip
        module = getattr(transform, step)()(module)
    module = tirx.transform.FlattenBuffer()(module)
    return {
        _in_code(buffer): _bytes(buffer)
        for buffer, _ in _allocated(module["main"].body)
        if str(buffer.scope()) == "shared.dyn"
    }


def _allocated(node: Any) -> Iterator[tuple[Any, bool]]:
    """Buffers, and whether they are a block's."""
    if isinstance(node, tvm.s_tir.SBlockRealize):
        node = node.block
        for buffer in node.alloc_buffers:
            yield buffer, True
    if isinstance(node, tirx.AllocBuffer):
        yield node.buffer, False
    for below in _below(node):
        yield from _allocated(below)


def _below(node: Any) -> Iterable[Any]:
    parts = getattr(node, "seq", None)
    if parts is None:
        names = ("init", "body", "then_case", "else_case")
        parts = [getattr(node, name, None) for name in names]
    return [part for part in parts if isinstance(part, tirx.Stmt)]


def _host(node: Any, call: Any, loops: list[str], numbers: Any) -> Iterator[str]:
    """The launches of a program's kernels, and the loops over them."""
    if isinstance(node, tvm.s_tir.SBlockRealize):
        node = node.block
    if _binds(node):
        extents: dict[str, int] = {}
        _bound(node, extents)
        grid, block = (
            [extents.get(f"{kind}.{axis}", 1) for axis in "xyz"]
            for kind in ("blockIdx", "threadIdx")
        )
        yield call(loops, grid, block)
        return
    if isinstance(node, tirx.For):
        loop = f"loop{next(numbers)}"
        yield f"for (int {loop} = 0; {loop} < {int(node.extent)}; ++{loop}) {{"
        yield from _host(node.body, call, [*loops, loop], numbers)
        yield "}"
        return
    for below in _below(node):
        yield from _host(below, call, loops, numbers)


def _binds(node: Any) -> bool:
    if isinstance(node, tirx.For):
        return node.thread_binding is not None
    return isinstance(node, tirx.AttrStmt) and node.attr_key == "thread_extent"


def _bound(node: Any, extents: dict[str, int]) -> None:
    """Of everything in a statement that is bound to threads."""
    if isinstance(node, tvm.s_tir.SBlockRealize):
        node = node.block
    if _binds(node):
        is_loop = isinstance(node, tirx.For)
        tag = (node.thread_binding if is_loop else node.node).thread_tag
        extents[str(tag)] = int(node.extent if is_loop else node.value)
    for below in _below(node):
        _bound(below, extents)
