"""Removes unroll annotations of loops that TVM must not unroll.

If each of many copies of a loop body assembles a vector element by element, LLVM's time grows
quadratically with their number, to minutes. A cross-thread reduction on a GPU can be lowered only
once: TVM fails on a second copy (`load_remap_`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tunefleet.compiler.code.indices import element, evaluated
from tunefleet.compiler.code.loop_nests import loads_of
from tunefleet.compiler.toolchain import load_tvm
from tunefleet.compiler.toolchain.programs import REDUCTION

tvm = load_tvm()
tirx = tvm.tirx

#: Annotations of an outer loop for unrolling inner loops, with the maximum number of copies.
_STEPS, _EXPLICIT = "pragma_auto_unroll_max_step", "pragma_unroll_explicit"
#: LLVM takes 1 to 2 s to insert 512 elements into vectors one by one, 30 s for 2,048.
_MOST = 512

#: Of tirx.For.
_SERIAL, _VECTORIZED = 0, 2


@dataclass(frozen=True)
class _Around:
    """The surroundings of a statement: the requested copies of an outer loop, the extents of the
    serial loops inside it, the innermost vector loop, and the variables' values along its lanes."""

    copies: int = 0
    serial: tuple[int, ...] = ()
    lanes: int = 1
    places: tuple[tuple[Any, NDArray[np.int64]], ...] = ()

    @property
    def unrolled(self) -> int:
        """The copies of the statement: TVM unrolls from the inside out up to the limit."""
        count = 1
        for extent in reversed(self.serial):
            if count * extent > self.copies:
                break
            count *= extent
        return count


def keep_rolled(schedule: Any) -> None:
    """Remove unrolling where it would gather too many elements."""
    for name in {name for name, around in _gathering(schedule.mod["main"].body, "", _Around())
                 if around.lanes * around.unrolled > _MOST}:  # fmt: skip
        for loop in schedule.get_loops(schedule.get_sblock(name)):
            annotations = schedule.get(loop).annotations
            for key in (_STEPS, _EXPLICIT):
                if key in annotations:
                    schedule.unannotate(loop, key)


def leave_to_nvcc(schedule: Any) -> None:
    """Leave unrolling to nvcc in loops around cross-thread reductions."""
    for name in _repeated(schedule.mod["main"].body, (), 1):
        for loop in schedule.get_loops(schedule.get_sblock(name)):
            if int(schedule.get(loop).annotations.get(_EXPLICIT, 0)):
                schedule.unannotate(loop, _EXPLICIT)
                schedule.annotate(loop, _EXPLICIT, 0)


def _repeated(node: Any, threads: tuple[Any, ...], times: int) -> Iterator[str]:
    """Blocks with cross-thread reductions that are repeated `times` times. `threads` are the loop
    variables bound to threads."""
    if isinstance(node, tirx.For):
        if node.thread_binding is not None:
            threads = (*threads, node.loop_var)
        elif int(node.kind) == _SERIAL:
            times *= int(node.extent) if isinstance(node.extent, tirx.IntImm) else 1
    if isinstance(node, tvm.s_tir.SBlockRealize):
        node = node.block if not node.iter_values else node
    if isinstance(node, tvm.s_tir.SBlockRealize):
        pairs = zip(node.block.iter_vars, node.iter_values, strict=True)
        sums = [value for variable, value in pairs if int(variable.iter_type) == REDUCTION]
        if times > 1 and any(_uses(value, threads) for value in sums):
            yield str(node.block.name_hint)
        return
    for below in getattr(node, "seq", [getattr(node, "body", None)]):
        if isinstance(below, tirx.Stmt):
            yield from _repeated(below, threads, times)


def _uses(value: Any, variables: Sequence[Any]) -> bool:
    used = tirx.analysis.undefined_vars(value)
    return any(each.same_as(variable) for each in used for variable in variables)


def _gathering(node: Any, block: str, around: _Around) -> Iterator[tuple[str, _Around]]:
    """Blocks that access non-contiguous elements along a vector, with their surroundings."""
    if isinstance(node, tirx.For):
        yield from _gathering(node.body, block, _inside(node, around))
    elif isinstance(node, tirx.SeqStmt):
        for each in node.seq:
            yield from _gathering(each, block, around)
    elif isinstance(node, tvm.s_tir.SBlockRealize):
        own = dict(around.places)
        pairs = zip(node.block.iter_vars, node.iter_values, strict=True)
        values = tuple((each.var, evaluated(value, own)) for each, value in pairs)
        inside = replace(around, places=(*around.places, *values))
        yield from _gathering(node.block.body, str(node.block.name_hint), inside)
    elif isinstance(node, tirx.BufferStore):
        if around.lanes > 1 and around.copies and any(_apart(a, around) for a in _accesses(node)):
            yield block, around
    elif hasattr(node, "body"):
        yield from _gathering(node.body, block, around)


def _inside(loop: Any, around: _Around) -> _Around:
    extent = int(loop.extent) if isinstance(loop.extent, tirx.IntImm) else 1
    copies = loop.annotations.get(_STEPS)
    if copies is not None:
        around = replace(around, copies=int(copies), serial=())
    elif int(loop.kind) == _SERIAL:
        around = replace(around, serial=(*around.serial, extent))
    if int(loop.kind) == _VECTORIZED:
        lane = (loop.loop_var, np.arange(extent, dtype=np.int64))
        around = replace(around, lanes=extent, places=(*around.places, lane))
    return around


def _accesses(store: Any) -> list[tuple[Any, Sequence[Any]]]:
    return [(store.buffer, store.indices), *loads_of(store.value)]


def _apart(access: tuple[Any, Sequence[Any]], around: _Around) -> bool:
    buffer, indices = access
    elements = element(buffer, indices, dict(around.places))
    strides = np.diff(np.broadcast_to(elements, (around.lanes,)))
    return not ((strides == 0).all() or (strides == 1).all())
