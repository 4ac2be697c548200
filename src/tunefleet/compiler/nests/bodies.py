"""The stores, loads and computations of a program's blocks, in terms of their iterators."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from tunefleet.compiler.code.loop_nests import CHIP, Counting, bits
from tunefleet.compiler.nests.template import (
    Buffer,
    BufferReference,
    Condition,
    Index,
    Unanswered,
    Work,
)
from tunefleet.compiler.toolchain import load_tvm

tvm = load_tvm()
tirx = tvm.tirx


_SUMS = (tirx.Add, tirx.Sub, tirx.Mul)


class Buffers:
    """The buffers of a program by index."""

    def __init__(self, function: Any, packing: Sequence[Any], packed: bool) -> None:
        """`packing` are the blocks that pack weights, which then are arguments. `packed`: whether
        postprocessing packs further weights."""
        self.found: list[Buffer] = []
        self._numbers: dict[Any, int] = {}
        marked = function.attrs.get("layout_free_buffers", ()) if function.attrs else ()
        self._arguments = list(function.params)
        self._free = [self._arguments[int(number)] for number in marked if packed]
        self._arguments += [block.writes[0].source for block in packing]

    def number(self, buffer: Any) -> int:
        if buffer not in self._numbers:
            self._numbers[buffer] = len(self.found)
            shape = tuple(int(extent) for extent in buffer.ty.shape)
            self.found.append(
                Buffer(
                    shape,
                    bits(str(buffer.ty.dtype)) / 8,
                    argument=any(buffer.same_as(each) for each in self._arguments),
                    on_chip=str(buffer.ty.storage_scope).startswith(CHIP),
                    packed=any(buffer.same_as(each) for each in self._free),
                    scope=str(buffer.ty.storage_scope) or "global",
                )
            )
        return self._numbers[buffer]

    def region(self, region: Any, variables: Sequence[Any]) -> BufferReference:
        indices = [_seen(each.min, variables) for each in region.region]
        sizes = [int(each.extent) for each in region.region]
        return BufferReference(
            self.number(region.source),
            tuple(replace(i, extent=size) for i, size in zip(indices, sizes, strict=True)),
        )


def affine(index: Any, variables: Sequence[Any]) -> Index:
    """Raises Unanswered for an index that is not a sum of iterators."""
    *steps, base = tvm.sym.detect_linear_equation(index, list(variables)) or [None]
    if not isinstance(base, tirx.IntImm) or not all(isinstance(s, tirx.IntImm) for s in steps):
        raise Unanswered("an index that is no sum of iterators")
    terms = ((dimension, int(step)) for dimension, step in enumerate(steps))
    return Index(int(base), tuple((d, step) for d, step in terms if step))


def _seen(index: Any, variables: Sequence[Any]) -> Index:
    """Like `affine`, and also accepts a quotient or remainder of a sum."""
    if isinstance(index, tirx.FloorDiv | tirx.FloorMod) and isinstance(index.b, tirx.IntImm):
        remains = isinstance(index, tirx.FloorMod)
        return replace(affine(index.a, variables), divisor=int(index.b), remains=remains)
    return affine(index, variables)


def work_of(
    store: Any,
    variables: Sequence[Any],
    extents: Sequence[int],
    buffers: Buffers,
    regions: Mapping[Any, BufferReference] | None = None,
) -> Work:
    """The work of a block's statement; Unanswered if it is not a store. `regions` map the buffers
    of a tensor instruction to regions."""
    if not isinstance(store, tirx.BufferStore):
        raise Unanswered("a block that is no store")
    body = _Body(buffers, variables, extents, regions or {})
    reading = _Reading(body.access, body=body)
    reading.visit(store.value)
    if reading.of_integers:
        # TVM reorders sums of integers and merges products with a common factor. The result is
        # equal for all programs only if no two loads of a buffer can be merged.
        references = set(reading.loads)
        if len({each.buffer for each in references}) != len(references):
            raise Unanswered("sums of integers of one buffer")
        body.conditions.clear()
        reading = _Reading(body.access, body=body)
        reading.visit(tvm.sym.Analyzer().simplify(store.value))
    return Work(
        body.access(store.buffer, store.indices),
        tuple(reading.loads),
        reading.counted(),
        tuple(body.conditions),
    )


@dataclass
class _Body:
    """Creates references for loads and stores."""

    buffers: Buffers
    variables: Sequence[Any]
    extents: Sequence[int]
    regions: Mapping[Any, BufferReference]
    conditions: list[Condition] = field(default_factory=list)

    def access(self, buffer: Any, indices: Sequence[Any]) -> BufferReference:
        if buffer in self.regions:
            # From the start of the region, in memory order.
            last = indices[-1]
            lanes = int(last.lanes) if isinstance(last, tirx.Ramp) else 1
            return replace(self.regions[buffer], lanes=lanes)
        number = self.buffers.number(buffer)
        try:
            return BufferReference(
                number, tuple(affine(index, self.variables) for index in indices)
            )
        except Unanswered:
            if not self.buffers.found[number].argument or self.buffers.found[number].packed:
                raise
        return BufferReference(number, (), flat=self._flat(buffer, indices))

    def _flat(self, buffer: Any, indices: Sequence[Any]) -> Index:
        """The flattened index, in which quotient and remainder of a number may recombine."""
        analyzer = tvm.sym.Analyzer()
        for variable, extent in zip(self.variables, self.extents, strict=True):
            analyzer.bind(variable, tvm.ir.Range(0, extent))
        total: Any = 0
        for index, extent in zip(indices, buffer.ty.shape, strict=True):
            total = total * extent + index
        return affine(analyzer.simplify(total), self.variables)


@dataclass(kw_only=True)
class _Reading(Counting[BufferReference]):
    """Counts operations, except conditions on iterators, which go to `body`."""

    body: _Body
    of_integers: bool = False

    def visit(self, node: Any) -> None:
        if not isinstance(node, tirx.Expr) or isinstance(node, tvm.ir.expr.TensorLoad):
            super().visit(node)
            return
        if isinstance(node, _SUMS) and str(node.ty.dtype).startswith(("int", "uint")):
            self.of_integers = True
        used = _dimensions(node, self.body.variables)
        if not used or _loads(node):
            super().visit(node)
        elif isinstance(node, tirx.And):
            self.visit(node.a)
            self.visit(node.b)
        elif str(node.ty.dtype) == "bool":
            self.body.conditions.append(Condition(node, used))
        else:
            raise Unanswered("a value that is computed of iterators")


def _dimensions(node: Any, variables: Sequence[Any]) -> tuple[int, ...]:
    inside = list(tirx.analysis.undefined_vars(node))
    return tuple(d for d, v in enumerate(variables) if any(v.same_as(u) for u in inside))


def _loads(node: Any) -> bool:
    counting = Counting(lambda *_: None)
    counting.visit(node)
    return bool(counting.loads)
