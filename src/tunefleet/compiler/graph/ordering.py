"""Sort, argsort and top-k: TVM's own definitions for CPUs call its runtime, which none of the graph
passes lets through.

All are a selection with a heap: of `n` elements the `k` that come first, in O(n log k). Equal
elements keep their order; what is not a number is greater than every number, as in NumPy and torch.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from tunefleet.compiler.graph.kernels import each, workspace
from tunefleet.compiler.graph.loops import T, allocated, call_loops, parallel
from tunefleet.compiler.toolchain import load_tvm

tvm = load_tvm()
relax, tirx = tvm.relax, tvm.tirx

Results = Literal["both", "values", "indices"]
#: TVM's LLVM code compares neither.
COMPARED = {"float16": "float32", "bool": "uint8"}


def sort(builder: Any, call: Any) -> Any:
    """The definition of relax.sort."""
    return _sorted(builder, call, "sort", "values", "int32")


def argsort(builder: Any, call: Any) -> Any:
    """The definition of relax.argsort."""
    return _sorted(builder, call, "argsort", "indices", str(call.attrs.dtype))


def topk(builder: Any, call: Any) -> Any:
    """The definition of relax.topk."""
    attrs = call.attrs
    results: Results = str(attrs.ret_type)  # type: ignore[assignment]
    return _selection(
        builder,
        "topk",
        call.args[0],
        attrs.axis,
        attrs.k,
        bool(attrs.largest),
        results,
        attrs.dtype,
    )


def _sorted(builder: Any, call: Any, name: str, results: Results, index_dtype: str) -> Any:
    attrs, x = call.attrs, call.args[0]
    length = x.ty.shape.values[int(attrs.axis)]
    return _selection(
        builder, name, x, attrs.axis, length, bool(attrs.descending), results, index_dtype
    )


def _selection(
    builder: Any,
    name: str,
    x: Any,
    axis: Any,
    count: Any,
    largest: bool,
    results: Results,
    index_dtype: Any,
) -> Any:
    shape = [int(extent) for extent in x.ty.shape.values]
    place = int(axis) % len(shape)
    length = shape[place]
    wanted = length if int(count) < 1 else min(int(count), length)
    after = [*shape[:place], wanted, *shape[place + 1 :]]
    compared = COMPARED.get(str(x.ty.dtype), str(x.ty.dtype))
    dtypes = {"values": str(x.ty.dtype), "indices": str(index_dtype)}
    kinds = ("values", "indices") if results == "both" else (results,)
    inner = 1
    for extent in shape[place + 1 :]:
        inner *= extent
    outer = 1
    for extent in shape[:place]:
        outer *= extent
    rows, heap_dtypes = outer * inner, (compared, "int32")

    def write(inputs: list[Any], outputs: list[Any]) -> None:
        with parallel(rows) as row:
            select(inputs[0], outputs, row, [allocated([wanted], dtype) for dtype in heap_dtypes])

    def kernels(inputs: list[Any], outputs: list[Any]) -> None:
        # Beside one another, so that neighbouring threads read neighbouring elements.
        whole = [
            workspace(of, [wanted, rows], dtype)
            for of, dtype in zip(("values", "indices"), heap_dtypes, strict=True)
        ]
        with each(rows) as row:
            select(inputs[0], outputs, row, [_Column(buffer, row) for buffer in whole])

    def select(source: Any, outputs: list[Any], row: Any, storage: list[Any]) -> None:
        targets = dict(zip(kinds, outputs, strict=True))
        first = row // inner * (length * inner) + row % inner
        selected = row // inner * (wanted * inner) + row % inner
        heap = _Heap(wanted, compared, largest, *storage)
        heap.fill(source, first, inner)
        with T.serial(0, length - wanted) as rest:
            heap.offer(source[first + (rest + wanted) * inner], rest + wanted)
        with T.serial(0, wanted) as taken:
            end = wanted - 1 - taken
            value, index = heap.values[0], heap.indices[0]
            if "values" in targets:
                targets["values"][selected + end * inner] = value.astype(dtypes["values"])
            if "indices" in targets:
                targets["indices"][selected + end * inner] = index.astype(dtypes["indices"])
            heap.sink(heap.values[end], heap.indices[end], 0, end)

    types = [relax.TensorType(after, dtypes[kind]) for kind in kinds]
    return call_loops(builder, name, [x], types, write, kernels)


@dataclass(frozen=True, slots=True)
class _Column:
    """A column of a buffer as one of its own."""

    buffer: Any
    number: Any

    def __getitem__(self, place: Any) -> Any:
        return self.buffer[place, self.number]

    def __setitem__(self, place: Any, value: Any) -> None:
        self.buffer[place, self.number] = value


class _Heap:
    """The elements of a row that come first so far; the root is the last of them. `values` and
    `indices` are of its size."""

    def __init__(self, size: int, dtype: str, largest: bool, values: Any, indices: Any) -> None:
        self._size = size
        self._largest = largest
        self._dtype = dtype
        self.values = values
        self.indices = indices
        # What sinks, where it is, and the child that it is held against.
        self._value = allocated([1], self._dtype)
        self._index, self._place, self._child = (allocated([1], "int32") for _ in range(3))

    def fill(self, source: Any, first: Any, stride: int) -> None:
        """Makes a heap of the first elements of a row."""
        with T.serial(0, self._size) as i:
            self.values[i] = source[first + i * stride].astype(self._dtype)
            self.indices[i] = i
        with T.serial(0, self._size // 2) as i:
            place = self._size // 2 - 1 - i
            self.sink(self.values[place], self.indices[place], place, self._size)

    def offer(self, value: Any, index: Any) -> None:
        """Takes an element in place of the root, if it comes before that."""
        value = value.astype(self._dtype)
        with T.If(self._before(value, index, self.values[0], self.indices[0])), T.Then():
            self.sink(value, index, 0, self._size)

    def sink(self, value: Any, index: Any, place: Any, size: Any) -> None:
        """Puts an element at `place`, below which it goes down to where it belongs."""
        values, indices = self.values, self.indices
        self._value[0], self._index[0], self._place[0] = value, index, place
        self._child[0] = self._place[0] * 2 + 1
        with T.While(self._child[0] < size):
            with T.If(self._child[0] + 1 < size), T.Then():
                child = self._child[0]
                other = values[child + 1], indices[child + 1]
                with T.If(self._before(values[child], indices[child], *other)), T.Then():
                    self._child[0] = child + 1
            child = self._child[0]
            deeper = self._before(self._value[0], self._index[0], values[child], indices[child])
            with T.If(deeper):
                with T.Then():
                    values[self._place[0]] = values[child]
                    indices[self._place[0]] = indices[child]
                    self._place[0] = child
                    self._child[0] = child * 2 + 1
                with T.Else():
                    self._child[0] = self._size
        values[self._place[0]] = self._value[0]
        indices[self._place[0]] = self._index[0]

    def _before(self, a: Any, at: Any, b: Any, bt: Any) -> Any:
        """Whether element `a` of index `at` comes before `b` of index `bt`."""
        if not self._largest:
            a, b = b, a
        return tirx.any(self._greater(a, b), tirx.all(self._at_least(a, b), at < bt))

    def _greater(self, a: Any, b: Any) -> Any:
        if not self._dtype.startswith("float"):
            return a > b
        return tirx.any(a > b, tirx.all(tirx.isnan(a), tirx.Not(tirx.isnan(b))))

    def _at_least(self, a: Any, b: Any) -> Any:
        """Said without Not: TVM takes the opposite of `b > a` for `a >= b`, numbers or not."""
        if not self._dtype.startswith("float"):
            return a >= b
        return tirx.any(a >= b, tirx.isnan(a))
