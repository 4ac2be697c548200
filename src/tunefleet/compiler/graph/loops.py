"""Programs that are written as loops: what TE has no words for, such as steps that depend on one
another.

They are fused with nothing, and MetaSchedule has nothing to choose in them: they run as written.
Each is written twice, as loops of a CPU and as kernels of a GPU (`kernels.py`). The latter are an
attribute of the former until a graph is prepared for its target.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from tunefleet.compiler.graph.kernels import THREADS, each
from tunefleet.compiler.toolchain import load_tvm

tvm = load_tvm()
relax = tvm.relax

from tvm.script.ir_builder import IRBuilder  # noqa: E402  (TVM is loaded our way first)
from tvm.script.ir_builder import tirx as T  # noqa: E402

__all__ = ["T", "allocated", "call_loops", "for_target", "parallel", "with_roots"]

#: The attribute of a program that is it as kernels, once for each number of `kernels.THREADS`.
_KERNELS = "tunefleet.kernels"
#: Of TVM's patterns of operators, the one that is fused with nothing.
_OPAQUE = 8
#: Of a thread's own memory, which is on its stack, at most.
_OWN_BYTES = 2**16

Write = Callable[[list[Any], list[Any]], None]
WriteKernels = Callable[[list[Any], list[Any], int], None]
WriteStep = Callable[[list[Any], list[Any], Any], None]


def call_loops(
    builder: Any,
    name: str,
    inputs: Sequence[Any],
    outputs: Sequence[Any],
    write: Write,
    kernels: WriteKernels,
) -> Any:
    """A call of a program that `write` writes for a CPU and `kernels` for a GPU, both given the
    buffers of inputs and outputs.

    `inputs` are Relax expressions of static shape, `outputs` tensor types; the result is a tuple
    unless there is one output. While they write, the IRBuilder of TVM is open; buffers take one
    index for each dimension, or one for all of them. What `kernels` writes stands in kernels, but
    for memory that they share and serial loops over them; the number that it is also given is how
    many threads a block may have.
    """
    types = [x.ty for x in inputs]
    function = _program(name, types, outputs, write)

    def within(most: int) -> Write:
        return lambda inputs, outputs: kernels(inputs, outputs, most)

    of_gpu = [_program(name, types, outputs, within(most)) for most in THREADS]
    variable = builder.add_func(function.with_attr(_KERNELS, of_gpu), name)
    return relax.call_tir(variable, list(inputs), list(outputs) if len(outputs) > 1 else outputs[0])


def _program(name: str, inputs: Sequence[Any], outputs: Sequence[Any], write: Write) -> Any:
    with IRBuilder() as script:
        with T.prim_func(s_tir=True):
            T.func_name(name)
            T.func_attr({"tirx.noalias": True, "op_pattern": _OPAQUE})
            sources = [_argument(f"x{i}", type_) for i, type_ in enumerate(inputs)]
            targets = [_argument(f"y{i}", type_) for i, type_ in enumerate(outputs)]
            with T.sblock("root"), T.sblock(name):
                T.reads(*map(_whole, sources))
                T.writes(*map(_whole, targets))
                write([T.buffer_proxy(s) for s in sources], [T.buffer_proxy(t) for t in targets])
        # The module names it: equal programs are one.
        return script.get().without_attr("global_symbol")


def for_target() -> Any:
    """A pass that leaves of each of these programs the form that the current target runs."""

    def transform(mod: Any, _: Any) -> Any:
        target = tvm.target.Target.current(allow_none=True)
        is_gpu = target is not None and "gpu" in target.keys
        most = int(target.attrs["max_threads_per_block"]) if is_gpu else 0
        result = mod.clone()
        for variable, function in mod.functions_items():
            if isinstance(function, tvm.tirx.PrimFunc) and _KERNELS in (function.attrs or {}):
                kernels = zip(THREADS, function.attrs[_KERNELS], strict=True)
                chosen = (
                    next(form for threads, form in kernels if threads <= most)
                    if is_gpu
                    else function.without_attr(_KERNELS)
                )
                result.update_func(variable, chosen)
        return result

    return tvm.transform.module_pass(transform, opt_level=0, name="for_target")


def parallel(count: int) -> Any:
    """A loop whose iterations a CPU's threads share."""
    return (T.parallel if count > 1 else T.serial)(0, count)


def alone(count: int, step: WriteStep) -> tuple[Write, WriteKernels]:
    """What writes a program of `count` steps that need nothing of one another. A step is given the
    buffers of inputs and outputs and its number."""

    def write(inputs: list[Any], outputs: list[Any]) -> None:
        with parallel(count) as number:
            step(inputs, outputs, number)

    def kernels(inputs: list[Any], outputs: list[Any], most: int) -> None:
        with each(count, most) as number:
            step(inputs, outputs, number)

    return write, kernels


def allocated(shape: Sequence[int], dtype: str) -> Any:
    """Memory of a program, of each step of a parallel loop or of each thread of a kernel, indexed
    as the buffers that `write` is given. It is the thread's own unless it is large."""
    bits = int(tvm.DataType(dtype).bits)
    scope = "local" if math.prod(shape) * bits <= 8 * _OWN_BYTES else "global"
    return T.buffer_proxy(T.decl_buffer(list(shape), dtype, scope=scope))


def sum_type(dtype: str) -> str:
    """What sums of a type are kept in: of half precision single, as ONNX Runtime does."""
    return "float32" if dtype == "float16" else dtype


def with_roots() -> Any:
    """A pass that gives every program a root block. TVM writes some of its own definitions as loops
    (scatter), in one block, which later passes and schedules take for a root without blocks."""

    def transform(mod: Any, _: Any) -> Any:
        result = tvm.IRModule(dict(mod.functions_items()), attrs=mod.attrs)
        for variable, function in mod.functions_items():
            if isinstance(function, tvm.tirx.PrimFunc) and _is_one_block(function):
                result.update_func(variable, _rooted(function))
        return result

    return tvm.transform.module_pass(transform, opt_level=0, name="with_roots")


def _is_one_block(function: Any) -> bool:
    body = function.body
    return isinstance(body, tvm.s_tir.SBlockRealize) and body.block.name_hint != "root"


def _rooted(function: Any) -> Any:
    block = function.body.block
    body = block.body
    if isinstance(body, tvm.tirx.AttrStmt) and body.attr_key == "pragma_scope":
        # It says nothing to the code generator but makes it warn.
        body = body.body
    inner = tvm.s_tir.SBlock([], block.reads, block.writes, block.name_hint, body)
    root = tvm.s_tir.SBlock([], [], [], "root", tvm.s_tir.SBlockRealize([], True, inner))
    return function.with_body(tvm.s_tir.SBlockRealize([], True, root))


def _argument(name: str, declared: Any) -> Any:
    shape = [int(extent) for extent in declared.shape.values]
    return T.arg(name, T.buffer(shape, str(declared.dtype)))


def _whole(buffer: Any) -> Any:
    return buffer[tuple(slice(0, int(extent)) for extent in buffer.shape)]
