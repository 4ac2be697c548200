"""Imports an ONNX graph node by node: by rules of ours, and by TVM's converters."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any

import numpy as np
import onnx

from tunefleet.compiler.frontends.blame import gist
from tunefleet.compiler.frontends.onnx_builder import Builder
from tunefleet.compiler.frontends.onnx_file import OnnxWeights, array_of, domain_of, opsets_of, used
from tunefleet.compiler.frontends.onnx_operators import OPERATORS, UNSOUND, Node, Rule
from tunefleet.compiler.frontends.onnx_refusal import Refusal
from tunefleet.compiler.frontends.onnx_types import NOTHING_KNOWN, ValueType
from tunefleet.compiler.graph.constants import constant, tensor_of
from tunefleet.compiler.toolchain import load_tvm
from tunefleet.core.network import UNKNOWN
from tunefleet.core.step import IS_RANDOM
from tunefleet.errors import raise_mistake
from tunefleet.system.progress import working_on

tvm = load_tvm()
relax = tvm.relax

from tvm.relax.frontend.onnx import onnx_frontend  # noqa: E402  (TVM is loaded our way first)

_CONTROL_FLOW = {
    "If": "which branch it takes depends on a value",
    "Loop": "how often it runs depends on values, or is often",
    "Scan": "it runs a graph for each element of a sequence",
}
#: For some of these TVM returns the largest shape that is possible, which is not what ONNX means.
_VALUES_MAKE_SHAPES = frozenset({"Compress", "NonMaxSuppression", "NonZero", "Unique"})
#: A dropout that is still there after preparation is one of training.
RANDOM = frozenset(
    {
        "Bernoulli",
        "Dropout",
        "Multinomial",
        "RandomNormal",
        "RandomNormalLike",
        "RandomUniform",
        "RandomUniformLike",
    }
)
_MICROSOFT = "com.microsoft"
#: Operators of both domains that TVM converts as ONNX Runtime defines them.
_AS_MICROSOFT = frozenset({"Attention"})


@lru_cache(maxsize=1)
def _converted_by_tvm() -> frozenset[str]:
    # The table is private to TVM, which otherwise says what it lacks one node at a time.
    return frozenset(name for name, rule in onnx_frontend._get_convert_map().items() if rule)


def rule_of(domain: str, operator: str) -> Rule | None:
    """Our rule for an operator, None where TVM's is to be taken; raises Refusal if there is
    none. A rule may refuse some forms of a node."""
    if (domain, operator) in OPERATORS:
        return OPERATORS[domain, operator]
    if (domain, operator) in UNSOUND:
        raise Refusal(UNSOUND[domain, operator])
    if not domain:
        if operator in _CONTROL_FLOW:
            raise Refusal(_CONTROL_FLOW[operator])
        if operator in _VALUES_MAKE_SHAPES:
            raise Refusal("the shape of its output depends on values")
        if operator in RANDOM:
            raise Refusal(IS_RANDOM)
    microsoft = operator in _AS_MICROSOFT or not onnx.defs.has(operator)
    if operator not in _converted_by_tvm() or domain != (_MICROSOFT if microsoft else ""):
        raise Refusal("TVM has no conversion for it")
    return None


class Importer(onnx_frontend.ONNXGraphImporter):  # type: ignore[misc]  # TVM has no types
    """TVM's importer with conversions of ours before its own, one node at a time.

    `types` are those that ONNX infers; a conversion that disagrees is refused. `constants` may be
    shared by importers of one graph. `by_tvm` are the nodes that TVM's own converters took, by
    name.
    """

    def __init__(
        self,
        model: onnx.ModelProto,
        weights: OnnxWeights,
        types: Mapping[str, ValueType],
        constants: dict[str, Any],
    ) -> None:
        super().__init__(shape_dict={}, dtype_dict=None)
        self.bb = Builder()
        self.types = dict(types)
        self.by_tvm: set[str] = set()
        self._graph = model.graph
        self._weights = weights
        self._constants = constants
        self._opsets = opsets_of(model)
        self.opset = self._opsets.get("", 1)
        self._tensors = {tensor.name: tensor for tensor in model.graph.initializer}

    def build(self, write: Callable[[], None]) -> Any:
        """The module of which `write` converts the nodes."""
        inputs = [v for v in self._graph.input if v.name not in self._weights]
        self._parse_graph_input(onnx.GraphProto(input=inputs))
        params = [self._inputs[value.name] for value in inputs]
        with self.bb.function("main", params=params):
            with self.bb.dataflow():
                write()
                outputs = [self._tensor(value.name) for value in self._graph.output]
                result = self.bb.emit_output(
                    outputs[0] if len(outputs) == 1 else relax.Tuple(outputs)
                )
            self.bb.emit_func_output(result)
        return self.bb.get()

    def convert(self, node: onnx.NodeProto) -> None:
        """Converts a node; raises Refusal where that is not possible or cannot be trusted."""
        working_on(f"{node.op_type} {node.name}")
        rule = self._rule(node)
        self._check_inputs(node)
        for name in node.input:
            if name:
                self._require(name)
        try:
            if rule is None or not self._bind(node, rule):
                super()._construct_nodes(onnx.GraphProto(node=[node]))
                self.by_tvm.add(node.name)
        except Refusal:
            raise
        except Exception as exc:
            raise_mistake(exc)
            said = str(exc) if rule is not None and isinstance(exc, NotImplementedError) else ""
            raise Refusal(said or f"TVM refuses it: {gist(exc)}") from exc
        for name in node.output:
            if name:
                self._check_output(name)

    def leave(self, node: onnx.NodeProto) -> None:
        """Stands something in for the outputs of a node that is not converted."""
        for name in node.output:
            if name:
                self._bind_call("tunefleet.left_out", [], [name])

    def call(self, function: str, inputs: Sequence[str], outputs: Sequence[str]) -> None:
        """Calls a segment."""
        self._bind_call(function, [self._tensor(name) for name in inputs], outputs)

    def _bind_call(self, function: str, args: Sequence[Any], outputs: Sequence[str]) -> None:
        types = [_tensor_type(self.types.get(name, NOTHING_KNOWN)) for name in outputs]
        one = len(types) == 1
        result = relax.op.call_pure_packed(
            function, *args, ty_args=types[0] if one else relax.TupleType(types)
        )
        value = self.bb.emit(result)
        for index, name in enumerate(outputs):
            self._nodes[name] = value if one else self.bb.emit(relax.TupleGetItem(value, index))

    def _rule(self, node: onnx.NodeProto) -> Rule | None:
        """Our rule for a node, None where TVM's is to be taken; raises Refusal if there is none."""
        if any(a.name == "training_mode" and a.i for a in node.attribute):
            raise Refusal("it is in training mode")
        return rule_of(domain_of(node), node.op_type)

    def _check_inputs(self, node: onnx.NodeProto) -> None:
        for name in used(node):
            known = self.types.get(name, NOTHING_KNOWN)
            if known.dtype is None:
                raise Refusal(f"its input {name} is no tensor of numbers", follows=True)
            if not known.static:
                raise Refusal(f"the shape of its input {name} depends on values", follows=True)
            if known.size == 0 and not self._is_constant(name):
                raise Refusal(f"its input {name} is empty", follows=True)

    def _check_output(self, name: str) -> None:
        """What was converted must be what ONNX says."""
        expected = self.types.get(name, NOTHING_KNOWN)
        if expected.dtype is None and name in self.types:
            raise Refusal(f"its output {name} is no tensor of numbers")
        made = _found_type(self._nodes[name])
        if made is None:
            raise Refusal("the shape of its output depends on values")
        if made.size == 0:
            raise Refusal(f"its output {name} is empty")
        differs = expected.dtype is not None and made.dtype != expected.dtype
        if expected.shape is not None and not differs:
            differs = len(made.shape or ()) != len(expected.shape) or any(
                e not in (UNKNOWN, f) for e, f in zip(expected.shape, made.shape or (), strict=True)
            )
        if differs:
            raise Refusal(f"TVM makes its output {name} {made}, ONNX says {expected}")
        self.types[name] = made

    def _is_constant(self, name: str) -> bool:
        return name in self._tensors or name in self._weights

    def _require(self, name: str) -> Any:
        """The expression of a value; a constant is read when it is first needed."""
        if name in self._nodes:
            return self._nodes[name]
        if name not in self._constants:
            if name in self._weights:
                array = self._weights.array(name)
            else:
                array = array_of(self._tensors[name], self._weights.folder)
            self._constants[name] = relax.const(tensor_of(array))
        self._nodes[name] = self._constants[name]
        return self._nodes[name]

    def _tensor(self, name: str) -> Any:
        """As `_require`, what the importer keeps as a shape written as a tensor."""
        expr = self._require(name)
        if isinstance(expr.ty, relax.ShapeType):
            return constant(np.array([int(extent) for extent in expr], "int64"))
        return expr

    def _bind(self, node: Any, rule: Rule) -> bool:
        """Converts `node` by a rule of ours, unless the rule leaves it to TVM's own."""
        domain = domain_of(node)
        results = rule(
            Node(
                operator=node.op_type,
                domain=domain,
                name=node.name,
                inputs=tuple(self._nodes[name] if name else None for name in node.input),
                attrs={a.name: _attribute(a) for a in node.attribute},
                outputs=tuple(node.output),
                opset=self._opsets.get(domain, 1),
                builder=self.bb,
            )
        )
        if results is NotImplemented:
            return False
        if not isinstance(results, tuple | list):
            results = (results,)
        for name, expr in zip(node.output, results, strict=False):
            if name and expr is not None:
                self._nodes[name] = self.bb.normalize(expr)
        return True


def _tensor_type(known: ValueType) -> Any:
    if known.dtype is None:
        return relax.TensorType()
    if known.static:
        return relax.TensorType(known.shape, known.dtype)
    if known.shape is not None:
        return relax.TensorType(ndim=len(known.shape), dtype=known.dtype)
    return relax.TensorType(dtype=known.dtype)


def _found_type(expr: Any) -> ValueType | None:
    """The type of a converted value, None unless it is static."""
    if isinstance(expr, relax.ShapeExpr):
        static = all(isinstance(extent, int | tvm.tirx.IntImm) for extent in expr.values)
        return ValueType("int64", (len(expr.values),)) if static else None
    declared = getattr(expr, "ty", None)
    if not isinstance(declared, relax.TensorType):
        return None
    if not isinstance(declared.shape, relax.ShapeExpr):
        return None
    if not all(isinstance(extent, int | tvm.tirx.IntImm) for extent in declared.shape):
        return None
    return ValueType(str(declared.dtype), tuple(int(extent) for extent in declared.shape))


def _attribute(attribute: Any) -> Any:
    """The Python value of an attribute: text as str, tensors as arrays, graphs as they are."""
    value = onnx.helper.get_attribute_value(attribute)
    if isinstance(value, bytes):
        return value.decode()
    if isinstance(value, onnx.TensorProto):
        return onnx.numpy_helper.to_array(value)
    if attribute.type == onnx.AttributeProto.STRINGS:
        return [text.decode() for text in value]
    return list(value) if isinstance(value, Sequence) and not isinstance(value, str) else value
