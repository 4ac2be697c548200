"""What both importers need to know of a Relax module, and how its errors are told."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tvm_ffi

from tunefleet.compiler.frontends.blame import gist
from tunefleet.compiler.frontends.examples import NUMPY_DTYPES, lacking
from tunefleet.compiler.graph.constants import value_of
from tunefleet.compiler.toolchain import load_tvm
from tunefleet.core.network import TensorSpec
from tunefleet.errors import InputError

tvm = load_tvm()
relax = tvm.relax


def tidy(mod: Any) -> Any:
    """Replaces what both importers write in ways that are unsafe or slow to run.

    - A table lookup with unchecked indices: a token id outside the vocabulary would crash the
      process that runs the network. The indices are clipped instead.
    - Squares and the cube of GPT-2's GELU: as powers they call `powf` for each element.
    - An addition of zeros, as of an attention mask that hides nothing.
    - Stacks, squeezes of axes counted from the end, and splits into one part: TVM's inference of
      layouts fails on them.
    - Parts of a concatenation without elements: TVM writes them into a library that it cannot read.
    """
    mod["main"] = _Tidy(mod).visit_expr(mod["main"])
    return mod


@relax.expr_functor.mutator
class _Tidy(relax.PyExprMutator):  # type: ignore[misc, name-defined]
    def visit_call_(self, call: Any) -> Any:
        call = self.visit_expr_post_order(call)
        if call.op == tvm.ir.Op.get("relax.take") and call.attrs.mode == "fast":
            return relax.op.take(*call.args, axis=call.attrs.axis, mode="clip")
        if call.op == tvm.ir.Op.get("relax.power"):
            return _product(call)
        if call.op == tvm.ir.Op.get("relax.add") and _is_all(call.args[1], 0):
            unchanged = tvm_ffi.structural_equal(call.ty, call.args[0].ty)
            return call.args[0] if unchanged else call
        if call.op == tvm.ir.Op.get("relax.squeeze") and call.attrs.axis is not None:
            rank = call.args[0].ty.ndim
            return relax.op.squeeze(call.args[0], [int(axis) % rank for axis in call.attrs.axis])
        if call.op == tvm.ir.Op.get("relax.split") and isinstance(call.ty, relax.TensorType):
            return call.args[0]
        if call.op == tvm.ir.Op.get("relax.stack"):
            return self._joined(call)
        if call.op == tvm.ir.Op.get("relax.concat"):
            return _without_nothing(call)
        return call

    def _joined(self, stack: Any) -> Any:
        """A stack as the concatenation of tensors with one more dimension."""
        if not isinstance(stack.args[0], relax.Tuple):
            return stack
        axis = int(stack.attrs.axis or 0) % stack.ty.ndim
        parts = [
            self.builder_.emit(relax.op.expand_dims(part, axis)) for part in stack.args[0].fields
        ]
        return relax.op.concat(parts, axis)


def _without_nothing(joined: Any) -> Any:
    """A concatenation of the parts that have elements."""
    if not isinstance(joined.args[0], relax.Tuple):
        return joined
    parts = [part for part in joined.args[0].fields if 0 not in map(int, part.ty.shape)]
    if len(parts) in (0, len(joined.args[0].fields)):
        return joined
    return parts[0] if len(parts) == 1 else relax.op.concat(parts, joined.attrs.axis)


def _product(power: Any) -> Any:
    """A square or a cube as products; any other power as it is."""
    base, exponent = power.args
    if _is_all(exponent, 2):
        return relax.op.multiply(base, base)
    if _is_all(exponent, 3):
        return relax.op.multiply(relax.op.multiply(base, base), base)
    return power


def _is_all(expr: Any, number: float) -> bool:
    value = value_of(expr)
    return value is not None and bool((value == number).all())


def output_specs(mod: Any, names: Sequence[str], what: str) -> tuple[TensorSpec, ...]:
    """The outputs of `main`, one per name; raises InputError unless all are static tensors."""
    result = mod["main"].ret_ty
    fields = list(result.fields) if isinstance(result, relax.TupleType) else [result]
    if len(fields) != len(names):
        raise InputError(
            f"{what}: TVM imports {len(fields)} outputs where the network has {len(names)}",
            cure="return plain tensors, each once",
        )
    return tuple(_static(field, name, what) for field, name in zip(fields, names, strict=True))


def cannot_import(what: str, exc: BaseException) -> InputError:
    """The error for a network that TVM's importer rejects, with the gist of its reason."""
    return InputError(
        f"{what}: TVM cannot import it: {gist(exc)}",
        cure="replace that operation or export without it",
    )


def _static(field: Any, name: str, what: str) -> TensorSpec:
    shape = getattr(field, "shape", None)
    if not isinstance(field, relax.TensorType) or not isinstance(shape, relax.ShapeExpr):
        raise InputError(
            f"{what}: output {name} is not a tensor of known shape",
            cure="return tensors whose shapes do not depend on values",
        )
    if not all(isinstance(extent, int | tvm.tirx.IntImm) for extent in shape):
        raise InputError(
            f"{what}: output {name} has the shape {shape}, which is not static",
            cure="export with fixed shapes",
        )
    if str(field.dtype) not in NUMPY_DTYPES:
        dtype = str(field.dtype)
        raise InputError(
            f"{what}: output {name} is {dtype}, which {lacking(dtype)} does not have",
            cure="export the network with float32 or float16 outputs",
        )
    extents = tuple(int(extent) for extent in shape)
    return TensorSpec(name, extents, str(field.dtype))
