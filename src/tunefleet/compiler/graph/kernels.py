"""What a program that is written as loops consists of on a GPU: kernels, one after another.

Threads of one kernel cannot wait for those of other blocks; what one kernel wrote the next reads.
Within a block, TVM puts a barrier between what threads write to shared memory and what others read.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

from tunefleet.compiler.toolchain import load_tvm

tvm = load_tvm()

from tvm.script.ir_builder import IRBuilder  # noqa: E402  (TVM is loaded our way first)
from tvm.script.ir_builder import tirx as T  # noqa: E402

#: Threads that a GPU runs in step.
WARP = 32
#: Threads of a block, at most, of the forms in which a program is written: a target takes the first
#: that is within its limit.
THREADS = (256, WARP)
#: Of a block whose threads do not work together, at most: few rows still reach many processors.
_THREADS = 64


@contextmanager
def kernel(blocks: int, *threads: int) -> Iterator[list[Any]]:
    """A kernel; gives the index of a thread's block, and the thread's own along x and, with two
    numbers of `threads`, y."""
    tags = ("blockIdx.x", "threadIdx.x", "threadIdx.y")
    with ExitStack() as stack:
        yield [
            stack.enter_context(T.thread_binding(0, extent, thread=tag))
            for tag, extent in zip(tags, (blocks, *threads), strict=False)
        ]


@contextmanager
def each(count: int, most: int) -> Iterator[Any]:
    """A kernel with a thread for each number below `count`, which it gives; `most` threads are in a
    block."""
    threads = min(_THREADS, most, -(-count // WARP) * WARP)
    with ExitStack() as stack:
        block, thread = stack.enter_context(kernel(-(-count // threads), threads))
        number = block * threads + thread
        if count % threads:
            stack.enter_context(T.If(number < count))
            stack.enter_context(T.Then())
        yield number


def workspace(name: str, shape: Sequence[int], dtype: str) -> Any:
    """Memory that all kernels of a program share, written before them."""
    buffer = T.decl_buffer(list(shape), dtype)
    IRBuilder.name(name, buffer)
    return T.buffer_proxy(buffer)


def shared(shape: Sequence[int], dtype: str) -> Any:
    """Memory that the threads of a block share, written in a kernel."""
    return T.buffer_proxy(T.decl_buffer(list(shape), dtype, scope="shared"))
