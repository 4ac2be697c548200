"""A product whose rows are one axis, padded to a multiple of a register tile's height, and whose
columns are vectors that need not divide them.

The 261 rows of a vision transformer or the 49 pixels of a small image divide into no good register
tile. Here all rows of a product (the pixels of a convolution too) become one axis, rounded up to a
multiple of the height. Rows past the last repeat the last one's data: their addresses are constant
in the loop over the depth, so it has no branch. What follows the product does not read them.

Columns that no vector divides, such as 58, 255 or 50,257, are covered by vectors of which the last
begins earlier: some columns are computed twice and stored twice, alike, so no vector is cut and no
store masked. Weights are packed for it, and what follows the product column by column is computed
in the same vectors.

The program is derived from the task's own, so it is not stored; a trace names the height and the
vectors in the product's block (`core.forms.tile_of`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import tvm_ffi

from tunefleet.compiler.graph.forms import form_of as stored_form
from tunefleet.compiler.space.overlapping import OtherColumns, Overlapping
from tunefleet.compiler.space.product_steps import PACKED
from tunefleet.compiler.space.products import WIDE_WEIGHTS, Product, product_of
from tunefleet.compiler.space.statements import (
    reading,
    realized,
    replaced,
    statements_of,
    with_statements,
)
from tunefleet.compiler.toolchain import load_tvm
from tunefleet.compiler.toolchain.programs import SPATIAL
from tunefleet.core.forms import tile_of, tiled_block
from tunefleet.errors import ForeignError

tvm = load_tvm()
tirx = tvm.tirx


def form_of(module: Any, trace: str) -> Any:
    """The program that a trace schedules, as a module whose only function is `main`.

    Raises IndexError or ForeignError where the task has no such form."""
    height, lanes = tile_of(trace)
    stored = stored_form(module, trace)
    if not height:
        return stored
    padded = with_padded_rows(stored, height, lanes)
    if padded is None:
        raise ForeignError(f"the task has no product with rows in tiles of {height}")
    return padded


def tiled_product(module: Any) -> Product | None:
    """The product of a module with the single function `main`, if its rows can be tiled."""
    function = module["main"]
    schedule = tvm.s_tir.Schedule(module, debug_mask="none")
    product = product_of(function, schedule)
    if product is None or len(schedule.get_output_blocks("root")) != 1 or not own_rows(product):
        return None
    root = function.body.block.body
    if not all(map(_is_plain, getattr(root, "seq", [root]))):
        return None
    return product


def own_rows(product: Product) -> tuple[int, ...]:
    """The row iterators that do not index the weights: those that tiles may divide."""
    return tuple(number for number in product.rows if number not in product.weight_axes)


def with_padded_rows(module: Any, height: int, lanes: int = 0) -> Any | None:
    """The module with its product's rows as one axis, a multiple of `height`, and its columns in
    vectors of `lanes` that overlap, if these are given; None without such a product, where it has
    fewer columns, or where what follows is not computed column by column."""
    product = tiled_product(module)
    if product is None or lanes > product.extents[product.column]:
        return None
    function = module["main"]
    root = function.body.block
    statements = statements_of(root)
    place, realize = next(
        (number, found)
        for number, statement in enumerate(statements)
        if (found := realized(statement)) and str(found.block.name_hint) == product.block
    )
    padded = _Padded(product, realize.block, height, lanes)
    after = statements[place + 1 :]
    if any(parameter.same_as(padded.result) for parameter in function.params):
        after = [padded.copy()]
    if lanes and not all(map(padded.is_alike, after)):
        return None
    try:
        followed = [padded.following(each, function.params) for each in after]
    except OtherColumns:
        return None
    made = [*padded.weights(), padded.nest(), *followed]
    allocated = [b for b in root.alloc_buffers if not padded.replaces(b)] + padded.buffers
    statements[place:] = made
    block = with_statements(root, statements, allocated)
    body = tvm.s_tir.SBlockRealize([], function.body.predicate, block)
    return tvm.IRModule({"main": function.with_body(body)})


def _is_plain(statement: Any) -> bool:
    """Whether a statement is one block that stores one element."""
    realize = realized(statement)
    return realize is not None and isinstance(realize.block.body, tirx.BufferStore)


class _Padded:
    """The block of a product with other iterators: axes of the weights, all own rows as one, the
    column, the sums and the depth. What follows it in the same order has one axis of rows too."""

    def __init__(self, product: Product, block: Any, height: int, lanes: int) -> None:
        self._product = product
        self._block = block
        self._own = own_rows(product)
        self._shared = tuple(number for number in product.rows if number not in self._own)
        self._count = math.prod(product.extents[number] for number in self._own)
        self._name = tiled_block(product.block, height, lanes)
        self.result = block.body.buffer
        rows = -(-self._count // height) * height
        columns = product.extents[product.column]
        self._vectors = Overlapping(columns, lanes, product.index_type) if lanes else None
        self._columns = self._vectors.computed if self._vectors else columns
        self._weight = block.reads[product.weight_read].source
        self._wide = self._wide_weights() if lanes else self._weight
        self._sums = self._buffer(self._name, rows, self._columns, product.accumulator)
        variables = [v.var for v in block.iter_vars]
        dimensions = [_place(variables, index) for index in block.body.indices]
        #: Buffers, what takes their place, and the iterators that their dimensions are.
        self._replaced = [(self.result, self._sums, dimensions)]

    @property
    def buffers(self) -> list[Any]:
        """The buffers that take the place of others."""
        new = [new for _, new, _ in self._replaced]
        return new if self._wide.same_as(self._weight) else [self._wide, *new]

    def replaces(self, buffer: Any) -> bool:
        return any(old.same_as(buffer) for old, _, _ in self._replaced)

    def _wide_weights(self) -> Any:
        product = self._product
        shape = [
            self._columns if number == product.column else int(extent)
            for number, extent in zip(product.weight_axes, self._weight.shape, strict=True)
        ]
        typed = [tirx.const(extent, product.index_type) for extent in shape]
        return tirx.decl_buffer(typed, str(self._weight.dtype), name=WIDE_WEIGHTS)

    def weights(self) -> list[Any]:
        """The loops that put the weights of each vector's columns side by side, if these are not
        the program's."""
        if self._vectors is None:
            return []
        product, wide = self._product, self._wide
        index = [tirx.Var(f"v_{i}", product.index_type) for i in range(len(wide.shape))]
        column = product.weight_axes.index(product.column)
        read = [*index]
        read[column] = self._vectors.column(index[column])
        body = tirx.BufferStore(wide, self._weight[tuple(read)], index)
        extents = [int(extent) for extent in wide.shape]
        made = {PACKED: True} if product.constant_weight else None
        reads = [_element(self._weight, read)]
        kinds = [SPATIAL] * len(index)
        return [_nested(WIDE_WEIGHTS, index, kinds, extents, reads, body, None, made)]

    def nest(self) -> Any:
        """The loops of the product."""
        product, index_type = self._product, self._product.index_type
        row = tirx.Var("v_r", index_type)
        numbers = [*self._shared, None, product.column, *product.sums, product.depth]
        sizes = dict(enumerate(product.extents)) | {product.column: self._columns}
        variables, kinds, extents = [], [], []
        new: dict[int, Any] = {}
        padded = int(self._sums.shape[len(self._shared)])
        for number in numbers:
            old = None if number is None else self._block.iter_vars[number]
            variables.append(row if old is None else tirx.Var(str(old.var.name), index_type))
            kinds.append(SPATIAL if old is None else int(old.iter_type))
            extents.append(padded if number is None else sizes[number])
            if number is not None:
                new[number] = variables[-1]
        last = tirx.const(self._count - 1, index_type)
        new |= self._split(row if padded == self._count else tirx.min(row, last))
        by_old = [(v.var, new[number]) for number, v in enumerate(self._block.iter_vars)]
        index = variables[: len(self._shared) + 2]
        sums = self._sums
        factors = reading(replaced(self._block.body.value.b, by_old), self._weight, self._wide)
        body = tirx.BufferStore(sums, sums[tuple(index)] + factors, index)
        init = tirx.BufferStore(sums, self._block.init.value, index)
        reads = [reading(replaced(region, by_old), self._weight, self._wide)
                 for region in self._block.reads
                 if not region.source.same_as(self.result)]  # fmt: skip
        return _nested(self._name, variables, kinds, extents, reads, body, init)

    def copy(self) -> Any:
        """The loops that copy the sums into the program's result."""
        extents = [int(extent) for extent in self.result.shape]
        index_type = self._product.index_type
        index = [tirx.Var(f"v_{i}", index_type) for i in range(len(extents))]
        # A copy of the result itself, until `following` replaces what it reads.
        body = tirx.BufferStore(self.result, self.result[tuple(index)], index)
        reads = [_element(self.result, index)]
        return _nested("rows", index, [SPATIAL] * len(index), extents, reads, body, None)

    def following(self, statement: Any, parameters: Sequence[Any]) -> Any:
        """A statement after the product that reads the replaced buffers, with one axis of rows if
        it has the product's, and then with its vectors of columns too."""
        alike = self.is_alike(statement)
        if alike:
            statement = self._joined(statement, parameters)
        place = realized(statement).block.iter_vars[-1].var if alike else None

        def load(node: Any) -> Any:
            found = self._index(node.source, list(node.indices), place)
            return node if found is None else found[0][tuple(found[1])]

        def region(node: Any) -> Any:
            found = self._index(node.source, [each.min for each in node.region], place)
            if found is None:
                return node
            buffer, index = found
            if any(int(each.extent) != 1 for each in node.region):
                # More than an element: all of it, since rows of a window do not follow each other.
                return tirx.BufferRegion(buffer, [_whole(extent) for extent in buffer.shape])
            return _element(buffer, index)

        rules = [(tvm.ir.TensorLoad, load), (tvm.ir.TensorRegion, region)]
        realize = realized(statement)
        block = realize.block
        by_column = []
        if alike and self._vectors is not None:
            by_column = [(self._vectors.variable, self._vectors.column(place))]
        reads = [replaced(tvm_ffi.structural_map(each, rules), by_column) for each in block.reads]
        value = replaced(tvm_ffi.structural_map(block.body.value, rules), by_column)
        stored = [replaced(each, by_column) for each in block.body.indices]
        body = tirx.BufferStore(block.body.buffer, value, stored)
        kinds = [int(v.iter_type) for v in block.iter_vars]
        extents = [int(v.dom.extent) for v in block.iter_vars]
        variables = [v.var for v in block.iter_vars]
        return _nested(
            str(block.name_hint), variables, kinds, extents, reads, body, block.init,
            block.annotations,
        )  # fmt: skip

    def _buffer(self, name: str, rows: int, columns: int, dtype: str) -> Any:
        shared = [self._product.extents[number] for number in self._shared]
        return tirx.decl_buffer([*shared, rows, columns], dtype, name=name)

    def _split(self, row: Any) -> dict[int, Any]:
        """The own row iterators by their one axis."""
        extents = self._product.extents
        found = {number: tirx.const(0, self._product.index_type) for number in self._own}
        stride = self._count
        for number in (number for number in self._own if extents[number] > 1):
            outermost = stride == self._count
            stride //= extents[number]
            value = row if stride == 1 else tirx.floordiv(row, stride)
            found[number] = value if outermost else tirx.floormod(value, extents[number])
        return found

    def _index(
        self, buffer: Any, indices: Sequence[Any], place: Any
    ) -> tuple[Any, list[Any]] | None:
        """What takes a buffer's place, and its indices by the buffer's. `place` is the iterator
        over the columns of vectors, of a statement that has one."""
        match = next((each for each in self._replaced if each[0].same_as(buffer)), None)
        if match is None:
            return None
        _, new, dimensions = match
        by_number = dict(zip(dimensions, indices, strict=True))
        row: Any = tirx.const(0, self._product.index_type)
        for number in self._own:
            row = row * self._product.extents[number] + by_number[number]
        shared = [by_number[number] for number in self._shared]
        analyzer = tvm.sym.Analyzer()
        column = by_number[self._product.column]
        if self._vectors is not None:
            column = self._vectors.place(column, place)
        made = [*shared, row, column]
        return new, [analyzer.simplify(each) for each in made]

    def is_alike(self, statement: Any) -> bool:
        """Whether a statement computes an element for each of the product's, or of its first
        columns, in its order."""
        block = realized(statement).block
        extents = [int(v.dom.extent) for v in block.iter_vars]
        kinds = {int(v.iter_type) for v in block.iter_vars}
        if block.annotations or kinds != {SPATIAL}:  # a schedule of its own
            return False
        numbers = (*self._shared, *self._own, self._product.column)
        *rows, columns = [self._product.extents[number] for number in numbers]
        same = extents[-1] == columns
        return extents[:-1] == rows and (same or (not self._vectors and extents[-1] < columns))

    def _joined(self, statement: Any, parameters: Sequence[Any]) -> Any:
        """An alike statement with the rows as one axis; its result too if it is no argument."""
        block = realized(statement).block
        old = [v.var for v in block.iter_vars]
        index_type, body = self._product.index_type, block.body
        shared = [tirx.Var(str(each.name), index_type) for each in old[: len(self._shared)]]
        row, column = tirx.Var("v_r", index_type), tirx.Var(str(old[-1].name), index_type)
        columns, real = int(block.iter_vars[-1].dom.extent), column
        if self._vectors is not None:
            columns, real = self._columns, self._vectors.variable
        by_old = list(zip(old, [*shared, *self._split(row).values(), real], strict=True))
        in_order = [_place(old, index) for index in body.indices] == list(range(len(old)))
        stored = replaced(body, by_old)
        if in_order and not any(each.same_as(body.buffer) for each in parameters):
            name, dtype = str(body.buffer.name), str(body.buffer.dtype)
            buffer = self._buffer(name, self._count, columns, dtype)
            numbers = [*self._shared, *self._own, self._product.column]
            self._replaced.append((body.buffer, buffer, numbers))
            stored = tirx.BufferStore(buffer, stored.value, [*shared, row, column])
        sizes = [*(self._product.extents[n] for n in self._shared), self._count, columns]
        reads = [replaced(region, by_old) for region in block.reads]
        variables = [*shared, row, column]
        return _nested(
            str(block.name_hint), variables, [SPATIAL] * len(sizes), sizes, reads, stored, None
        )


def _place(variables: Sequence[Any], index: Any) -> int:
    """The number of the variable that an index is; -1 for another index."""
    return next((n for n, variable in enumerate(variables) if index.same_as(variable)), -1)


def _nested(
    name: str,
    variables: Sequence[Any],
    kinds: Sequence[int],
    extents: Sequence[int],
    reads: Sequence[Any],
    body: Any,
    init: Any,
    annotations: Any = None,
) -> Any:
    """A block inside loops over its iterators."""
    iterators = [
        tirx.IterVar(_range(extent, variable), variable, kind)
        for variable, kind, extent in zip(variables, kinds, extents, strict=True)
    ]
    written = [_element(body.buffer, body.indices)]
    block = tvm.s_tir.SBlock(iterators, reads, written, name, body, init, annotations=annotations)
    loops = [tirx.Var(f"i{number}", str(v.ty.dtype)) for number, v in enumerate(variables)]
    nest: Any = tvm.s_tir.SBlockRealize(loops, True, block)
    for loop, extent in zip(reversed(loops), reversed(extents), strict=True):
        whole = _range(extent, loop)
        nest = tirx.For(loop, whole.min, whole.extent, 0, nest)
    return nest


def _range(extent: int, variable: Any) -> Any:
    dtype = str(variable.ty.dtype)
    return tvm.ir.Range.from_min_extent(tirx.const(0, dtype), tirx.const(extent, dtype))


def _whole(extent: Any) -> Any:
    return tvm.ir.Range.from_min_extent(tirx.const(0, str(extent.ty.dtype)), extent)


def _element(buffer: Any, index: Sequence[Any]) -> Any:
    return tirx.BufferRegion(buffer, [tvm.ir.Range.from_min_extent(each, 1) for each in index])
