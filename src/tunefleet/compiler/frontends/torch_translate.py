"""Nodes of a decomposed program as Relax, one at a time, each checked against what torch says of
it."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any

import torch
from torch.fx import GraphModule, Node
from tvm.relax.frontend.torch.exported_program_translator import ExportedProgramImporter

from tunefleet.artifacts.tensors import ALIGNMENT
from tunefleet.compiler.frontends.blame import gist
from tunefleet.compiler.frontends.examples import NUMPY_DTYPES
from tunefleet.compiler.frontends.torch_bfloat16 import CAST, NARROW, WIDE
from tunefleet.compiler.frontends.torch_nodes import argument
from tunefleet.compiler.frontends.torch_operators import conversion
from tunefleet.compiler.graph.constants import constant
from tunefleet.compiler.graph.legalize import legalize
from tunefleet.compiler.toolchain import load_tvm
from tunefleet.core.step import IS_RANDOM
from tunefleet.errors import raise_mistake
from tunefleet.system.progress import working_on

tvm = load_tvm()
relax = tvm.relax

#: What may be left of Relax's operators once a node is legalised.
_LEGAL = frozenset({"relax.call_tir", "relax.call_pure_packed", "relax.null_value"})


#: Maximum operators that one node becomes: TVM writes a power of integers as so many products.
_MOST_OPERATORS = 5_000

#: It asserts what is known of a tensor, and is never computed.
_METADATA = torch.ops.aten._assert_tensor_metadata.default


class CannotConvertError(Exception):
    """Why a node cannot be compiled, in a few words."""


def relax_constant(tensor: torch.Tensor) -> Any:
    """A tensor as a Relax constant that shares its memory where the layout allows that."""
    tensor = tensor.detach()
    if tensor.layout != torch.strided:
        tensor = tensor.to_dense()
    tensor = tensor.resolve_conj().resolve_neg().contiguous()
    if str(tensor.dtype).removeprefix("torch.") not in NUMPY_DTYPES:
        if tensor.data_ptr() % ALIGNMENT:
            tensor = tensor.clone()  # a view into a larger tensor
        return relax.const(tvm.runtime.from_dlpack(tensor))
    return constant(tensor.numpy())


def tensor_type(value: torch.Tensor) -> Any:
    """The Relax type of a tensor; of a shape that depends on values only the rank is known."""
    dtype = str(value.dtype).removeprefix("torch.")
    if all(isinstance(extent, int) for extent in value.shape):
        return relax.TensorType([int(e) for e in value.shape], dtype)
    return relax.TensorType(ndim=value.dim(), dtype=dtype)


class Translator(ExportedProgramImporter):  # type: ignore[misc]  # TVM has no types
    """TVM's converters and ours behind one method; `env` holds what is known of each node."""

    def __init__(self, builder: Any) -> None:
        super().__init__()
        self.block_builder = builder
        self.cast: dict[Node, str] = {}

    def convert(self, node: Node) -> Any:
        """The Relax of `node`, whose operands are in `env`: an expression, or a list of them for
        an operator with several outputs. Raises whatever TVM raises."""
        working_on(f"{_name(node)} {node.name}")
        if node.target is operator.getitem:
            source, index = node.args
            return self.env[source][index]
        ours = conversion(node.target)
        result = self.convert_map[_name(node)](node) if ours is None else ours(self, node)
        return self._listed(result, node)

    def _listed(self, result: Any, node: Node) -> Any:
        value = node.meta.get("val")
        if isinstance(value, torch.Tensor):
            if not isinstance(result, relax.Expr):
                result = relax.const(result, str(value.dtype).removeprefix("torch."))
            # TVM's own converters leave some, which have no type yet: those of pools without batch.
            return self.block_builder.emit(result) if isinstance(result, relax.Call) else result
        if not isinstance(value, tuple | list):
            raise CannotConvertError("it gives no tensor")
        if isinstance(result, relax.Expr):
            fields = getattr(result.ty, "fields", None)
            count = 1 if fields is None else len(fields)
            if count <= max(_used(node)):
                raise CannotConvertError(f"{count} of its {len(value)} outputs is known")
            if fields is None:
                return [result]
            return [self.block_builder.emit(relax.TupleGetItem(result, i)) for i in range(count)]
        return list(result)


def _name(node: Node) -> str:
    """The operator of a node as TVM names it."""
    return getattr(node.target, "__name__", str(node.target))


class CompileCheck:
    """Tells whether a node can be compiled, by compiling it alone as far as TIR. Nodes that look
    the same are tried once."""

    def __init__(self) -> None:
        self._known: dict[Any, str | None] = {}

    def refusal(self, node: Node, constants: dict[Node, torch.Tensor]) -> str | None:
        """Why `node` cannot be compiled, None where it can."""
        if node.target is operator.getitem:
            return None
        if node.op != "call_function" or not isinstance(node.target, torch._ops.OpOverload):
            reason = "it is control flow or no operator of torch"
            return f"{reason}, and {IS_RANDOM}" if _calls_random(node) else reason
        if _is_random(node):
            return IS_RANDOM
        values = [operand.meta.get("val") for operand in node.all_input_nodes]
        results = [_tensors(node)[index] for index in _used(node)]
        for value in (*values, *results):
            if isinstance(value, tuple | list):
                return "it takes a list that another operator gives"
            if not isinstance(value, torch.Tensor):
                return "it takes or gives something else than a tensor"
            if not all(isinstance(extent, int) for extent in value.shape):
                return "a shape depends on values"
            known = str(value.dtype).removeprefix("torch.") in NUMPY_DTYPES
            if not known and not _is_rounding(node):
                return f"it computes in {str(value.dtype).removeprefix('torch.')}"
        if any(value.numel() == 0 for value in results):
            return "its result is empty"
        key = _key(node, constants)
        if key not in self._known:
            self._known[key] = self._try(node, constants)
        return self._known[key]

    def _try(self, node: Node, constants: dict[Node, torch.Tensor]) -> str | None:
        builder = relax.BlockBuilder()
        translator = Translator(builder)
        if conversion(node.target) is None and _name(node) not in translator.convert_map:
            return "TVM has no conversion for it"
        params = []
        for operand in node.all_input_nodes:
            if operand in constants:
                translator.env[operand] = relax_constant(constants[operand])
            else:
                variable = relax.Var(operand.name, tensor_type(operand.meta["val"]))
                translator.env[operand] = variable
                params.append(variable)
        try:
            with builder.function("main", params):
                with builder.dataflow():
                    result = translator.convert(node)
                    results = result if isinstance(result, list) else [result]
                    used = _used(node)
                    emitted = [builder.emit(results[index]) for index in used]
                    whole = builder.emit_output(relax.Tuple(emitted))
                builder.emit_func_output(whole)
            for index, output in zip(used, emitted, strict=True):
                _check(output, _tensors(node)[index])
            mod = builder.get()
            count = sum(len(block.bindings) for block in mod["main"].body.blocks)
            if count > _MOST_OPERATORS:
                raise CannotConvertError(f"TVM writes it as {count:,} operators")
            _check_legal(mod)
        except CannotConvertError as exc:
            return str(exc)
        except Exception as exc:
            raise_mistake(exc)
            return f"TVM's conversion fails: {gist(exc)}"
        return None


def _is_rounding(node: Node) -> bool:
    """Whether a node is half of a cast to bfloat16 and back. What lies between the halves goes
    nowhere else: NumPy could not hold it."""
    if node.target is not CAST or not node.all_input_nodes:
        return False
    (source,) = node.all_input_nodes
    narrow = source if node.meta["val"].dtype is WIDE else node
    if narrow.target is not CAST or narrow.meta["val"].dtype is not NARROW:
        return False
    readers = [u for u in narrow.users if u.target is not _METADATA]
    return narrow.all_input_nodes[0].meta["val"].dtype is WIDE and all(
        u.target is CAST and u.meta["val"].dtype is WIDE for u in readers
    )


def _calls_random(node: Node) -> bool:
    """Whether a branch or the body of a loop draws random numbers."""
    named = [operand for operand in node.all_input_nodes if operand.op == "get_attr"]
    owned = [getattr(node.graph.owning_module, str(operand.target), None) for operand in named]
    called = [n for each in owned if isinstance(each, GraphModule) for n in each.graph.nodes]
    return any(
        _is_random(n) if isinstance(n.target, torch._ops.OpOverload) else _calls_random(n)
        for n in called
    )


def _is_random(node: Node) -> bool:
    """Layers that drop something out as they learn are random only then."""
    target: Any = node.target
    if torch.Tag.nondeterministic_seeded not in target.tags:
        return False
    for index, declared in enumerate(target._schema.arguments):
        if declared.name in ("train", "dropout_p"):
            given = argument(node, index, declared.name, declared.default_value)
            return bool(given)
    return True


def _tensors(node: Node) -> list[Any]:
    value = node.meta.get("val")
    return list(value) if isinstance(value, tuple | list) else [value]


def _used(node: Node) -> list[int]:
    """Which of its outputs anybody reads."""
    if not isinstance(node.meta.get("val"), tuple | list):
        return [0]
    return sorted({_place(u) for u in node.users if u.target is operator.getitem}) or [0]


def _place(getitem: Node) -> int:
    index: Any = getitem.args[1]
    return int(index)


def _check(result: Any, value: torch.Tensor) -> None:
    expected = tensor_type(value)
    if not isinstance(result.ty, relax.TensorType) or not isinstance(
        result.ty.shape, relax.ShapeExpr
    ):
        raise CannotConvertError("TVM does not know the shape of its result")
    extents = [int(e) if isinstance(e, int | tvm.tirx.IntImm) else None for e in result.ty.shape]
    made = (extents, str(result.ty.dtype))
    if made != ([int(e) for e in value.shape], str(expected.dtype)):
        raise CannotConvertError(
            f"TVM makes {made[1]}{made[0]} of it, torch {expected.dtype}{list(value.shape)}"
        )


def _check_legal(mod: Any) -> None:
    """Raises CannotConvertError for an operator that has no definition in TIR."""
    transform = relax.transform
    with tvm.transform.PassContext(opt_level=3):
        mod = transform.DecomposeOpsForInference()(mod)
        mod = legalize()(mod)
    left: list[str] = []

    def visit(expr: Any) -> None:
        if isinstance(expr, relax.Call) and isinstance(expr.op, tvm.ir.Op):
            left.append(expr.op.name)

    relax.analysis.post_order_visit(mod["main"], visit)
    unknown = [name for name in left if name.startswith("relax.") and name not in _LEGAL]
    if unknown:
        raise CannotConvertError(f"TVM has no definition of {unknown[0]}")


def _key(node: Node, constants: dict[Node, torch.Tensor]) -> Any:
    def of(arg: Any) -> Any:
        if isinstance(arg, Node):
            value = arg.meta["val"]
            return ("tensor", tuple(value.shape), value.dtype, arg in constants)
        if isinstance(arg, tuple | list):
            return tuple(of(item) for item in arg)
        if isinstance(arg, dict):
            return tuple((k, of(v)) for k, v in sorted(arg.items()))
        return repr(arg)

    return (node.target, of(node.args), of(node.kwargs), tuple(_used(node)))


def emit_segment(
    builder: Any, name: str, inputs: Sequence[Any], values: Sequence[Any]
) -> list[Any]:
    """A call of a segment: its outputs, of the types of `values`."""
    types = [tensor_type(value) for value in values]
    whole = types[0] if len(types) == 1 else relax.TupleType(types)
    result = builder.emit(relax.op.call_pure_packed(name, *inputs, ty_args=whole))
    if len(types) == 1:
        return [result]
    return [builder.emit(relax.TupleGetItem(result, i)) for i in range(len(types))]
