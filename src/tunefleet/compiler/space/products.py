"""Finds the product of a task: its rows, columns and depth.

Matrix products, batched ones and convolutions are all sums over products of data and weights. A
tensor intrinsic needs contiguous columns in the result, and a contiguous depth in the data.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tunefleet.compiler.toolchain import load_tvm
from tunefleet.compiler.toolchain.bfloat16 import BFLOAT16
from tunefleet.compiler.toolchain.programs import REDUCTION, SPATIAL

tvm = load_tvm()
tirx = tvm.tirx

#: The buffer with the weights of each vector of columns, side by side, and the block that writes it
#: (`padded_rows.py`).
WIDE_WEIGHTS = "wide_weights"


@dataclass(frozen=True, slots=True)
class DataAxis:
    """The position of an iterator in the data's indices, and its stride."""

    dimension: int
    step: int


@dataclass(frozen=True, slots=True)
class Product:
    """`C[..., column] += cast(A[..., depth]) * cast(B[...])`, the block `block` of a task.

    Iterators are indices in the block's order. `sums` are the reductions except the depth (the
    window of a convolution). `weight_axes` are the iterators of the weights' indices, `data_axes`
    the positions of iterators in the data's indices (None for an iterator in none or several of
    them, or with a non-linear index), `data_shape` their extents.
    """

    block: str
    extents: tuple[int, ...]
    rows: tuple[int, ...]
    column: int
    sums: tuple[int, ...]
    depth: int
    weight_axes: tuple[int, ...]
    data_axes: tuple[DataAxis | None, ...]
    data_shape: tuple[int, ...]
    #: The index of the block's read.
    data_read: int
    weight_read: int
    data: str
    weight: str
    accumulator: str
    constant_weight: bool
    #: By iterator.
    index_type: str
    #: Columns that share channels of the data: all, or those of a group of a convolution.
    group: int

    @property
    def is_grouped(self) -> bool:
        return self.group < self.extents[self.column]


def product_of(function: Any, schedule: Any) -> Product | None:
    """The product of a task whose other blocks have no reduction; None if there is none."""
    found = None
    for block in schedule.get_child_blocks(schedule.get_sblock("root")):
        statement = schedule.get(block)
        if all(int(v.iter_type) == SPATIAL for v in statement.iter_vars):
            continue
        if found is not None or statement.init is None:
            return None
        found = _product(function, statement)
        if found is None:
            return None
    return found


def _product(function: Any, block: Any) -> Product | None:
    variables = [v.var for v in block.iter_vars]
    kinds = [int(v.iter_type) for v in block.iter_vars]
    if not set(kinds) <= {SPATIAL, REDUCTION} or not isinstance(block.body, tirx.BufferStore):
        return None
    store = block.body
    if not isinstance(store.value, tirx.Add) or not isinstance(store.value.b, tirx.Mul):
        return None
    before = store.value.a
    (left, left_type), (right, right_type) = map(_stored, (store.value.b.a, store.value.b.b))
    factors, loads = (left, right), (before, left, right)
    if not all(isinstance(load, tvm.ir.TensorLoad) for load in loads):
        return None
    if not before.source.same_as(store.buffer):
        return None

    def number(index: Any) -> int | None:
        return next((i for i, v in enumerate(variables) if index.same_as(v)), None)

    def used(load: Any) -> set[int]:
        inside = {v for index in load.indices for v in tirx.analysis.undefined_vars(index)}
        return {i for i, v in enumerate(variables) if v in inside}

    result = [number(index) for index in store.indices]
    if None in result or result[-1] is None:
        return None
    column = result[-1]
    if column not in used(right):
        # Descriptions of intrinsics have the data first.
        return None
    data, weight = factors
    columns = int(block.iter_vars[column].dom.extent)
    channel, group = _channel(data.indices[-1], variables[column], columns)
    depth = number(channel)
    axes = [number(index) for index in weight.indices]
    if depth is None or kinds[depth] != REDUCTION or None in axes:
        return None
    if any(column in _used_by(variables, index) for index in (*data.indices[:-1], channel)):
        return None
    if any(depth in _used_by(variables, index) for index in data.indices[:-1]):
        return None
    numbers = [axis for axis in axes if axis is not None]
    if sorted(set(numbers)) != sorted(numbers) or not {column, depth} <= set(numbers):
        return None
    reads = [region.source for region in block.reads]
    at = [
        next((i for i, b in enumerate(reads) if b.same_as(f.source)), None) for f in (data, weight)
    ]
    if at[0] is None or at[1] is None or at[0] == at[1]:
        return None
    return Product(
        block=str(block.name_hint),
        extents=tuple(int(v.dom.extent) for v in block.iter_vars),
        rows=tuple(i for i, k in enumerate(kinds) if k == SPATIAL and i != column),
        column=column,
        sums=tuple(i for i, k in enumerate(kinds) if k == REDUCTION and i != depth),
        depth=depth,
        weight_axes=tuple(numbers),
        data_axes=_data_axes(variables, data.indices),
        data_shape=tuple(int(extent) for extent in data.source.shape),
        data_read=at[0],
        weight_read=at[1],
        data=left_type,
        weight=right_type,
        accumulator=str(store.buffer.dtype),
        constant_weight=_is_constant(function, weight.source),
        index_type=str(variables[column].ty.dtype),
        group=group,
    )


def _channel(index: Any, column: Any, columns: int) -> tuple[Any, int]:
    """The index of the data's channel inside its group, and the columns of a group."""
    if not isinstance(index, tirx.Add):
        return index, columns
    for first, inside in ((index.a, index.b), (index.b, index.a)):
        quotient = first.a if isinstance(first, tirx.Mul) else first
        if not isinstance(quotient, tirx.FloorDiv) or not quotient.a.same_as(column):
            continue
        if isinstance(quotient.b, tirx.IntImm):
            return inside, int(quotient.b)
    return index, columns


def _stored(value: Any) -> tuple[Any, str]:
    """The read of a factor of a product, and its type (`intrinsics.widened`)."""
    load, dtype = value.value if isinstance(value, tirx.Cast) else value, ""
    if isinstance(value, tvm.ir.Call) and value.op.name == "tirx.reinterpret":
        bits = value.args[0]
        if isinstance(bits, tvm.ir.prim.expr.LShift) and isinstance(bits.a, tirx.Cast):
            load, dtype = bits.a.value, BFLOAT16
    return load, dtype or str(getattr(getattr(load, "source", None), "dtype", ""))


def _used_by(variables: list[Any], index: Any) -> set[int]:
    inside = list(tirx.analysis.undefined_vars(index))
    return {i for i, v in enumerate(variables) if any(v.same_as(u) for u in inside)}


def _data_axes(variables: list[Any], indices: Any) -> tuple[DataAxis | None, ...]:
    found: list[list[DataAxis | None]] = [[] for _ in variables]
    for dimension, index in enumerate(indices):
        steps = list(tvm.sym.detect_linear_equation(index, variables))
        for number in _used_by(variables, index):
            step = steps[number] if steps else None
            whole = int(step) if isinstance(step, tirx.IntImm) else None
            found[number].append(DataAxis(dimension, whole) if whole is not None else None)
    return tuple(axes[0] if len(axes) == 1 else None for axes in found)


def _is_constant(function: Any, buffer: Any) -> bool:
    """Whether a buffer is a constant argument of the network."""
    marked = function.attrs.get("layout_free_buffers", ()) if function.attrs else ()
    free = {int(number) for number in marked}
    return any(
        number in free and argument.same_as(buffer)
        for number, argument in enumerate(function.params)
    )
