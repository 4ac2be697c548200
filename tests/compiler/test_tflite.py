"""TFLite files: what is constant in them, free dimensions, and what is refused."""

from typing import Any

import numpy as np
import pytest

from tunefleet.compiler.frontends import ImportRequest, load_network
from tunefleet.core.shapes import ShapeRequest
from tunefleet.errors import InputError

pytest.importorskip("tflite", reason="needs tunefleet[tflite]")
schema = pytest.importorskip("ai_edge_litert.schema_py_generated", reason="needs tunefleet[tflite]")

pytestmark = pytest.mark.tvm

_FLOAT16, _FLOAT32, _INT32 = 1, 0, 2


class _Graph:
    """Writes a TFLite model, tensor by tensor."""

    def __init__(self):
        self.model = schema.ModelT()
        self.model.version = 3
        self.model.buffers = [schema.BufferT()]
        self.model.operatorCodes = []
        self.graph = schema.SubGraphT()
        self.graph.tensors, self.graph.operators = [], []
        self.model.subgraphs = [self.graph]

    def tensor(self, shape, dtype=_FLOAT32, value=None, signature=None):
        tensor = schema.TensorT()
        tensor.name = f"tensor{len(self.graph.tensors)}".encode()
        tensor.shape, tensor.type, tensor.shapeSignature = list(shape), dtype, signature
        tensor.buffer = 0
        if value is not None:
            tensor.buffer = len(self.model.buffers)
            buffer = schema.BufferT()
            buffer.data = np.frombuffer(np.ascontiguousarray(value).tobytes(), "uint8")
            self.model.buffers.append(buffer)
        self.graph.tensors.append(tensor)
        return len(self.graph.tensors) - 1

    def branch(self):
        """A writer of another graph of the same model, and the index by which it is called."""
        branch = _Graph()
        branch.model = self.model
        self.model.subgraphs.append(branch.graph)
        return branch, len(self.model.subgraphs) - 1

    def operator(self, name, inputs, output, options="", custom=None, **fields):
        code = schema.OperatorCodeT()
        code.builtinCode = getattr(schema.BuiltinOperator, name)
        code.deprecatedBuiltinCode = min(code.builtinCode, 127)
        code.version, code.customCode = 1, custom
        operator = schema.OperatorT()
        operator.opcodeIndex = len(self.model.operatorCodes)
        operator.inputs, operator.outputs = inputs, [output]
        if options:
            operator.builtinOptionsType = getattr(schema.BuiltinOptions, options)
            operator.builtinOptions = getattr(schema, f"{options}T")()
            vars(operator.builtinOptions).update(fields)
        self.model.operatorCodes.append(code)
        self.graph.operators.append(operator)

    def save(self, path, inputs, outputs):
        import flatbuffers

        self.graph.inputs, self.graph.outputs = inputs, outputs
        builder = flatbuffers.Builder()
        builder.Finish(self.model.Pack(builder), file_identifier=b"TFL3")
        path.write_bytes(bytes(builder.Output()))
        return str(path)


def _convolution(path, batch=1, rows=8):
    """Half-precision weights, PReLU, and a flattening by arithmetic on shapes; 0 is free."""
    rng = np.random.default_rng(0)
    g = _Graph()
    signature = [batch or -1, rows or -1, 8, 3]
    x = g.tensor((batch or 1, rows or 1, 8, 3), signature=signature)
    half = g.tensor((4, 3, 3, 3), _FLOAT16, rng.standard_normal((4, 3, 3, 3)).astype("float16"))
    weight, bias = g.tensor((4, 3, 3, 3)), g.tensor((4,), value=np.ones(4, "float32"))
    y, z = g.tensor((1, 8, 8, 4)), g.tensor((1, 8, 8, 4))
    slope = g.tensor((1, 1, 4), value=rng.standard_normal((1, 1, 4)).astype("float32"))
    shape, first = g.tensor((4,), _INT32), g.tensor((1,), _INT32)
    begin, size = (g.tensor((1,), _INT32, np.array([v], "int32")) for v in (0, 1))
    rest, flat = g.tensor((1,), _INT32, np.array([-1], "int32")), g.tensor((2,), _INT32)
    out = g.tensor((1, 256))
    g.operator("DEQUANTIZE", [half], weight, "DequantizeOptions")
    g.operator("CONV_2D", [x, weight, bias], y, "Conv2DOptions", strideH=1, strideW=1)
    g.operator("PRELU", [y, slope], z)
    g.operator("SHAPE", [z], shape, "ShapeOptions", outType=_INT32)
    g.operator("SLICE", [shape, begin, size], first, "SliceOptions")
    g.operator("CONCATENATION", [first, rest], flat, "ConcatenationOptions", axis=0)
    g.operator("RESHAPE", [z, flat], out, "ReshapeOptions")
    return g.save(path, [x], [out])


def _run(network):
    from tunefleet.compiler.toolchain import load_tvm

    tvm = load_tvm()
    machine = tvm.relax.VirtualMachine(tvm.compile(network.mod, "llvm"), tvm.cpu())
    return machine["main"](*[tvm.runtime.tensor(x) for x in network.example_inputs]).numpy()


def test_a_network_computes_what_litert_computes(tmp_path):
    network = load_network(_convolution(tmp_path / "network.tflite"))
    (expected,) = network.reference(network.example_inputs)
    np.testing.assert_allclose(_run(network), expected, rtol=1e-4, atol=1e-4)
    assert np.abs(expected).max() > 1


def test_weights_and_shapes_are_constants_after_the_import(tmp_path):
    module: Any = load_network(_convolution(tmp_path / "network.tflite")).mod
    script = module.script()
    assert "nn.conv2d" in script
    assert "float16" not in script
    assert "shape_of" not in script


def test_a_free_batch_is_one_and_given_shapes_are_taken(tmp_path):
    path = _convolution(tmp_path / "network.tflite", batch=0, rows=0)
    network = load_network(
        path, ImportRequest(tmp_path, ShapeRequest.of({"tensor0": (2, 6, 8, 3)}.items()))
    )
    assert network.info.inputs[0].shape == (2, 6, 8, 3)
    assert network.info.outputs[0].shape == (2, 192)
    assert network.reference(network.example_inputs)[0].shape == (2, 192)
    only_batch = load_network(_convolution(tmp_path / "batch.tflite", batch=0))
    assert only_batch.info.inputs[0].shape == (1, 8, 8, 3)


def test_free_dimensions_are_listed(tmp_path):
    path = _convolution(tmp_path / "network.tflite", batch=0, rows=0)
    with pytest.raises(InputError, match=r"free dimensions: tensor0\.1"):
        load_network(path)


def test_a_shape_that_does_not_fit_is_refused(tmp_path):
    path = _convolution(tmp_path / "network.tflite", batch=0)
    with pytest.raises(InputError, match="axis 1 of input tensor0 is 8, not 9"):
        load_network(
            path, ImportRequest(tmp_path, ShapeRequest.of({"tensor0": (1, 9, 8, 3)}.items()))
        )
    with pytest.raises(InputError, match="no input image"):
        load_network(
            path, ImportRequest(tmp_path, ShapeRequest.of({"image": (1, 8, 8, 3)}.items()))
        )


def test_custom_operators_are_named(tmp_path):
    g = _Graph()
    x, y = g.tensor((1, 4)), g.tensor((1, 4))
    g.operator("CUSTOM", [x], y, custom=b"Mirror")
    with pytest.raises(InputError, match="CUSTOM Mirror"):
        load_network(g.save(tmp_path / "network.tflite", [x], [y]))


def test_a_quantised_network_is_refused(tmp_path):
    g = _Graph()
    x, y = g.tensor((1, 4), dtype=9), g.tensor((1, 4), dtype=9)
    for index in (x, y):
        quantization = schema.QuantizationParametersT()
        quantization.scale, quantization.zeroPoint = [0.5], [0]
        g.graph.tensors[index].quantization = quantization
    g.operator("RELU", [x], y)
    with pytest.raises(InputError, match="is quantised"):
        load_network(g.save(tmp_path / "network.tflite", [x], [y]))


_BOOL = 6


@pytest.mark.parametrize("kept", [True, False])
def test_a_product_of_a_batch_of_rows_has_the_shape_that_the_file_gives_it(tmp_path, kept):
    g = _Graph()
    x = g.tensor([1, 3, 8])
    weight = g.tensor([5, 8], value=np.random.default_rng(0).normal(size=(5, 8)).astype("float32"))
    result = g.tensor([1, 3, 5] if kept else [3, 5])
    g.operator(
        "FULLY_CONNECTED", [x, weight, -1], result, "FullyConnectedOptions", keepNumDims=kept
    )
    network = load_network(g.save(tmp_path / "rows.tflite", [x], [result]))
    (expected,) = network.reference(network.example_inputs, 1)
    assert expected.shape == ((1, 3, 5) if kept else (3, 5))
    np.testing.assert_allclose(_run(network), expected, rtol=1e-5, atol=1e-6)


def _cascade(path, least=0.0, random=False, columns=4):
    """More is computed, or drawn, where the largest number is at least `least`."""
    g = _Graph()
    x, y, largest, sure = g.tensor((1, 4)), g.tensor((1, 4)), g.tensor(()), g.tensor((), _BOOL)
    axes = g.tensor((2,), _INT32, np.array([0, 1], "int32"))
    bound = g.tensor((), value=np.array(least, "float32"))
    then, first = g.branch()
    a, b, c = (then.tensor((1, 4)) for _ in range(3))
    weight = then.tensor((1, 4), value=np.array([[1, -2, 3, -4]], "float32"))
    then.operator("MUL", [a, weight], b, "MulOptions")
    shape = then.tensor((2,), _INT32, np.array([1, 4], "int32"))
    if random:
        then.operator("RANDOM_UNIFORM", [shape], c, "RandomOptions", seed=1)
    else:
        then.operator("RELU", [b], c)
    then.graph.inputs, then.graph.outputs = [a], [c]
    other, second = g.branch()
    given = left = other.tensor((1, 4))
    if columns != 4:
        begin, size = (
            other.tensor((2,), _INT32, np.array(numbers, "int32"))
            for numbers in ((0, 0), (1, columns))
        )
        left = other.tensor((1, columns))
        other.operator("SLICE", [given, begin, size], left, "SliceOptions")
    other.graph.inputs, other.graph.outputs = [given], [left]
    g.operator("REDUCE_MAX", [x, axes], largest, "ReducerOptions")
    g.operator("GREATER_EQUAL", [largest, bound], sure, "GreaterEqualOptions")
    g.operator("IF", [sure, x], y, "IfOptions", thenSubgraphIndex=first, elseSubgraphIndex=second)
    return g.save(path, [x], [y])


@pytest.mark.parametrize("least", [-100.0, 100.0], ids=["then", "else"])
def test_of_two_branches_the_right_one_is_taken(tmp_path, least):
    network = load_network(_cascade(tmp_path / "network.tflite", least=least))
    (expected,) = network.reference(network.example_inputs)
    assert (expected == network.example_inputs[0]).all() == (least > 0)
    np.testing.assert_array_equal(_run(network), expected)


def test_a_branch_that_does_more_than_compute_is_refused(tmp_path):
    path = _cascade(tmp_path / "network.tflite", random=True)
    with pytest.raises(InputError, match="a branch that uses RANDOM_UNIFORM"):
        load_network(path)


def test_branches_of_unlike_shapes_are_refused(tmp_path):
    path = _cascade(tmp_path / "network.tflite", columns=2)
    with pytest.raises(InputError, match="IF with branches of different shapes"):
        load_network(path)


_COMPLEX64 = 8


def _spectrum(path, part, rows=1, length=16):
    """Part of the spectrum of each of three lines."""
    count = length // 2 + 1
    g = _Graph()
    x, y = g.tensor((1, 3, rows, length)), g.tensor((1, 3, rows, count), _COMPLEX64)
    lengths = g.tensor((2,), _INT32, np.array([rows, length], "int32"))
    g.operator("RFFT2D", [x, lengths], y, "Rfft2dOptions")
    shape = (1, 3, count) if rows == 1 else (1, 3, rows, count)
    if rows == 1:
        row = g.tensor(shape, _COMPLEX64)
        g.operator("SQUEEZE", [y], row, "SqueezeOptions", squeezeDims=[2])
        y = row
    z = g.tensor(shape)
    options = {"inDataType": _COMPLEX64, "outDataType": _FLOAT32} if part == "CAST" else {}
    g.operator(part, [y], z, "CastOptions" if options else "", **options)
    return g.save(path, [x], [z])


@pytest.mark.parametrize("part", ["CAST", "REAL", "IMAG", "COMPLEX_ABS"])
def test_a_spectrum_is_what_litert_computes(tmp_path, part):
    network = load_network(_spectrum(tmp_path / "network.tflite", part))
    (expected,) = network.reference(network.example_inputs)
    assert np.abs(expected).max() > 1
    np.testing.assert_allclose(_run(network), expected, rtol=1e-4, atol=1e-4)


def test_a_spectrum_of_images_is_refused(tmp_path):
    with pytest.raises(InputError, match="RFFT2D of several rows"):
        load_network(_spectrum(tmp_path / "network.tflite", "REAL", rows=4))


def test_a_spectrum_whose_matrix_would_be_too_large_is_refused(tmp_path):
    with pytest.raises(InputError, match="RFFT2D of 8192 numbers: its matrix is too large"):
        load_network(_spectrum(tmp_path / "network.tflite", "REAL", length=8192))


def test_a_damaged_file_is_refused(tmp_path):
    path = tmp_path / "network.tflite"
    _convolution(path)
    path.write_bytes(path.read_bytes()[:300])
    with pytest.raises(InputError, match="not a readable TFLite file"):
        load_network(path)
