"""Broken, hostile and odd ONNX files."""

from __future__ import annotations

import gzip
import itertools
import os
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
from onnx import TensorProto, helper

import hostile_valid as valid
from hostile_case import MOST_S, ODD, Case, Place
from hostile_valid import FLOAT, INT64, constant, graph, model, value

CATEGORY = "ONNX"
_TIB = 2**40


def cases() -> list[Case]:
    return [*_bytes(), *_graphs(), *_values(), *_bombs(), *_weights()]


def _case(
    name: str,
    build: Callable[[], Any],
    *options: str,
    codes: tuple[int, ...] = (2,),
    quick: bool = False,
    most_s: float = MOST_S,
) -> Case:
    """`build` returns a model, or the bytes of a file."""

    def make(place: Place) -> Sequence[str]:
        built = build()
        content = built if isinstance(built, bytes) else built.SerializeToString()
        return ["tasks", place.write("network.onnx", content), *options]

    return Case(CATEGORY, name, make, codes, quick=quick, most_s=most_s)


def _node(kind: str, inputs: Sequence[str] = ("x",), outputs: Sequence[str] = ("y",), **more: Any):  # type: ignore[no-untyped-def]
    return helper.make_node(kind, list(inputs), list(outputs), **more)


def _of(*nodes: Any, constants: Sequence[Any] = (), **more: Any) -> Any:
    return model(graph(nodes, constants=constants, **more))


def _bytes() -> list[Case]:
    whole = valid.convolution
    pointer = (
        b"version https://git-lfs.github.com/spec/v1\n"
        b"oid sha256:4d7a214614ab2935c943f9e0ff69d22eadbb8f32b1258daaa5e2ca24d17e2393\nsize 12345\n"
    )
    page = b"<!DOCTYPE html><html><head><title>404 Not Found</title></head></html>"
    return [
        _case("corrupt ONNX", lambda: b"\x13\x37" * 500, quick=True),
        _case("empty file", lambda: b"", quick=True),
        _case("one byte", lambda: b"\x08"),
        _case("ONNX cut in half", lambda: whole()[: len(whole()) // 2]),
        _case("ONNX without its last byte", lambda: whole()[:-1], codes=ODD),
        _case("ONNX twice in one file", lambda: whole() * 2, codes=ODD),
        _case("gzipped ONNX", lambda: gzip.compress(whole(), mtime=0)),
        _case("a page of HTML as ONNX", lambda: page),
        _case("a git-lfs pointer as ONNX", lambda: pointer),
        _case("a TFLite file as ONNX", valid.tflite),
        _case("a text of 5 MB as ONNX", lambda: b"ir_version: 9\n" * 350_000),
        _case("ONNX without a graph", lambda: b"\x08\x09"),
        _case("protobuf groups 100,000 deep", lambda: b"\x0b" * 100_000),
        _case("a length of 2^63", lambda: b"\x3a" + b"\xff" * 9 + b"\x01"),
    ]


def _field(number: int, content: bytes) -> bytes:
    """A field of bytes in protobuf's wire format."""
    return _varint(number << 3 | 2) + _varint(len(content)) + content


def _varint(number: int) -> bytes:
    found = bytearray()
    while number > 127:
        found.append(number & 127 | 128)
        number >>= 7
    return bytes([*found, number])


def _nested(depth: int) -> bytes:
    """Branches in branches, written without protobuf's library, which refuses so many."""
    output = _field(12, value("b").SerializeToString())
    leaf = _field(1, _node("Relu", ["x"], ["b"]).SerializeToString()) + output
    leaf += _field(2, b"leaf")
    made = leaf
    for _ in range(depth):
        node = _node("If", ["c"], ["b"]).SerializeToString()
        for name, branch in (("then_branch", made), ("else_branch", leaf)):
            # The type of an attribute is 20, that of a graph 5.
            kind = _varint(20 << 3) + b"\x05"
            node += _field(5, _field(1, name.encode()) + _field(6, branch) + kind)
        made = _field(1, node) + _field(2, b"branch") + output
    inputs = [value("x"), value("c", [], TensorProto.BOOL)]
    made += b"".join(_field(11, each.SerializeToString()) for each in inputs)
    opset = _field(8, helper.make_opsetid("", 18).SerializeToString())
    return b"\x08\x09" + _field(7, made) + opset


def _recursive() -> Any:
    made = model(graph([_node("F", domain="mine")]), mine=1)
    calls = helper.make_function(
        "mine", "F", ["x"], ["y"], [_node("F", domain="mine")],
        [helper.make_opsetid("", 18), helper.make_opsetid("mine", 1)],
    )  # fmt: skip
    made.functions.append(calls)
    return made


def _doubling(depth: int) -> Any:
    """Functions that call the one before twice: 2^depth nodes when they are written out."""
    made = model(graph([_node(f"F{depth}", domain="mine")]), mine=1)
    sets = [helper.make_opsetid("", 18), helper.make_opsetid("mine", 1)]
    for level in range(depth + 1):
        domain = {"domain": "mine"} if level else {}
        name = f"F{level - 1}" if level else "Relu"
        nodes = [_node(name, ["x"], ["t"], **domain), _node(name, ["t"], ["y"], **domain)]
        made.functions.append(helper.make_function("mine", f"F{level}", ["x"], ["y"], nodes, sets))
    return made


def _loop(rounds: int) -> Any:
    body = graph(
        [_node("Add", ["s", "s"], ["s2"]), _node("Identity", ["go"], ["on"])],
        [value("i", [], INT64), value("go", [], TensorProto.BOOL), value("s")],
        [value("on", [], TensorProto.BOOL), value("s2")],
        name="body",
    )
    return _of(_node("Loop", ["n", "", "x"], body=body), constants=[constant("n", rounds)])


def _doubled(times: int) -> Any:
    names = ["x", *(f"v{i}" for i in range(1, times)), "y"]
    return _of(*(_node("Add", [a, a], [b]) for a, b in itertools.pairwise(names)))


def _chain(count: int) -> Any:
    names = ["x", *(f"v{i}" for i in range(count - 1)), "y"]
    return _of(*(_node("Relu", [a], [b]) for a, b in itertools.pairwise(names)))


def _graphs() -> list[Case]:
    relu = _node("Relu")
    no_nodes = partial(_of, inputs=[value("x")], outputs=[value("x")])
    many = [value(f"x{i}") for i in range(300)]
    summed = _node("Sum", [f"x{i}" for i in range(300)])
    refused = (2, 6)
    return [
        _case("opset 0", lambda: model(graph([relu]), opset=0)),
        _case("opset 1", lambda: model(graph([relu]), opset=1), codes=ODD),
        _case("opset 9999", lambda: model(graph([relu]), opset=9999), codes=ODD),
        _case("opset 2^62", lambda: model(graph([relu]), opset=2**62), codes=ODD),
        _case("a version of the format of 2^31", lambda: model(graph([relu]), ir=2**31), codes=ODD),
        _case("no version of the format", lambda: model(graph([relu]), ir=0), codes=ODD),
        _case("unsupported operator",
              lambda: model(graph([_node("Frobnicate", domain="mine")]), mine=1), quick=True),
        _case("a name of an operator as a command",
              lambda: _of(_node("$(touch canary);`id`\x1b[2J"))),
        _case("an operator without a name", lambda: _of(_node(""))),
        _case("an operator without inputs", lambda: _of(_node("Conv", []))),
        _case("a circle", lambda: _of(_node("Relu", ["z"]), _node("Neg", ["y"], ["z"]))),
        _case("an operator on its own output", lambda: _of(_node("Add", ["x", "y"]))),
        _case("one output of two operators", lambda: _of(relu, _node("Neg"))),
        _case("an input that nothing makes", lambda: _of(_node("Add", ["x", "nowhere"]))),
        _case("an output that nothing makes", lambda: _of(_node("Relu", ["x"], ["z"]))),
        _case("operators in the wrong order",
              lambda: _of(_node("Neg", ["z"]), _node("Relu", ["x"], ["z"])), codes=ODD),
        _case("no operators", no_nodes, codes=ODD),
        _case("no outputs", lambda: _of(relu, outputs=[])),
        _case("no inputs", lambda: _of(_node("Neg", ["w"]), inputs=[],
              constants=[constant("w", np.ones((1, 4), "float32"))]), codes=ODD),
        _case("the same output twice", lambda: _of(relu, outputs=[value("y")] * 2), codes=ODD),
        _case("the same input twice", lambda: _of(relu, inputs=[value("x")] * 2), codes=ODD),
        _case("300 inputs", lambda: _of(summed, inputs=many), codes=ODD),
        _case("a function that calls itself", _recursive),
        _case("functions that double 30 times", lambda: _doubling(30), codes=refused),
        _case("500 branches, one in another", lambda: _nested(500), codes=ODD),
        _case("60 branches, one in another", lambda: _nested(60), codes=ODD),
        _case("100,000 operators", lambda: _chain(100_000)),
        _case("19,901 operators", lambda: _chain(19_901), codes=ODD, most_s=100),
        _case("3,000 inputs of one operator",
              lambda: _of(_node("Sum", ["x"] * 3000)), codes=ODD),
        _case("a tensor that is added to itself 60 times", lambda: _doubled(60), codes=ODD),
        _case("a loop of a billion rounds", lambda: _loop(10**9), codes=refused),
        _case("a loop of 2^63 - 1 rounds", lambda: _loop(2**63 - 1), codes=refused),
        _case("a loop of -5 rounds", lambda: _loop(-5), codes=ODD),
        _case("training-mode dropout",
              lambda: _of(_node("Dropout", ["x", "r", "t"]), constants=[
                  constant("r", np.float32(0.5)), constant("t", np.bool_(True))]), codes=ODD),
        _case("random numbers", lambda: _of(
            _node("RandomNormal", [], ["r"], shape=[1, 4]), _node("Add", ["x", "r"])), codes=ODD),
        _case("random numbers of a billion places", lambda: _of(
            _node("RandomNormal", [], ["r"], shape=[10**9, 4]), _node("Add", ["x", "r"]),
            outputs=[value("y", (10**9, 4))]), codes=ODD),
        _case("an attribute of the wrong type", lambda: _of(_node("Softmax", axis="last"))),
        _case("an axis of 2^62", lambda: _of(_node("Softmax", axis=2**62)), codes=ODD),
        _case("strides of 0", lambda: _of(
            _node("MaxPool", kernel_shape=[2, 2], strides=[0, 0]),
            inputs=[value("x", (1, 1, 8, 8))], outputs=[value("y", None)])),
        _case("pads of 2^60", lambda: _of(
            _node("MaxPool", kernel_shape=[2, 2], pads=[2**60] * 4),
            inputs=[value("x", (1, 1, 8, 8))], outputs=[value("y", None)])),
        _case("a convolution of 0 groups", lambda: _of(
            _node("Conv", ["x", "w"], group=0), inputs=[value("x", (1, 1, 8, 8))],
            outputs=[value("y", None)],
            constants=[constant("w", np.ones((1, 1, 3, 3), "float32"))])),
        _case("an Einsum of brackets", lambda: _of(_node("Einsum", equation="((((->i" * 50))),
    ]  # fmt: skip


def _free(*names: str) -> Any:
    shape = list(names)
    return model(graph([_node("Relu")], [value("x", shape)], [value("y", shape)]))


def _typed(kind: int, operator: str = "Identity") -> Any:
    return _of(_node(operator), inputs=[value("x", (1, 4), kind)],
               outputs=[value("y", (1, 4), kind)])  # fmt: skip


def _shaped(*shape: int) -> Any:
    return _of(_node("Relu"), inputs=[value("x", shape)], outputs=[value("y", shape)])


def _sequence() -> Any:
    kind = helper.make_tensor_sequence_value_info("y", FLOAT, None)
    return _of(_node("SequenceConstruct"), outputs=[kind])


def _values() -> list[Case]:
    types = {
        "bfloat16": TensorProto.BFLOAT16, "int4": TensorProto.INT4,
        "float8": TensorProto.FLOAT8E4M3FN, "complex": TensorProto.COMPLEX64,
        "text": TensorProto.STRING, "bool": TensorProto.BOOL, "uint16": TensorProto.UINT16,
        "type 99": 99, "no type": 0,
    }  # fmt: skip
    return [
        _case("free dimensions", lambda: _free("batch", "width"), quick=True),
        _case("a dimension named as a command", lambda: _free("batch", "n; rm -rf ~; touch x")),
        _case("a dimension with quotes", lambda: _free("batch", "a'b\"c`d$(id)")),
        _case("a dimension with a line break", lambda: _free("batch", "a\nerror: b\r\x1b[31mc")),
        _case("a dimension named as an option", lambda: _free("batch", "--home=/")),
        _case("a dimension named with an equals sign", lambda: _free("batch", "a=b"),
              "--dim", "a=b=3", codes=ODD),
        _case("a dimension named by 100,000 letters", lambda: _free("batch", "n" * 100_000)),
        _case("a dimension with no name", lambda: _of(
            _node("Relu"), inputs=[value("x", (None, None))], outputs=[value("y", None)])),
        _case("300 free dimensions", lambda: _of(
            _node("Relu"), inputs=[value("x", [f"d{i}" for i in range(300)])],
            outputs=[value("y", None)])),
        _case("an input without a shape", lambda: _of(_node("Relu"), inputs=[value("x", None)])),
        _case("an input of 512 TiB", lambda: _shaped(128 * _TIB), codes=(2, 6)),
        _case("an input of 2^63 places", lambda: _shaped(2**31, 2**31, 2), codes=(2, 6)),
        _case("an input of 2^128 places", lambda: _shaped(2**62, 2**62, 2**4), codes=(2, 6)),
        _case("a dimension of -3", lambda: _shaped(1, -3), codes=ODD),
        _case("a dimension of -2^63", lambda: _shaped(1, -(2**63)), codes=ODD),
        _case("a dimension of 0", lambda: _shaped(1, 0), codes=ODD),
        _case("a scalar", lambda: _shaped(), codes=ODD),
        _case("an input of 64 axes", lambda: _shaped(*[1] * 64), codes=ODD),
        _case("names of control characters", lambda: model(graph(
            [_node("Relu", ["x\x1b[2J\n"], ["y\r\x07"])], [value("x\x1b[2J\n")],
            [value("y\r\x07")])), codes=ODD),
        _case("a name of 1 MB", lambda: model(graph(
            [_node("Relu", ["x" * 2**20])], [value("x" * 2**20)])), codes=ODD),
        _case("names that are not UTF-8", lambda: _of(_node("Relu")).SerializeToString().replace(
            b"graph", b"gr\xff\xfeh")),
        *(_case(f"an input of {name}", partial(_typed, kind), codes=ODD)
          for name, kind in types.items()),
        _case("an output that is a sequence", _sequence),
        _case("an output of another type than its operator's",
              lambda: _of(_node("Relu"), outputs=[value("y", (1, 4), INT64)]), codes=ODD),
        _case("an output of another shape than its operator's",
              lambda: _of(_node("Relu"), outputs=[value("y", (7, 9))]), codes=ODD),
    ]  # fmt: skip


def _unknown(kind: str, inputs: Sequence[str], *constants: Any, **attributes: Any) -> Any:
    """An operator whose output is of any shape, reduced to one number."""
    nodes = [_node(kind, inputs, ["big"], **attributes), _node("ReduceMax", ["big"], keepdims=0)]
    return _of(*nodes, outputs=[value("y", [])], constants=constants)


def _bombs() -> list[Case]:
    """Small files that say much."""
    huge, million = np.array([10**6, 10**6, 10**3]), 10**6
    shape = constant("n", huge)
    four = np.array([1, 4], "float32")
    return [
        _case("ConstantOfShape of 10^15 places", lambda: _unknown(
            "ConstantOfShape", ["n"], shape), codes=(2, 6)),
        _case("ConstantOfShape of 10^10 places", lambda: _unknown(
            "ConstantOfShape", ["n"], constant("n", np.array([10**5, 10**5]))), codes=(2, 6)),
        _case("ConstantOfShape of -5 places", lambda: _unknown(
            "ConstantOfShape", ["n"], constant("n", np.array([-5])))),
        _case("Expand to 10^15 places", lambda: _unknown("Expand", ["s", "n"], shape,
              constant("s", np.array([[[1]]], "float32"))), codes=(2, 6)),
        _case("an input expanded to 10^12 places", lambda: _unknown("Expand", ["x", "n"],
              constant("n", np.array([10**6, 250_000, 1, 4]))), codes=ODD),
        _case("Tile to 10^13 places", lambda: _unknown("Tile", ["x", "n"],
              constant("n", np.array([million, million * 10]))), codes=ODD),
        _case("Range of 10^18 places", lambda: _unknown("Range", ["a", "b", "c"], *(
              constant(n, v) for n, v in (("a", 0), ("b", 10**18), ("c", 1)))), codes=(2, 6)),
        _case("Range by steps of 0", lambda: _unknown("Range", ["a", "b", "c"], *(
              constant(n, v) for n, v in (("a", 0), ("b", 10), ("c", 0)))), codes=ODD),
        _case("Resize by a million", lambda: _unknown("Resize", ["x", "", "s"],
              constant("s", np.array([million, million], "float32"))), codes=ODD),
        _case("Resize by NaN", lambda: _unknown("Resize", ["x", "", "s"],
              constant("s", np.array([np.nan, -1], "float32"))), codes=ODD),
        _case("OneHot of 10^12 classes", lambda: _unknown("OneHot", ["i", "d", "v"],
              constant("i", np.array([1, 2])), constant("d", 10**12), constant("v", four)),
              codes=(2, 6)),
        _case("Pad by 10^12", lambda: _unknown("Pad", ["x", "p"],
              constant("p", np.array([0, 0, 0, 10**12]))), codes=ODD),
        _case("Pad by -10^12", lambda: _unknown("Pad", ["x", "p"],
              constant("p", np.array([0, 0, 0, -(10**12)]))), codes=ODD),
        _case("Reshape to what overflows", lambda: _unknown("Reshape", ["x", "n"],
              constant("n", np.array([2**33, 2**33]))), codes=ODD),
        _case("Split into a million parts", lambda: _of(
            _node("Split", ["x"], [f"y{i}" for i in range(1000)], num_outputs=million),
            outputs=[value("y0", None)]), codes=ODD),
        _case("products that double 40 times", lambda: _of(
            *(_node("Concat", [f"v{i}"] * 2, [f"v{i + 1}"], axis=1) for i in range(40)),
            inputs=[value("v0")], outputs=[value("v40", None)]), codes=ODD),
        _case("a matrix product of 10^18 operations", lambda: _of(
            _node("MatMul", ["x", "x"]), inputs=[value("x", (million, million))],
            outputs=[value("y", (million, million))]), codes=ODD),
    ]  # fmt: skip


def _short() -> Any:
    made = _of(_node("Add", ["x", "w"]), constants=[constant("w", np.ones((1, 4), "float32"))])
    made.graph.initializer[0].raw_data = b"\x00\x00"
    return made


def _long() -> Any:
    made = _short()
    made.graph.initializer[0].raw_data = b"\x00" * 4096
    return made


def _sized(*extents: int) -> Any:
    made = _short()
    made.graph.initializer[0].dims[:] = extents
    return made


def _outside(location: str, length: str = "16", offset: str = "0") -> Any:
    made = _short()
    tensor = made.graph.initializer[0]
    tensor.ClearField("raw_data")
    tensor.data_location = TensorProto.EXTERNAL
    for key, text in (("location", location), ("length", length), ("offset", offset)):
        entry = tensor.external_data.add()
        entry.key, entry.value = key, text
    return made


def _beside(name: str, content: bytes, made: Callable[[], Any]) -> Case:
    def make(place: Place) -> Sequence[str]:
        place.write("weights.bin", content)
        return ["tasks", place.write("network.onnx", made().SerializeToString())]

    return Case(CATEGORY, name, make, (2,))


def _link(place: Place) -> Sequence[str]:
    os.symlink("/etc/passwd", place.folder / "weights.bin")
    return ["tasks", place.write("network.onnx", _outside("weights.bin").SerializeToString())]


def _filled(number: float) -> Any:
    weights = np.full((4, 4), number, "float32")
    return _of(_node("MatMul", ["x", "w"]), constants=[constant("w", weights)])


def _weights() -> list[Case]:
    return [
        _case("a weight with too few bytes", _short),
        _case("a weight with too many bytes", _long),
        _case("a weight of 2^60 places", lambda: _sized(2**30, 2**30)),
        _case("a weight of -4 places", lambda: _sized(1, -4)),
        _case("weights of NaN", lambda: _filled(np.nan), codes=ODD),
        _case("weights of infinity", lambda: _filled(np.inf), codes=ODD),
        _case("an output of minus infinity", lambda: _of(
            _node("Mul", ["x", "z"], ["m"]), _node("Log", ["m"]),
            constants=[constant("z", np.array([0], "float32"))]), codes=ODD),
        _case("weights in a file that is missing", lambda: _outside("nowhere.bin")),
        _case("weights in ../../../../etc/passwd", lambda: _outside("../../../../etc/passwd")),
        _case("weights in /etc/passwd", lambda: _outside("/etc/passwd")),
        _case("weights in /dev/zero", lambda: _outside("/dev/zero")),
        _case("weights in the network's own folder", lambda: _outside(".")),
        _case("weights in a file without a name", lambda: _outside("")),
        Case(CATEGORY, "weights behind a link to /etc/passwd", _link, (2,)),
        _beside("a file of weights that is too short", b"1234", lambda: _outside("weights.bin")),
        _beside("weights beyond the end of their file", b"1" * 64,
                lambda: _outside("weights.bin", offset=str(2**40))),
        _beside("weights at a negative offset", b"1" * 64,
                lambda: _outside("weights.bin", offset="-8")),
        _beside("weights of a length that is no number", b"1" * 64,
                lambda: _outside("weights.bin", length="all; touch canary")),
    ]  # fmt: skip
