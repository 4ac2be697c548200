"""Rewrites the CUDA source of TVM's kernels to C++ for the emulation.

It needs nothing but the standard library: the emulated nvcc imports it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

#: A block's shared memory, of an emulated GPU and of every real one, without asking for more.
SHARED_MEMORY_BYTES = 48 << 10

_SIGNATURE = re.compile(
    r'^extern "C" __global__ void (?:__launch_bounds__\((?P<threads>\d+).*?\) )?'
    r"(?P<name>\w+)\((?P<parameters>.*)\)(?P<end>;| \{)$",
    re.M,
)
_POINTER = re.compile(r"(?:const )?(\w[\w ]*?)\* (?:__restrict__ )?(\w+)")
STATIC = re.compile(r"__shared__ (alignas\(\d+\)) (\w[\w ]*?) (\w+)\[(\d+)\];")
_DYNAMIC = re.compile(r"extern __shared__ __align__\(\d+\) (\w[\w ]*?) (\w+)\[\];")
_OWN = re.compile(
    r"^( *)(?:alignas\(\d+\) )?([\w:]+(?: char)?(?:<.*>)?) (\w+_ptr\w*)\[(\d+)\];", re.M
)
#: A copy that runs by itself, groups of these, and waiting for groups.
COPY = re.compile(
    r"^__forceinline__ __device__ void (?P<name>\w+)"
    r"\(void\* dst, int dst_off, void\* src, int src_off(?P<condition>, int predicate)?\) \{\n"
    r"(?P<body>(?:(?!^\}).)*?cp\.async\.c[ag]\.shared\.global.*?)^\}",
    re.M | re.S,
)
COMMIT = re.compile(r'asm volatile\("cp\.async\.commit_group;"[^;]*\);')
WAIT = re.compile(r'asm volatile\("cp\.async\.wait_group (\d+);"[^;]*\);')
#: What makes a thread wait for others.
_PAUSE = re.compile(r"__syncthreads|__activemask|__shfl_")


@dataclass(frozen=True, slots=True)
class Parameter:
    """`kind` is the type of a number, or that of what a pointer points to."""

    name: str
    kind: str
    is_pointer: bool


@dataclass(frozen=True, slots=True)
class KernelText:
    """A kernel in a source. `most_threads` is its own limit of a block's, 0 for none."""

    name: str
    parameters: tuple[Parameter, ...]
    most_threads: int
    #: C++ for the bytes of its static shared memory.
    shared_bytes: str
    #: The name of the shared memory that a launch asks for, "" for none.
    dynamic: str
    pauses: bool

    @property
    def description(self) -> str:
        """C++ for what `emulated::Kernel` says of it."""
        pauses = "true" if self.pauses else "false"
        return (
            f'emulated::described<{self.name}>("{self.name}", {self.shared_bytes}, '
            f"{self.most_threads}, {pauses})"
        )


def kernels_of(source: str) -> list[KernelText]:
    """The kernels of a source, in its order."""
    found = [each for each in _SIGNATURE.finditer(source) if each["end"] != ";"]
    ends = [source.find("\n}\n", each.end()) for each in found]
    bodies = [source[each.end() : end] for each, end in zip(found, ends, strict=True)]
    rest = source
    for body in bodies:
        rest = rest.replace(body, "")
    all_pause = _PAUSE.search(rest) is not None
    return [
        _kernel(each, body, all_pause or _PAUSE.search(body) is not None)
        for each, body in zip(found, bodies, strict=True)
    ]


def _kernel(signature: re.Match[str], body: str, pauses: bool) -> KernelText:
    sizes = [f"sizeof({each[2]}) * {each[4]}" for each in STATIC.finditer(body)]
    dynamic = _DYNAMIC.search(body)
    return KernelText(
        name=signature["name"],
        parameters=tuple(map(_parameter, filter(None, signature["parameters"].split(", ")))),
        most_threads=int(signature["threads"] or 0),
        shared_bytes=f"emulated::shared_bytes({', '.join(sizes)})",
        dynamic=dynamic[2] if dynamic else "",
        pauses=pauses,
    )


def _parameter(text: str) -> Parameter:
    pointer = _POINTER.fullmatch(text)
    if pointer is not None:
        return Parameter(pointer[2], pointer[1], True)
    kind, _, name = text.rpartition(" ")
    return Parameter(name, kind, False)


def emulated(source: str) -> str:
    """The kernels of a source with memory that knows its bounds and who touches it."""
    code = re.sub(r"^\s*#include.*$", "", source, flags=re.MULTILINE)
    code = COPY.sub(_copy, code)
    code = COMMIT.sub("emulated::commit_copies();", code)
    code = WAIT.sub(r"emulated::wait_for_copies(\1);", code)
    code = _DYNAMIC.sub(r"auto \2 = emulated::dynamic_memory<\1>();", code)
    code = _with_shared_memory(code)
    code = _OWN.sub(r"\1emulated::Own<\2, \4> \3;", code)
    code = re.sub(r"\*\((\w+)\*\)\((?=\w+ \+ )", r"emulated::wide<\1>(", code)
    code = re.sub(r"\(\(volatile [\w ]+\*\)(\w+)\)", r"\1", code)
    return _SIGNATURE.sub(_signature, code)


def _with_shared_memory(code: str) -> str:
    """A kernel's shared memory has its place whatever loop it is declared in."""
    before: list[str] = []

    def placed(match: re.Match[str]) -> str:
        if match["name"]:
            before.clear()
            return match[0]
        declared = STATIC.fullmatch(match[0])
        assert declared is not None
        _, kind, name, count = declared.groups()
        begin = f"emulated::shared_bytes({', '.join([*before, '0'])})"
        before.append(f"sizeof({kind}) * {count}")
        return f"auto {name} = emulated::shared_memory<{kind}>({begin}, {count});"

    return re.sub(f"{_SIGNATURE.pattern}|{STATIC.pattern}", placed, code, flags=re.MULTILINE)


def _signature(match: re.Match[str]) -> str:
    parameters = _POINTER.sub(r"const emulated::Memory<\1>& \2", match["parameters"])
    return f"static void {match['name']}({parameters}){match['end']}"


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


def shared_object(source: str, arch: int) -> str:
    """C++ of what the emulated driver loads: each kernel by its name, and the architecture that the
    code is for (80)."""
    parts = [emulated(source), f'extern "C" const int emulated_arch = {arch};']
    for kernel in kernels_of(source):
        parts += [
            f"static_assert({kernel.shared_bytes} <= {SHARED_MEMORY_BYTES}, "
            f"\"Entry function '{kernel.name}' uses too much shared data\");",
            f'extern "C" const emulated::Kernel emulated_{kernel.name} = {kernel.description};',
        ]
    return "\n".join(parts)
