"""Free dimensions of exported programs: what they are called, and the program at fixed shapes."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import sympy  # type: ignore[import-untyped]
import torch
from torch.export.graph_signature import ConstantArgument, InputKind, TensorArgument
from torch.utils import _pytree as pytree

from tunefleet.compiler.frontends.examples import NUMPY_DTYPES, lacking
from tunefleet.compiler.frontends.free import FixedInputs, FreeInput, fixed_inputs
from tunefleet.core.printing import quoted
from tunefleet.core.shapes import ShapeRequest
from tunefleet.errors import InputError, raise_mistake

if TYPE_CHECKING:
    from torch.export import ExportedProgram


def leaves_of(program: ExportedProgram) -> list[tuple[str, Any]]:
    """(name, value) of every leaf of the arguments, in order; the value is None for a tensor, and a
    one-element tuple of the constant for what the export fixed."""
    leaves: list[tuple[str, Any]] = []
    for spec in program.graph_signature.input_specs:
        if spec.kind is not InputKind.USER_INPUT:
            continue
        constant = isinstance(spec.arg, ConstantArgument)
        leaves.append((spec.arg.name, (spec.arg.value,) if constant else None))
    return leaves


def arguments(program: ExportedProgram, tensors: Sequence[Any]) -> tuple[Any, Any]:
    """The positional and keyword arguments that hold `tensors` in order, and the constants."""
    remaining = iter(tensors)
    leaves = [c[0] if c is not None else next(remaining) for _, c in leaves_of(program)]
    args, kwargs = pytree.tree_unflatten(leaves, program.call_spec.in_spec)
    return args, kwargs


@dataclass(frozen=True)
class Dimensions:
    """Free dimensions: what each expression of symbols is called, and which one a name stands for.

    A symbol has the name that its user gave it, or it is called by where it comes first, as
    `INPUT.AXIS`: torch itself does not keep names.
    """

    names: dict[str, str]
    expressions: dict[str, Any]

    @classmethod
    def of(cls, program: ExportedProgram, given: Mapping[str, str]) -> Dimensions:
        """`given`: names by symbol."""
        places = [
            (f"{node.name}.{axis}", extent.node.expr)
            for node in program.graph.nodes
            if node.op == "placeholder" and isinstance(node.meta.get("val"), torch.Tensor)
            for axis, extent in enumerate(node.meta["val"].shape)
            if not isinstance(extent, int)
        ]
        called: dict[Any, str] = {}
        for place, expression in places:
            if expression.is_Symbol:
                called.setdefault(expression, given.get(str(expression), place))
        shown = {symbol: sympy.Symbol(name) for symbol, name in called.items()}
        names = {str(e): str(e.subs(shown)) for _, e in places}
        return cls(names, {names[str(e)]: e for _, e in places})

    def expression(self, name: str) -> Any:
        """What a dimension is computed from."""
        return self.expressions.get(name, sympy.Symbol(name))


def user_inputs(
    program: ExportedProgram, dimensions: Dimensions, what: str
) -> tuple[FreeInput, ...]:
    """The tensors among the arguments; constants are dropped. Raises InputError for others."""
    values = {n.name: n.meta.get("val") for n in program.graph.nodes if n.op == "placeholder"}
    inputs = []
    for spec in program.graph_signature.input_specs:
        if spec.kind is not InputKind.USER_INPUT or isinstance(spec.arg, ConstantArgument):
            continue
        name, value = spec.arg.name, values.get(spec.arg.name)
        if not isinstance(spec.arg, TensorArgument) or not isinstance(value, torch.Tensor):
            raise InputError(
                f"{what}: input {name} is not a tensor, and its value is not fixed",
                cure="export it with that number as a constant",
            )
        if 0 in value.shape:
            raise InputError(f"{what}: input {name} is empty", cure="export it with larger inputs")
        extents = tuple(
            e if isinstance(e, int) else dimensions.names[str(e.node.expr)] for e in value.shape
        )
        inputs.append(FreeInput(name, extents, _dtype(value, name, what)))
    return tuple(inputs)


def fix(
    program: ExportedProgram,
    inputs: tuple[FreeInput, ...],
    dimensions: Dimensions,
    request: ShapeRequest,
    what: str,
) -> FixedInputs:
    """Values for all free dimensions of the inputs, within the ranges that the export allows.

    Dimensions that are computed from another one (``2*s0``) follow it. Raises InputError.
    """
    ranges = _ranges(program, dimensions)
    defaults = _defaults(inputs, request, ranges, dimensions)
    fixed = fixed_inputs(inputs, request, what, defaults)
    expressions = {name: dimensions.expression(name) for name in fixed.dims}
    known = {e: fixed.dims[name] for name, e in expressions.items() if e.is_Symbol}
    for name, value in fixed.dims.items():
        low, high = ranges.get(name, (1, math.inf))
        if not low <= value <= high:
            upper = "" if high == math.inf else f" to {high:.0f}"
            raise InputError(
                f"{what}: {name} is {value}, exported for {low}{upper or ' and more'}",
                cure=f"--dim {quoted(f'{name}={max(low, 1)}')}, or export it with another range",
            )
        expected = expressions[name].subs(known)
        if expected.is_Integer and int(expected) != value:
            raise InputError(
                f"{what}: {name} is {value}, but by the other dimensions it is {expected}",
                cure=f"leave {name} out",
            )
    return fixed


def specialise(
    program: ExportedProgram, fixed: FixedInputs, inputs: Sequence[FreeInput], what: str
) -> ExportedProgram:
    """The program at the shapes of `fixed`: exported again unless they were static already."""
    if all(isinstance(extent, int) for spec in inputs for extent in spec.extents):
        return program
    examples = [torch.zeros(s.shape, dtype=getattr(torch, s.dtype)) for s in fixed.specs]
    args, kwargs = arguments(program, examples)
    try:
        with torch.no_grad():
            return torch.export.export(program.module(), args, kwargs, strict=False)
    except Exception as exc:
        raise_mistake(exc)
        shapes = ", ".join(str(spec) for spec in fixed.specs)
        gist = next((line for line in str(exc).splitlines() if line.strip()), type(exc).__name__)
        raise InputError(
            f"{what}: PyTorch cannot export it for {shapes[:80]}: {gist.strip()[:100]}",
            cure="choose other values (--dim), or export the module at these shapes",
        ) from exc


def saved_inputs(program: ExportedProgram, fixed: FixedInputs) -> tuple[np.ndarray, ...] | None:
    """The example inputs that the program was exported with, if they have the shapes of `fixed`."""
    if program.example_inputs is None:
        return None
    leaves = pytree.tree_leaves(program.example_inputs)
    tensors = [leaf.detach() for leaf in leaves if isinstance(leaf, torch.Tensor)]
    fits = [(tuple(t.shape), str(t.dtype).removeprefix("torch.")) for t in tensors]
    if fits != [(spec.shape, spec.dtype) for spec in fixed.specs]:
        return None
    # `ascontiguousarray` would give a scalar an axis.
    return tuple(np.asarray(t.numpy(), order="C") for t in tensors)


def _ranges(program: ExportedProgram, dimensions: Dimensions) -> dict[str, tuple[int, float]]:
    """The smallest and the largest value of each symbol and derived dimension, by its name."""
    ranges = {}
    for symbol, values in program.range_constraints.items():
        high = float(values.upper)
        ranges[dimensions.names.get(str(symbol), str(symbol))] = (
            int(values.lower),
            high if high < 2**31 else math.inf,
        )
    return ranges


def _defaults(
    inputs: Sequence[FreeInput],
    request: ShapeRequest,
    ranges: dict[str, tuple[int, float]],
    dimensions: Dimensions,
) -> dict[str, int]:
    """Values that follow from others: derived dimensions, what they are derived from, and the
    least batch that the export allows where that is above one."""
    names = [e for spec in inputs for e in spec.extents if isinstance(e, str)]
    known = {name: values[0] for name, values in request.dims}
    for spec in inputs:
        shape = request.shape_of(spec.name) or ()
        if len(shape) == len(spec.extents):
            pairs = zip(spec.extents, shape, strict=True)
            known |= {extent: value for extent, value in pairs if isinstance(extent, str)}
    given = set(known)
    for spec in inputs:
        batch = spec.extents[0] if len(spec.extents) > 1 else None
        if isinstance(batch, str) and batch not in known and ranges.get(batch, (0, 0))[0] > 1:
            known[batch] = ranges[batch][0]
    for name in dict.fromkeys(names):
        for other, value in list(known.items()):
            _follow(name, other, value, known, dimensions)
    return {name: value for name, value in known.items() if name not in given}


def _follow(
    name: str, other: str, value: int, known: dict[str, int], dimensions: Dimensions
) -> None:
    """Adds what `other` being `value` says of `name` and of the symbol that both depend on."""
    ours, theirs = dimensions.expression(name), dimensions.expression(other)
    symbols = ours.free_symbols | theirs.free_symbols
    if len(symbols) != 1 or not (ours.free_symbols and theirs.free_symbols):
        return
    (symbol,) = symbols
    for solution in sympy.solve(theirs - value, symbol):
        result = ours.subs(symbol, solution)
        if result.is_Integer and int(result) > 0:
            known.setdefault(name, int(result))


def _dtype(value: torch.Tensor, name: str, what: str) -> str:
    dtype = str(value.dtype).removeprefix("torch.")
    if dtype not in NUMPY_DTYPES:
        raise InputError(
            f"{what}: input {name} is {dtype}, which {lacking(dtype)} does not have",
            cure="take pairs of real numbers, and torch.view_as_complex of them in forward"
            if value.is_complex()
            else "export the module with float32 or float16 inputs",
        )
    return dtype
