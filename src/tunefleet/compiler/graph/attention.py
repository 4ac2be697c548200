"""Attention over a number of tokens that vectors do not divide, for GPUs: padded inside, cut
nowhere.

Images of 14x14 patches and a class are 197 tokens, a prime. Tiles of a GPU divide loops, so
products with such an extent have hardly any (those of a CPU need not, `space/padded_rows.py`), and
rows that begin anywhere are read piecewise. Here keys and
values get columns and rows of zeros up to a multiple of a vector, the padded scores become minus
infinity before softmax and weigh nothing after it: the output is the same and has its own shape.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tunefleet.compiler.graph.constants import constant, value_of
from tunefleet.compiler.graph.folding import ints
from tunefleet.compiler.graph.rewriting import bindings_of, op_name, rewritten
from tunefleet.compiler.toolchain import load_tvm

tvm = load_tvm()
relax = tvm.relax

#: Multiples to pad to, floats of a vector, and how much longer a row may become.
_LANES = (16, 8)
_MOST_LONGER = 0.25

_MATMUL, _SOFTMAX, _RESHAPE = "relax.matmul", "relax.nn.softmax", "relax.reshape"
#: Between the products: what works on each score by itself.
_ELEMENTWISE = {
    f"relax.{name}"
    for name in (
        "add", "subtract", "multiply", "divide", "maximum", "minimum", "where", "tanh", "negative",
        "isnan",
    )
}  # fmt: skip


def pad_attention(mod: Any) -> Any:
    """`mod` (Relax, one function `main`) with attention over awkward numbers of tokens padded."""
    function = mod["main"]
    bindings = bindings_of(function)
    if bindings is None:
        return mod
    graph = _Graph(function, bindings)
    padded: dict[Any, int] = {}
    ends: dict[Any, int] = {}
    #: Where minus infinity is added: at the product, where it is fused, if it stays what it is.
    masked: set[Any] = set()
    for var, value in graph.values.items():
        if op_name(value) == _SOFTMAX:
            graph.add_padded(var, padded, ends, masked)
    if not padded:
        return mod
    builder = relax.BlockBuilder()
    writer = _Writer(builder, padded, ends, masked)
    return rewritten(mod, builder, bindings, writer.write, writer.new)


def _padded_extent(extent: int) -> int:
    """The next multiple of a vector, or 0 where that is `extent` itself or much more."""
    for lanes in _LANES:
        padded = -(-extent // lanes) * lanes
        if padded == extent:
            return 0
        if padded - extent <= _MOST_LONGER * extent:
            return padded
    return 0


class _Graph:
    """The bindings of a function, and who uses them."""

    def __init__(self, function: Any, bindings: list[Any]) -> None:
        self.values = {binding.var: binding.value for binding in bindings}
        self._users: dict[Any, list[Any]] = {}
        for binding in bindings:
            for var in _variables(binding.value):
                self._users.setdefault(var, []).append(binding.var)
        for var in _variables(function.body.body):
            self._users.setdefault(var, []).append(None)

    def add_padded(
        self, softmax: Any, padded: dict[Any, int], ends: dict[Any, int], masked: set[Any]
    ) -> None:
        """Note what becomes longer around a softmax, if all of it is as it must be: from the
        product that makes scores to those that take their weights."""
        value = self.values[softmax]
        shape = _shape(softmax)
        if not shape or int(value.attrs.axis) not in (-1, len(shape) - 1):
            return
        extent = shape[-1]
        longer = _padded_extent(extent)
        inside: set[Any] = {softmax}
        outputs: set[Any] = set()
        if not longer or not self._before(value.args[0], extent, inside):
            return
        before = inside - {softmax}
        if not self._after(softmax, extent, inside, outputs) or not outputs:
            return
        if any(user not in inside | outputs for var in inside for user in self._users[var]):
            return
        products = {var for var in before if op_name(self.values[var]) == _MATMUL}
        plain = len(products) == 1 and all(self._keeps_infinity(v) for v in before - products)
        masked |= products if plain else {softmax}
        padded |= dict.fromkeys(inside, longer)
        ends |= dict.fromkeys(outputs, longer)

    def _before(self, var: Any, extent: int, inside: set[Any]) -> bool:
        """Whether the scores come from one product, through what works on each by itself."""
        if var in inside:
            return True
        value = self.values.get(var)
        shape, name = _shape(var), op_name(value)
        if value is None or not shape or shape[-1] != extent or str(var.ty.dtype) != "float32":
            return False
        if name == _MATMUL:
            from_product = len(_shape(value.args[1])) >= 2
        elif name == _RESHAPE:
            from_product = self._before(value.args[0], extent, inside)
        elif name in _ELEMENTWISE:
            scores = [a for a in value.args if isinstance(a, relax.Var) and a in self.values]
            from_product = any([self._before(each, extent, inside) for each in scores])
            from_product = from_product and all(
                _can_pad(a, extent) for a in value.args if a not in inside
            )
        else:
            from_product = False
        if from_product:
            inside.add(var)
        return from_product

    def _keeps_infinity(self, var: Any) -> bool:
        """Whether minus infinity goes through it: sums, and products with positive numbers."""
        value = self.values[var]
        name = op_name(value)
        if name in ("relax.multiply", "relax.divide"):
            factor = value_of(value.args[1])
            return factor is not None and factor.size == 1 and bool((factor > 0).all())
        return name in (_RESHAPE, "relax.add")

    def _after(self, var: Any, extent: int, inside: set[Any], outputs: set[Any]) -> bool:
        """Whether the weights go into products alone, as their first operand."""
        for user in self._users[var]:
            value = self.values.get(user)
            name = op_name(value)
            if value is None:
                return False
            if name == _MATMUL:
                if not value.args[0].same_as(var):
                    return False
                if len(_shape(value.args[1])) < 2:
                    return False
                outputs.add(user)
                continue
            shape = _shape(user)
            if name not in _ELEMENTWISE | {_RESHAPE} or not shape or shape[-1] != extent:
                return False
            if not all(_can_pad(a, extent) for a in value.args if a not in inside and a != var):
                return False
            inside.add(user)
            if not self._after(user, extent, inside, outputs):
                return False
        return True


def _variables(expr: Any) -> list[Any]:
    if isinstance(expr, relax.Var):
        return [expr]
    if isinstance(expr, relax.Tuple):
        return [var for field in expr.fields for var in _variables(field)]
    if isinstance(expr, relax.TupleGetItem):
        return _variables(expr.tuple_value)
    if isinstance(expr, relax.Call):
        return [var for argument in expr.args for var in _variables(argument)]
    return []


def _shape(expr: Any) -> tuple[int, ...]:
    """Of a tensor whose shape is known, else ()."""
    shape = getattr(getattr(expr, "ty", None), "shape", None)
    return tuple(ints(shape.values)) if isinstance(shape, relax.ShapeExpr) else ()


def _can_pad(expr: Any, extent: int) -> bool:
    """Whether an operand has nothing to be padded, or can be."""
    if not hasattr(expr, "ty") or not hasattr(expr.ty, "dtype"):
        return True  # a shape, of a reshape
    shape = _shape(expr)
    if not shape:
        return int(getattr(expr.ty, "ndim", -1)) == 0
    return shape[-1] != extent or str(expr.ty.dtype) == "float32" or value_of(expr) is not None


class _Writer:
    """Writes the bindings again, some of them longer."""

    def __init__(
        self, builder: Any, padded: dict[Any, int], ends: dict[Any, int], masked: set[Any]
    ) -> None:
        self._builder = builder
        self._masked = masked
        self._padded = padded
        self._ends = ends
        self._new: dict[Any, Any] = {}

    def new(self, expr: Any) -> Any:
        if isinstance(expr, relax.Var):
            return self._new.get(expr, expr)
        if isinstance(expr, relax.Tuple):
            return relax.Tuple([self.new(field) for field in expr.fields])
        if isinstance(expr, relax.TupleGetItem):
            return relax.TupleGetItem(self.new(expr.tuple_value), int(expr.index))
        if isinstance(expr, relax.Call):
            arguments = [self.new(argument) for argument in expr.args]
            return relax.Call(expr.op, arguments, expr.attrs, expr.ty_args)
        return expr

    def write(self, var: Any, value: Any) -> None:
        if var in self._padded:
            value = self._longer(var, value, self._padded[var])
        elif var in self._ends:
            weights, values = value.args
            rows = self._filled(values, len(_shape(values)) - 2, self._ends[var])
            value = relax.op.matmul(self.new(weights), rows, value.attrs.out_dtype or None)
        else:
            value = self.new(value)
        self._new[var] = self._builder.emit(value)

    def _longer(self, var: Any, value: Any, longer: int) -> Any:
        name = op_name(value)
        if name == _MATMUL:
            keys = self._filled(value.args[1], len(_shape(value.args[1])) - 1, longer)
            out_dtype = value.attrs.out_dtype or None
            scores = relax.op.matmul(self.new(value.args[0]), keys, out_dtype)
            return (
                self._with_mask(scores, _shape(var)[-1], longer) if var in self._masked else scores
            )
        if name == _RESHAPE:
            shape = ints(value.args[1].values)
            return relax.op.reshape(self.new(value.args[0]), [*shape[:-1], longer])
        if name == _SOFTMAX:
            scores = self.new(value.args[0])
            if var in self._masked:
                masked = self._with_mask(scores, _shape(value.args[0])[-1], longer)
                scores = self._builder.emit(masked)
            return relax.op.nn.softmax(scores, axis=-1)
        extent = max(_shape(a)[-1] for a in value.args if a in self._padded)
        arguments = [
            self.new(a)
            if a in self._padded or not _shape(a) or _shape(a)[-1] != extent
            else self._filled(a, len(_shape(a)) - 1, longer)
            for a in value.args
        ]
        return relax.Call(value.op, arguments, value.attrs, value.ty_args)

    def _with_mask(self, scores: Any, extent: int, longer: int) -> Any:
        """Scores of which those behind `extent` weigh nothing after softmax."""
        left_out = np.zeros(longer, "float32")
        left_out[extent:] = -np.inf
        if not isinstance(scores, relax.Var):
            scores = self._builder.emit(scores)
        return relax.op.add(scores, constant(left_out))

    def _filled(self, expr: Any, axis: int, longer: int) -> Any:
        """A tensor with zeros behind, along one axis."""
        known, shape = value_of(expr), _shape(expr)
        widths = [(0, 0)] * len(shape)
        widths[axis] = (0, longer - shape[axis])
        if known is not None:
            return constant(np.pad(known, widths))
        flat = [width for pair in widths for width in pair]
        return self._builder.emit(relax.op.nn.pad(self.new(expr), flat))
