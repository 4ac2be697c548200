"""A TFLite graph with static shapes and no operator that the inputs do not reach, and its
conversion into Relax by TVM's converters.

LiteRT itself works out the shapes and what is constant (weights stored as float16 or sparse,
arithmetic on shapes), so that no kernel of it is written again here.
"""

from __future__ import annotations

from typing import Any

import flatbuffers
import numpy as np
import tflite
from ai_edge_litert import schema_py_generated as schema

from tunefleet.compiler.frontends.fourier import MOST_NUMBERS, transform_matrix
from tunefleet.compiler.frontends.spec import listed
from tunefleet.compiler.graph.constants import constant
from tunefleet.compiler.toolchain import load_tvm
from tunefleet.errors import InputError

tvm = load_tvm()
relax = tvm.relax

from tvm.relax.frontend.tflite import from_tflite, tflite_frontend  # noqa: E402  (as above)

#: A folded constant may have this many elements, or as many as the largest of its operands.
_MOST_ELEMENTS = 1 << 20

#: What the network is called in errors, in the state that converters share.
_WHAT = "tunefleet.what"

#: Known once shapes are static, whatever is in the tensor.
_SHAPE_ONLY = frozenset({"RANK", "SHAPE"})

#: Their results are as large as they must be: weights that are stored smaller.
_STORED_SMALLER = frozenset({"DENSIFY", "DEQUANTIZE"})

#: Operators whose results do not follow from their inputs alone.
_IMPURE = frozenset(
    {
        "ASSIGN_VARIABLE",
        "CALL",
        "CALL_ONCE",
        "CUSTOM",
        "HASHTABLE",
        "HASHTABLE_FIND",
        "HASHTABLE_IMPORT",
        "HASHTABLE_LOOKUP",
        "HASHTABLE_SIZE",
        "IF",
        "MULTINOMIAL",
        "RANDOM_STANDARD_NORMAL",
        "RANDOM_UNIFORM",
        "READ_VARIABLE",
        "VAR_HANDLE",
        "WHILE",
    }
)

#: What may be in no branch that is computed though it is not taken.
_EFFECTS = _IMPURE - {"IF"}

_OPERATORS: dict[int, str] = {
    code: name for name, code in vars(schema.BuiltinOperator).items() if isinstance(code, int)
}


def operator_name(model: Any, operator: Any) -> str:
    """As ``CONV_2D``; a custom one by its own name, as ``CUSTOM TransformLandmarks``."""
    code = model.operatorCodes[operator.opcodeIndex]
    number = max(code.builtinCode, code.deprecatedBuiltinCode)
    name = _OPERATORS.get(number, str(number))
    return f"CUSTOM {code.customCode.decode()}" if name == "CUSTOM" else name


def operators() -> dict[str, bool | None]:
    """TFLite's builtin operators: whether we convert them ourselves, None where nobody does."""
    converters = _Converter(None, None, None, None).convert_map
    return {
        name: _is_ours(converters[name]) if name in converters.keys() - _EFFECTS else None
        for name in sorted(_OPERATORS.values())
        if name not in ("CUSTOM", "DELEGATE") and not name.startswith("PLACEHOLDER")
    }


def _is_ours(converter: Any) -> bool:
    function = getattr(converter, "func", converter)  # a partial, or a method
    return str(function.__qualname__).startswith(_Converter.__name__)


def specialise(model: Any, interpreter: Any) -> None:
    """Gives `model` (a ModelT) the shapes and constants that `interpreter` found, in place.

    The interpreter has run the same model with all tensors preserved. Operators on constants go,
    their results become buffers, and tensors get names of their own (TVM goes by name).
    """
    graph = model.subgraphs[0]
    known = _constants(graph)
    kept = []
    for operator in graph.operators:
        results = _folded(model, operator, known, interpreter)
        if results is None:
            kept.append(operator)
        for index, value in (results or {}).items():
            known[index] = value.size
            _store(model, graph.tensors[index], value)
    graph.operators = kept
    shapes = {d["index"]: d["shape"] for d in interpreter.get_tensor_details()}
    for index, tensor in enumerate(graph.tensors):
        tensor.name = f"t{index}".encode()
        if index in shapes:
            tensor.shape = [int(extent) for extent in shapes[index]]
        tensor.shapeSignature = None


def check_float(model: Any, what: str) -> None:
    """Raises InputError where a specialised model still computes with quantised numbers."""
    graph = model.subgraphs[0]
    used = {index for o in graph.operators for index in (*o.inputs, *o.outputs) if index >= 0}
    for index in used:
        quantization = graph.tensors[index].quantization
        if quantization is not None and quantization.scale is not None and len(quantization.scale):
            raise InputError(
                f"{what} is quantised, and only networks in floating point are tuned",
                cure="convert the network again without quantisation (float16 weights are fine)",
            )


def convert(model: Any, what: str) -> Any:
    """A Relax module from a specialised model; raises InputError, or what TVM raises."""
    builder = flatbuffers.Builder(1 << 20)
    builder.Finish(model.Pack(builder), file_identifier=b"TFL3")
    packed = tflite.Model.GetRootAsModel(bytes(builder.Output()), 0)

    def converter(*args: Any) -> _Converter:
        made = _Converter(*args)
        # Shared with the converters that TVM makes itself, of graphs within the graph.
        made.conversion_state[_WHAT] = what
        return made

    mod = from_tflite(packed, op_converter=converter)
    main = mod["main"]
    for attribute in ("num_input", "params"):
        main = main.without_attr(attribute)
    mod["main"] = main
    return mod


def _constants(graph: Any) -> dict[int, int]:
    """The tensors that the file has the values of (empty ones too), with their sizes."""
    computed = {int(index) for operator in graph.operators for index in operator.outputs}
    computed.update(int(index) for index in graph.inputs)
    return {
        index: int(np.prod(tensor.shape if tensor.shape is not None else (), dtype=int))
        for index, tensor in enumerate(graph.tensors)
        if index not in computed and not tensor.isVariable
    }


def _folded(
    model: Any, operator: Any, known: dict[int, int], interpreter: Any
) -> dict[int, np.ndarray] | None:
    """The results of an operator, where they do not depend on what the network is given."""
    name = operator_name(model, operator)
    inputs = [index for index in operator.inputs if index >= 0]
    if name in _IMPURE or name.startswith("CUSTOM"):
        return None
    if name not in _SHAPE_ONLY and not (inputs and all(index in known for index in inputs)):
        return None
    results = {int(index): interpreter.get_tensor(int(index)) for index in operator.outputs}
    limit = max([_MOST_ELEMENTS, *(known.get(index, 0) for index in inputs)])
    if name not in _STORED_SMALLER and any(value.size > limit for value in results.values()):
        return None
    return results


def _store(model: Any, tensor: Any, value: np.ndarray) -> None:
    buffer = schema.BufferT()
    buffer.data = np.frombuffer(np.ascontiguousarray(value).tobytes(), "uint8")
    tensor.buffer = len(model.buffers)
    tensor.sparsity = None
    tensor.quantization = None
    model.buffers.append(buffer)


class _Converter(tflite_frontend.OperatorConverter):  # type: ignore[misc]  # TVM has no types
    """TVM's converters, with those of ours where they fail or write slow code."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        #: The real and the imaginary part of complex tensors.
        self._parts: dict[int, tuple[Any, Any]] = {}

    def check_unsupported_ops(self) -> None:
        codes = (
            self.get_op_code_str(self.subgraph.Operators(index))
            for index in range(self.subgraph.OperatorsLength())
        )
        missing = sorted(set(codes) - self.convert_map.keys())
        if missing:
            raise InputError(
                f"{self.conversion_state[_WHAT]}: TVM has no conversion for the TFLite "
                f"operator{'s' * (len(missing) > 1)} {listed(missing)}",
                cure="replace them in the network and convert it again",
            )

    def get_expr(self, input_tensor_idx: int) -> Any:
        """Also of a constant, which some of TVM's conversions do not expect."""
        if self.has_expr(input_tensor_idx):
            return super().get_expr(input_tensor_idx)
        return self.get_tensor_expr(self.get_tensors([input_tensor_idx])[0])

    def convert_if(self, op: Any) -> Any:
        """Both branches are computed, and one of them is taken: that needs no control flow."""
        options = self._get_builtin_options(op, tflite.IfOptions)
        condition, *arguments = map(self.get_tensor_expr, self.get_input_tensors(op))
        then, other = (
            self._inlined(index, arguments)
            for index in (options.ThenSubgraphIndex(), options.ElseSubgraphIndex())
        )
        if [str(each.ty) for each in then] != [str(each.ty) for each in other]:
            raise NotImplementedError("IF with branches of different shapes")
        taken = map(relax.op.where, [condition] * len(then), then, other)
        return self._make_tuple_or_single(list(taken))

    def _inlined(self, subgraph_index: int, arguments: list[Any]) -> list[Any]:
        """The outputs of a branch, written into the graph around it."""
        graph = self._get_subgraph(subgraph_index, "IF")
        codes = (graph.Operators(i).OpcodeIndex() for i in range(graph.OperatorsLength()))
        names = {_OPERATORS[self.model.OperatorCodes(code).BuiltinCode()] for code in codes}
        if effects := sorted(names & _EFFECTS):
            raise NotImplementedError(f"IF with a branch that uses {listed(effects)}")
        known = tflite_frontend.ExprTable()
        for index, argument in zip(graph.InputsAsNumpy(), arguments, strict=True):
            known.set_expr(tflite_frontend.get_tensor_name(graph, int(index)), argument)
        branch = type(self)(self.model, graph, known, self.bb, self.conversion_state)
        branch.check_unsupported_ops()
        branch.convert_op_to_relax()
        outputs = branch.get_tensors(graph.OutputsAsNumpy())
        return [self.bb.normalize(branch.get_tensor_expr(tensor)) for tensor in outputs]

    def convert_rfft2d(self, op: Any) -> Any:
        """Of single rows, as spectrograms have them, products with a constant matrix each for the
        real and the imaginary part: TVM's is a function of its own, which nothing can tune."""
        data, lengths = self.get_input_tensors(op)
        rows, count = map(int, self.get_tensor_value(lengths))
        expr = self.get_tensor_expr(data)
        if (rows, count) != tuple(map(int, expr.ty.shape))[-2:] or rows != 1:
            raise NotImplementedError("RFFT2D of several rows, or of a part of one")
        if count * (count // 2 + 1) > MOST_NUMBERS:
            raise NotImplementedError(f"RFFT2D of {count} numbers: its matrix is too large")
        matrix = transform_matrix(np.fft.rfft, count, 1).astype("float32")
        parts = [
            self.bb.emit(relax.op.matmul(expr, constant(np.ascontiguousarray(matrix[:, part::2]))))
            for part in (0, 1)
        ]
        return self._as_complex(op, parts)

    def convert_squeeze(self, op: Any) -> Any:
        """Also of complex numbers, of which each has two floats in Relax."""
        (data,), (result,) = self.get_input_tensors(op), self.get_output_tensors(op)
        if data.tensor_idx not in self._parts:
            return super().convert_squeeze(op)
        shape = [int(extent) for extent in result.tensor.ShapeAsNumpy()]
        return self._as_complex(
            op,
            [self.bb.emit(relax.op.reshape(part, shape)) for part in self._parts[data.tensor_idx]],
        )

    def convert_cast(self, op: Any) -> Any:
        """Of complex numbers to floats, the real part."""
        real, _ = self._parts.get(self.get_input_tensors(op)[0].tensor_idx, (None, None))
        return super().convert_cast(op) if real is None else real

    def convert_real(self, op: Any) -> Any:
        real, _ = self._parts.get(self.get_input_tensors(op)[0].tensor_idx, (None, None))
        return super().convert_real(op) if real is None else real

    def _as_complex(self, op: Any, parts: list[Any]) -> Any:
        """Complex numbers as TVM's conversions want them; what takes a part alone finds it."""
        real, imaginary = parts
        self._parts[self.get_output_tensors(op)[0].tensor_idx] = (real, imaginary)
        return relax.op.stack(parts, -1)

    def convert_expand_dims(self, op: Any) -> Any:
        data, axis = self.get_input_tensors(op)
        return relax.op.expand_dims(
            self.get_tensor_expr(data), int(self.get_tensor_value(axis).item())
        )

    def convert_fully_connected(self, op: Any) -> Any:
        """In the shape that the file gives the result (ViT and XCiT by LiteRT: rows of a batch of
        one): TVM's always has the dimensions of the input."""
        (result,) = self.get_output_tensors(op)
        shape = [int(extent) for extent in result.tensor.ShapeAsNumpy()]
        return relax.op.reshape(super().convert_fully_connected(op), shape)

    def convert_prelu(self, op: Any) -> Any:
        """Element by element: TVM's flattens the tensor, and a slope for each element."""
        data, slope = (self.get_tensor_expr(tensor) for tensor in self.get_input_tensors(op))
        data = self.bb.normalize(data)
        zero = relax.const(0, str(data.ty.dtype))
        negative = relax.op.multiply(relax.op.minimum(data, zero), slope)
        return relax.op.add(relax.op.maximum(data, zero), negative)
