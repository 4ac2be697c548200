"""Descriptions and implementations of tile intrinsics, written with TVM's builder: their shapes are
known only at run time, and parsing TVMScript is slow."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from tunefleet.compiler.toolchain import load_tvm

tvm = load_tvm()
tirx = tvm.tirx


@dataclass(frozen=True, slots=True)
class Argument:
    """A buffer argument of an intrinsic. The offset of its first element is a multiple of
    `factor`."""

    name: str
    shape: tuple[int, ...]
    dtype: str
    scope: str = "global"
    factor: int = 1

    def buffer(self, *, strided: bool = False) -> Any:
        from tvm.tirx.script.builder import ir as T

        names = [f"{self.name}{axis}" for axis in range(len(self.shape) - 1)]
        strides = [*(tirx.Var(name, "int32") for name in names), 1] if strided else None
        return T.buffer(
            self.shape,
            self.dtype,
            offset_factor=self.factor,
            strides=strides,
            scope=self.scope,
        )


def described(
    arguments: Sequence[Argument],
    reads: Sequence[int],
    extents: Sequence[int],
    value: Callable[..., Any],
    reductions: int = 0,
) -> Any:
    """A description: the last argument is set to `value(*buffers, index)` for each index; the last
    indices are reductions."""
    from tvm.tirx.script.builder import ir as T

    spatial = len(extents) - reductions
    kinds = "S" * spatial + "R" * reductions

    def body(*buffers: Any) -> None:
        with T.grid(*extents) as loops, T.sblock("update"):
            index = list(T.axis.remap(kinds, list(loops)))
            result = value(*buffers, index)
            T.buffer_store(buffers[-1], result, index[:spatial])

    return _function([a.buffer() for a in arguments], arguments, reads, body)


def coded(arguments: Sequence[Argument], reads: Sequence[int], call: Callable[..., Any]) -> Any:
    """An implementation by `call(*buffers)`; the strides are bound where it is used."""
    from tvm.tirx.script.builder import ir as T

    buffers = [argument.buffer(strided=True) for argument in arguments]
    return _function(buffers, arguments, reads, lambda *made: T.evaluate(call(*made)))


def first(buffer: Any) -> Any:
    """The address of a buffer's first element."""
    return tirx.address_of(buffer[tuple(0 for _ in buffer.shape)])


def _function(
    buffers: Sequence[Any],
    arguments: Sequence[Argument],
    reads: Sequence[int],
    body: Callable[..., None],
) -> Any:
    from tvm.script.ir_builder import IRBuilder
    from tvm.tirx.script.builder import ir as T

    with IRBuilder() as builder, T.prim_func(s_tir=True):
        T.func_name("main")
        made = [T.arg(a.name, b) for a, b in zip(arguments, buffers, strict=True)]
        whole = [buffer[tuple(slice(0, int(n)) for n in buffer.shape)] for buffer in made]
        with T.sblock("root"):
            T.reads(*(whole[at] for at in reads))
            T.writes(whole[-1])
            body(*made)
    return builder.get()
