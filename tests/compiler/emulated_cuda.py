"""Runs the CUDA source of programs on the CPU, block after block, with all threads of a block in
turn from one barrier, or one exchange within a warp, to the next.

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
import subprocess
import tempfile
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np

from tunefleet.compiler.code.build import lowered
from tunefleet.compiler.code.device_code import device_sources
from tunefleet.compiler.code.replay import replay
from tunefleet.compiler.toolchain import load_tvm
from tunefleet.compiler.toolchain.programs import load_program

tvm = load_tvm()
tirx = tvm.tirx

_HEADERS = [Path(__file__).parent / f"emulated_{name}.h" for name in ("fragments", "copies")]
_FLAGS = ["-std=c++17", "-O0", "-w", "-fPIC"]
_KERNEL = re.compile(r'^extern "C" __global__ void .*?(main_kernel\w*)\((.*)\) \{$', re.MULTILINE)
STATIC = re.compile(r"__shared__ (alignas\(\d+\)) (\w[\w ]*?) (\w+)\[(\d+)\];")
_DYNAMIC = re.compile(r"extern __shared__ __align__\(\d+\) (\w[\w ]*?) (\w+)\[\];")
_OWN = re.compile(
    r"^( *)(?:alignas\(\d+\) )?([\w:]+(?: char)?(?:<.*>)?) (\w+_ptr\w*)\[(\d+)\];", re.M
)
_POINTER = re.compile(r"(\w[\w ]*?)\* __restrict__ (\w+)")
#: What TVM puts behind the name of a buffer.
_HELD = re.compile(r"_ptr(_\d+)?$")
#: A copy that runs by itself, groups of these, and waiting for groups.
COPY = re.compile(
    r"^__forceinline__ __device__ void (?P<name>\w+)"
    r"\(void\* dst, int dst_off, void\* src, int src_off(?P<condition>, int predicate)?\) \{\n"
    r"(?P<body>(?:(?!^\}).)*?cp\.async\.c[ag]\.shared\.global.*?)^\}",
    re.M | re.S,
)
COMMIT = re.compile(r'asm volatile\("cp\.async\.commit_group;"[^;]*\);')
WAIT = re.compile(r'asm volatile\("cp\.async\.wait_group (\d+);"[^;]*\);')
#: What results are before they are written.
UNWRITTEN = 77


def need_compiler() -> None:
    import pytest

    if shutil.which("g++") is None:
        pytest.skip("no g++")
    try:
        _header()
    except subprocess.CalledProcessError:
        pytest.skip("g++ knows no half floats")


@cache
def _header() -> Path:
    """The headers in one, which g++ has read already: most programs are shorter than they."""
    folder = tempfile.mkdtemp(prefix="emulated-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    header = Path(folder, "emulated.h")
    header.write_text("".join(f'#include "{path}"\n' for path in _HEADERS), encoding="utf-8")
    command = ["g++", *_FLAGS, "-x", "c++-header", "-o", f"{header}.gch", str(header)]
    subprocess.run(command, check=True, capture_output=True)
    return header


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
        command = ["g++", *_FLAGS, "-shared", "-include", str(_header())]
        subprocess.run([*command, "-o", str(library), str(path)], check=True)
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
    own = [_in_code(parameter) for parameter in module["main"].params]
    sizes = _sizes(body)
    lines: dict[str, str] = {}
    kernels = iter(_KERNEL.findall(source))

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

    calls = "\n".join(_host(body, called, [], count()))
    assert next(kernels, None) is None
    run = f'extern "C" const char* run_{name}(void** given) {{ return emulated::outcome([&] {{'
    code = _emulated(source, module)
    return "\n".join([f"namespace of_{name} {{", code, run, *lines.values(), calls, "}); }", "}"])


def _emulated(source: str, module: Any) -> str:
    """The kernels of a source with memory that knows its bounds and who touches it."""
    code = re.sub(r"^\s*#include.*$", "", source, flags=re.MULTILINE)
    code = code.replace('extern "C" __global__', "static")
    code = COPY.sub(_copy, code)
    code = COMMIT.sub("emulated::commit_copies();", code)
    code = WAIT.sub(r"emulated::wait_for_copies(\1);", code)
    code = STATIC.sub(r"static auto \3 = emulated::shared_memory<\2>(\4);", code)
    if _DYNAMIC.search(code):
        sizes = _dynamic(module)
        code = _DYNAMIC.sub(
            lambda m: (
                f"static auto {m[2]} = emulated::shared_memory<{m[1]}>"
                f"({sizes[_HELD.sub('', m[2])]} / sizeof({m[1]}));"
            ),
            code,
        )
    code = _OWN.sub(r"\1emulated::Own<\2, \4> \3;", code)
    code = re.sub(r"\*\((\w+)\*\)\((?=\w+ \+ )", r"emulated::wide<\1>(", code)
    code = re.sub(r"\(\(volatile [\w ]+\*\)(\w+)\)", r"\1", code)
    return _POINTER.sub(r"emulated::Memory<\1> \2", code)


def _copy(match: re.Match[str]) -> str:
    """A function that copies elements, of the sizes that TVM has written into it."""
    begins = [re.search(rf"{side}_off(?: \* (\d+))?;", match["body"]) for side in ("dst", "src")]
    sizes = [each[1] or "1" for each in begins if each]
    (count,) = re.findall(r'"n"\((\d+)\)', match["body"])
    given = "dst, dst_off, src, src_off" + (", predicate == 1" if match["condition"] else "")
    return (
        "template <class D, class S> void "
        f"{match['name']}(const emulated::Memory<D>& dst, int dst_off, "
        f"const emulated::Memory<S>& src, int src_off{match['condition'] or ''}) {{\n"
        f"  static_assert(sizeof(D) == {sizes[0]} && sizeof(S) == {sizes[1]});\n"
        f"  emulated::copy<{count}>({given});\n}}"
    )


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
    extents = [int(extent) for extent in buffer.shape]
    return int(np.prod(extents)) * np.dtype(str(buffer.dtype)).itemsize


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


def _host(node: Any, called: Any, loops: list[str], numbers: Any) -> Iterator[str]:
    """The launches of a program's kernels, and the loops over them."""
    if isinstance(node, tvm.s_tir.SBlockRealize):
        node = node.block
    if _binds(node):
        extents: dict[str, int] = {}
        _bound(node, extents)
        kernel, given = called()
        # All numbers that a kernel is given are those of the loops around it.
        outer = iter(loops)
        passed = ", ".join(next(outer) if each is None else each for each in given)
        threads = [extents.get(f"threadIdx.{axis}", 1) for axis in "xyz"]
        yield (
            f"emulated::launch({extents.get('blockIdx.x', 1)}, {{{', '.join(map(str, threads))}}}, "
            f"[&] {{ {kernel}({passed}); }});"
        )
        return
    if isinstance(node, tirx.For):
        loop = f"loop{next(numbers)}"
        yield f"for (int {loop} = 0; {loop} < {int(node.extent)}; ++{loop}) {{"
        yield from _host(node.body, called, [*loops, loop], numbers)
        yield "}"
        return
    for below in _below(node):
        yield from _host(below, called, loops, numbers)


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
