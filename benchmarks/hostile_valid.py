"""Small valid files of each format, to be broken by hand (cases) or by chance (mutations)."""

from __future__ import annotations

import io
import json
import os
import threading
import warnings
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from onnx import TensorProto, helper, numpy_helper

FLOAT = TensorProto.FLOAT
INT64 = TensorProto.INT64


def value(name: str, shape: Sequence[Any] | None = (1, 4), kind: int = FLOAT) -> Any:
    """An input or output of a graph."""
    return helper.make_tensor_value_info(name, kind, shape)


def constant(name: str, array: Any) -> Any:
    return numpy_helper.from_array(np.asarray(array), name)


def graph(
    nodes: Sequence[Any],
    inputs: Sequence[Any] | None = None,
    outputs: Sequence[Any] | None = None,
    constants: Sequence[Any] = (),
    name: str = "graph",
) -> Any:
    """From x to y, both of one shape, unless it is said otherwise."""
    inputs = [value("x")] if inputs is None else inputs
    outputs = [value("y")] if outputs is None else outputs
    return helper.make_graph(nodes, name, inputs, outputs, constants)


def model(made: Any, opset: int = 18, ir: int = 9, **domains: int) -> Any:
    sets = [helper.make_opsetid("", opset)]
    sets += [helper.make_opsetid(domain, version) for domain, version in domains.items()]
    return helper.make_model(made, opset_imports=sets, ir_version=ir)


def convolution() -> bytes:
    """Convolution, batch norm, pool and a dense layer."""
    rng = np.random.default_rng(0)

    def weights(name: str, *shape: int) -> Any:
        return constant(name, rng.standard_normal(shape).astype("float32"))

    nodes = [
        helper.make_node("Conv", ["x", "w", "b"], ["a"], pads=[1, 1, 1, 1], strides=[2, 2]),
        helper.make_node("BatchNormalization", ["a", "b", "b", "b", "v"], ["n"]),
        helper.make_node("Relu", ["n"], ["r"]),
        helper.make_node("GlobalAveragePool", ["r"], ["p"]),
        helper.make_node("Flatten", ["p"], ["f"]),
        helper.make_node("Gemm", ["f", "d"], ["y"]),
    ]
    constants = [
        weights("w", 4, 3, 3, 3),
        weights("b", 4),
        constant("v", np.ones(4, "float32")),
        weights("d", 4, 2),
    ]
    made = graph(nodes, [value("x", (1, 3, 8, 8))], [value("y", (1, 2))], constants)
    return bytes(model(made).SerializeToString())


def control() -> bytes:
    """Arithmetic on shapes, a branch and a loop."""
    node = helper.make_node
    scalar = TensorProto.BOOL
    then = graph([node("Neg", ["r"], ["t"])], [], [value("t")], name="then")
    other = graph([node("Abs", ["r"], ["o"])], [], [value("o")], name="other")
    body = graph(
        [node("Add", ["s", "s"], ["s2"]), node("Identity", ["go"], ["on"])],
        [value("i", [], INT64), value("go", [], scalar), value("s")],
        [value("on", [], scalar), value("s2")],
        name="body",
    )
    nodes = [
        node("Shape", ["x"], ["shape"]),
        node("Gather", ["shape", "one"], ["width"]),
        node("Concat", ["width", "minus"], ["new"], axis=0),
        node("Reshape", ["x", "new"], ["q"]),
        node("Transpose", ["q"], ["r"], perm=[1, 0]),
        node("If", ["flag"], ["c"], then_branch=then, else_branch=other),
        node("Loop", ["three", "", "c"], ["y"], body=body),
    ]
    constants = [
        constant("one", np.array([1])),
        constant("minus", np.array([-1])),
        constant("three", np.array(3)),
    ]
    inputs = [value("x"), value("flag", [], scalar)]
    return bytes(model(graph(nodes, inputs, constants=constants)).SerializeToString())


def attention() -> bytes:
    """One head of attention between layer norms."""
    rng = np.random.default_rng(1)
    node = helper.make_node
    constants = [
        constant(n, rng.standard_normal((8, 8)).astype("float32")) for n in ("q", "k", "v")
    ]
    constants.append(constant("s", np.ones(8, "float32")))
    nodes = [
        node("LayerNormalization", ["x", "s"], ["n"]),
        node("MatMul", ["n", "q"], ["nq"]),
        node("MatMul", ["n", "k"], ["nk"]),
        node("MatMul", ["n", "v"], ["nv"]),
        node("Transpose", ["nk"], ["kt"], perm=[0, 2, 1]),
        node("MatMul", ["nq", "kt"], ["scores"]),
        node("Softmax", ["scores"], ["p"], axis=-1),
        node("MatMul", ["p", "nv"], ["o"]),
        node("Add", ["o", "x"], ["y"]),
    ]
    shape = (1, 6, 8)
    made = graph(nodes, [value("x", shape)], [value("y", shape)], constants)
    return bytes(model(made).SerializeToString())


#: torch exports one program at a time.
_exporting = threading.Lock()


def exported(*, free: bool = False) -> bytes:
    """A `.pt2` program: a dense layer, or one with a free batch and arithmetic on it."""
    with _exporting:
        return _exported(free)


@cache
def _exported(free: bool) -> bytes:
    import torch

    class Network(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = torch.nn.Linear(4, 3)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            y: torch.Tensor = self.linear(x.reshape(x.shape[0] * 2, 4)).relu()
            return y

    batch = {0: torch.export.Dim("batch", min=2, max=64)}
    file = io.BytesIO()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        program = torch.export.export(
            Network().eval(), (torch.ones(3, 8),), dynamic_shapes={"x": batch} if free else None
        )
        torch.export.save(program, file)
    return file.getvalue()


def tflite() -> bytes:
    """An input added to a constant, and its rectifier."""
    import flatbuffers
    from ai_edge_litert import schema_py_generated as schema

    def tensor(name: str, buffer: int) -> Any:
        made = schema.TensorT()
        made.name, made.shape, made.type, made.buffer = name.encode(), [1, 4], 0, buffer
        return made

    def operator(index: int, inputs: list[int], output: int, options: str, made: Any) -> Any:
        found = schema.OperatorT()
        found.opcodeIndex, found.inputs, found.outputs = index, inputs, [output]
        if options:
            found.builtinOptionsType = getattr(schema.BuiltinOptions, options)
            found.builtinOptions = made
        return found

    def code(name: str) -> Any:
        made = schema.OperatorCodeT()
        made.builtinCode = getattr(schema.BuiltinOperator, name)
        made.deprecatedBuiltinCode, made.version = made.builtinCode, 1
        return made

    whole, main, empty, weights = (
        schema.ModelT(), schema.SubGraphT(), schema.BufferT(), schema.BufferT(),
    )  # fmt: skip
    weights.data = np.frombuffer(np.arange(4, dtype="float32").tobytes(), "uint8")
    whole.version, whole.buffers, whole.subgraphs = 3, [empty, weights], [main]
    whole.operatorCodes = [code("ADD"), code("RELU")]
    main.tensors = [tensor("x", 0), tensor("w", 1), tensor("a", 0), tensor("y", 0)]
    main.inputs, main.outputs = [0], [3]
    main.operators = [
        operator(0, [0, 1], 2, "AddOptions", schema.AddOptionsT()),
        operator(1, [2], 3, "", None),
    ]
    builder = flatbuffers.Builder()
    builder.Finish(whole.Pack(builder), file_identifier=b"TFL3")
    return bytes(builder.Output())


def keras(folder: Path, *, code: bool = False) -> bytes:
    """A Keras model; with `code` one of its layers is a Lambda."""
    os.environ.setdefault("KERAS_BACKEND", "torch")
    import keras

    x = keras.Input((8,), name="x")
    hidden = keras.layers.Dense(4)(x)
    hidden = keras.layers.Lambda(lambda t: t)(hidden) if code else keras.layers.ReLU()(hidden)
    path = folder / "saved.keras"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        keras.Model(x, keras.layers.Dense(2)(hidden)).save(path)
    content = path.read_bytes()
    path.unlink()
    return content


def safetensors(arrays: dict[str, np.ndarray[Any, Any]]) -> bytes:
    from safetensors.numpy import save

    return bytes(save(arrays, {"format": "pt"}))


def huggingface() -> dict[str, bytes]:
    """The files of a folder with a tiny BERT."""
    sizes = {
        "vocab_size": 50,
        "hidden_size": 8,
        "num_hidden_layers": 1,
        "num_attention_heads": 2,
        "intermediate_size": 16,
        "max_position_embeddings": 32,
        "type_vocab_size": 2,
    }
    rng = np.random.default_rng(2)
    shapes: dict[str, tuple[int, ...]] = {
        "embeddings.word_embeddings.weight": (50, 8),
        "embeddings.position_embeddings.weight": (32, 8),
        "embeddings.token_type_embeddings.weight": (2, 8),
        "embeddings.LayerNorm.weight": (8,),
        "embeddings.LayerNorm.bias": (8,),
        "pooler.dense.weight": (8, 8),
        "pooler.dense.bias": (8,),
    }
    layer = "encoder.layer.0."
    for name, rows, columns in (
        ("attention.self.query", 8, 8),
        ("attention.self.key", 8, 8),
        ("attention.self.value", 8, 8),
        ("attention.output.dense", 8, 8),
        ("intermediate.dense", 16, 8),
        ("output.dense", 8, 16),
    ):
        shapes |= {f"{layer}{name}.weight": (rows, columns), f"{layer}{name}.bias": (rows,)}
    for name in ("attention.output.LayerNorm", "output.LayerNorm"):
        shapes |= {f"{layer}{name}.weight": (8,), f"{layer}{name}.bias": (8,)}
    config = {"model_type": "bert", "architectures": ["BertModel"], **sizes}
    arrays = {name: rng.standard_normal(shape).astype("float32") for name, shape in shapes.items()}
    return {
        "config.json": json.dumps(config, indent=1).encode(),
        "model.safetensors": safetensors(arrays),
    }


#: A device table of one row.
DEVICES = """\
schema = "tunefleet-devices/1"

[[device]]
key = "mine"
name = "My processor"
aliases = ["my-processor"]
kind = "cpu"
vendor = "me"
architecture = "mine"
source = "my data sheet"
isa = ["avx2", "fma"]
units = 8
clock_ghz = 3.0
vector_bits = 256
fma_units = 2
"""
