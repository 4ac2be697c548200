"""Sort, argsort and top-k: TVM's own definitions for CPUs call its runtime, which none of the graph
passes lets through.

A thread selects with a heap: of `n` elements the `k` that come first, in O(n log k). A GPU does so
where rows are many or short; else many threads sort a row by a network. Equal elements keep their
order; what is not a number is greater than every number, as in NumPy and torch.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from tunefleet.compiler.graph.kernels import WARP, each, workspace
from tunefleet.compiler.graph.loops import T, allocated, call_loops, parallel
from tunefleet.compiler.toolchain import load_tvm

tvm = load_tvm()
relax, tirx = tvm.relax, tvm.tirx

Results = Literal["both", "values", "indices"]
#: TVM's LLVM code compares neither.
COMPARED = {"float16": "float32", "bool": "uint8"}
#: Rows that keep a GPU busy with a thread for each.
_MANY_ROWS = 256


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
    order = _Order(compared, largest)

    def write(inputs: list[Any], outputs: list[Any]) -> None:
        with parallel(rows) as row:
            select(inputs[0], outputs, row, [allocated([wanted], dtype) for dtype in heap_dtypes])

    def kernels(inputs: list[Any], outputs: list[Any], most: int) -> None:
        if rows < _MANY_ROWS and length > WARP:
            by_network(inputs[0], outputs, most)
        else:
            by_heaps(inputs[0], outputs, most)

    def by_network(source: Any, outputs: list[Any], most: int) -> None:
        values, indices = (
            workspace(of, [rows, length], dtype)
            for of, dtype in zip(("values", "indices"), heap_dtypes, strict=True)
        )
        with each(rows * length, most) as number:
            row, place = number // length, number % length
            value = source[row // inner * (length * inner) + row % inner + place * inner]
            values[row, place] = value.astype(compared)
            indices[row, place] = place
        _Network(order, values, indices).write(rows, length, most)
        with each(rows * wanted, most) as number:
            row, place = number // wanted, number % wanted
            selected = row // inner * (wanted * inner) + row % inner + place * inner
            put(outputs, selected, values[row, place], indices[row, place])

    def by_heaps(source: Any, outputs: list[Any], most: int) -> None:
        # Beside one another, so that neighbouring threads read neighbouring elements.
        whole = [
            workspace(of, [wanted, rows], dtype)
            for of, dtype in zip(("values", "indices"), heap_dtypes, strict=True)
        ]
        with each(rows, most) as row:
            select(source, outputs, row, [_Column(buffer, row) for buffer in whole])

    def put(outputs: list[Any], place: Any, value: Any, index: Any) -> None:
        made = {"values": value, "indices": index}
        for kind, target in zip(kinds, outputs, strict=True):
            target[place] = made[kind].astype(dtypes[kind])

    def select(source: Any, outputs: list[Any], row: Any, storage: list[Any]) -> None:
        first = row // inner * (length * inner) + row % inner
        selected = row // inner * (wanted * inner) + row % inner
        heap = _Heap(wanted, order, *storage)
        heap.fill(source, first, inner)
        with T.serial(0, length - wanted) as rest:
            heap.offer(source[first + (rest + wanted) * inner], rest + wanted)
        with T.serial(0, wanted) as taken:
            end = wanted - 1 - taken
            put(outputs, selected + end * inner, heap.values[0], heap.indices[0])
            heap.sink(heap.values[end], heap.indices[end], 0, end)

    types = [relax.TensorType(after, dtypes[kind]) for kind in kinds]
    return call_loops(builder, name, [x], types, write, kernels)


@dataclass(frozen=True, slots=True)
class _Order:
    """Which of two elements comes first: no two are alike, since no two have one index."""

    dtype: str
    largest: bool

    def before(self, a: Any, at: Any, b: Any, bt: Any) -> Any:
        """Whether element `a` of index `at` comes before `b` of index `bt`."""
        if not self.largest:
            a, b = b, a
        return tirx.any(self._greater(a, b), tirx.all(self._at_least(a, b), at < bt))

    def _greater(self, a: Any, b: Any) -> Any:
        if not self.dtype.startswith("float"):
            return a > b
        return tirx.any(a > b, tirx.all(tirx.isnan(a), tirx.Not(tirx.isnan(b))))

    def _at_least(self, a: Any, b: Any) -> Any:
        """Said without Not: TVM takes the opposite of `b > a` for `a >= b`, numbers or not."""
        if not self.dtype.startswith("float"):
            return a >= b
        return tirx.any(a >= b, tirx.isnan(a))


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

    def __init__(self, size: int, order: _Order, values: Any, indices: Any) -> None:
        self._size = size
        self._before = order.before
        self._dtype = order.dtype
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


class _Network:
    """Batcher's bitonic network, in the form whose pairs all have their first element first: those
    that would be beyond the end of a row are left out. A row of `values` [rows, length] and its
    `indices` is sorted by stages: each makes sorted runs of twice the length of those before, and
    each of its steps is a kernel with a thread for each pair."""

    def __init__(self, order: _Order, values: Any, indices: Any) -> None:
        self._order, self._buffers = order, (values, indices)

    def write(self, rows: int, length: int, most: int) -> None:
        stages = (length - 1).bit_length()
        pairs = 2 ** (stages - 1)
        for stage in range(stages):
            with T.serial(0, stage + 1) as step, each(rows * pairs, most) as number:
                first, second = _pair(number % pairs, stage, step)
                with T.If(second < length), T.Then():
                    self._exchange(number // pairs, first, second)

    def _exchange(self, row: Any, first: Any, second: Any) -> None:
        """Of two elements of a row, that which comes first goes to the first place."""
        values, indices = self._buffers
        pair = [(values[row, place], indices[row, place]) for place in (second, first)]
        with T.If(self._order.before(*pair[0], *pair[1])), T.Then():
            for buffer, dtype in zip(self._buffers, (self._order.dtype, "int32"), strict=True):
                held = allocated([1], dtype)
                held[0] = buffer[row, first]
                buffer[row, first] = buffer[row, second]
                buffer[row, second] = held[0]


def _pair(number: Any, stage: int, step: Any) -> tuple[Any, Any]:
    """The places of a pair of a step. The first step of a stage holds one sorted run against the
    other from its end on; then a run is as bitonic as its halves are."""
    shift = tirx.const(stage, "int32") - step
    apart = tirx.const(1, "int32") << shift
    offset = number & (apart - 1)
    begin = (number >> shift) << (shift + 1)
    first = begin + offset
    mirrored = begin + 2 * apart - 1 - offset
    return first, tirx.Select(step == 0, mirrored, first + apart)
