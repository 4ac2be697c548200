"""Whatever is wrong with a network file or a zoo specification is told in one line."""

import importlib.util
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tunefleet.compiler.frontends import load_network, network_digest, network_name
from tunefleet.errors import InputError, SetupError


def _file(name: str, content: bytes) -> Callable[[Path], str]:
    def make(folder: Path) -> str:
        path = folder / name
        path.write_bytes(content)
        return str(path)

    return make


def _directory(folder):
    (folder / "network.onnx").mkdir()
    return str(folder / "network.onnx")


def _model(nodes, shape=(1, 4), opsets=(("", 18),), outputs=("y",), kind=None):
    import onnx
    from onnx import TensorProto, helper

    kind = TensorProto.FLOAT if kind is None else kind
    graph = helper.make_graph(
        nodes,
        "graph",
        [helper.make_tensor_value_info("x", kind, shape)],
        [helper.make_tensor_value_info(name, kind, shape) for name in outputs],
    )
    opsets = [helper.make_opsetid(domain, version) for domain, version in opsets]
    return onnx.helper.make_model(graph, opset_imports=opsets, ir_version=10)


def _node(operator, inputs=("x",), outputs=("y",), **attributes):
    from onnx import helper

    return helper.make_node(operator, list(inputs), list(outputs), **attributes)


def _onnx(build) -> Callable[[Path], str]:
    def make(folder: Path) -> str:
        import onnx

        path = folder / "network.onnx"
        onnx.save(build(), path)
        return str(path)

    return make


def _renamed(folder, old, new):
    path = folder / "network.onnx"
    path.write_bytes(_model([_node("Relu")]).SerializeToString().replace(old, new))
    return str(path)


def _truncated(folder):
    import numpy as np
    from onnx import numpy_helper

    model = _model([_node("Add", ("x", "w"))])
    model.graph.initializer.append(numpy_helper.from_array(np.ones((1000, 4), "float32"), "w"))
    path = folder / "network.onnx"
    path.write_bytes(model.SerializeToString()[:5000])
    return str(path)


def _no_weights(folder):
    import numpy as np
    import onnx
    from onnx import numpy_helper

    model = _model([_node("Add", ("x", "w"))])
    model.graph.initializer.append(numpy_helper.from_array(np.ones((1000, 4), "float32"), "w"))
    path = folder / "network.onnx"
    onnx.save(model, path, save_as_external_data=True, location="weights.bin")
    (folder / "weights.bin").unlink()
    return str(path)


def _nowhere(folder):
    import onnx

    spec = _no_weights(folder)
    model = onnx.load(spec, load_external_data=False)
    for entry in model.graph.initializer[0].external_data:
        entry.value = "-8" if entry.key == "offset" else entry.value
    onnx.save(model, spec)
    return spec


def _random():
    model = _model([_node("RandomNormal", (), ("r",), shape=[10**9, 4]), _node("Add", ("x", "r"))])
    model.graph.output[0].type.tensor_type.ClearField("shape")
    return model


def _padded_away():
    import numpy as np
    from onnx import numpy_helper

    model = _model([_node("Pad", ("x", "by"), ("p",)), _node("Relu", ("p",))])
    by = numpy_helper.from_array(np.array([0, -9, 0, 0]), "by")
    model.graph.initializer.append(by)
    model.graph.output[0].type.tensor_type.ClearField("shape")
    return model


def _bfloat16():
    from onnx import TensorProto

    return _model([_node("Relu")], kind=TensorProto.BFLOAT16)


def _text():
    from onnx import TensorProto

    return _model([_node("Identity")], kind=TensorProto.STRING)


def _recursive():
    from onnx import helper

    opsets = [helper.make_opsetid("", 18), helper.make_opsetid("mine", 1)]
    model = _model([_node("Again", domain="mine")], opsets=(("", 18), ("mine", 1)))
    body = [_node("Again", ("a",), ("b",), domain="mine")]
    model.functions.append(helper.make_function("mine", "Again", ["a"], ["b"], body, opsets))
    return model


def _doubling():
    from onnx import helper

    opsets = [helper.make_opsetid("", 18), helper.make_opsetid("mine", 1)]
    model = _model([_node("F30", domain="mine")], opsets=(("", 18), ("mine", 1)))
    for i in range(31):
        inner = {"operator": f"F{i - 1}", "domain": "mine"} if i else {"operator": "Relu"}
        body = [
            _node(**inner, inputs=("a",), outputs=("c",)),
            _node(**inner, inputs=("c",), outputs=("b",)),
        ]
        model.functions.append(helper.make_function("mine", f"F{i}", ["a"], ["b"], body, opsets))
    return model


def _exported(forward, *inputs, **options) -> Callable[[Path], str]:
    def make(folder: Path) -> str:
        import torch

        class Network(torch.nn.Module):
            def forward(self, x):
                return forward(x)

        path = folder / "network.pt2"
        example = tuple(make_input(torch) for make_input in inputs)
        torch.export.save(torch.export.export(Network(), example, **options), path)
        return str(path)

    return make


# What is wrong, how to make it, and words that the message must hold.
BAD: dict[str, tuple[Callable[[Path], str], tuple[str, ...]]] = {
    "missing file": (lambda d: str(d / "none.onnx"), ("none.onnx", "does not exist")),
    "directory": (_directory, ("is a directory", "zoo:NAME")),
    "unknown suffix": (_file("network.caffemodel", b"x"), ("'.caffemodel'", ".onnx", ".pt2")),
    "no suffix": (lambda d: str(d / "resnet50"), ("no suffix", "zoo:NAME")),
    "state dict .pt": (_file("network.pt", b"x"), ("weights", "torch.export.save")),
    "old Keras": (_file("network.h5", b"x"), ("old format", "model.save('network.keras')")),
    "state dict .pth": (_file("network.pth", b"x"), ("weights", "network.pt2")),
    "empty onnx": (_file("network.onnx", b""), ("is empty",)),
    "empty pt2": (_file("network.pt2", b""), ("is empty",)),
    "garbage onnx": (_file("network.onnx", b"\xff" * 100), ("not a readable ONNX",)),
    "truncated onnx": (_truncated, ("not a readable ONNX",)),
    "onnx without graph": (_file("network.onnx", b"\x08\x0a"), ("no graph",)),
    "onnx without outputs": (
        _onnx(lambda: _model([_node("Relu")], outputs=())),
        ("no outputs",),
    ),
    "onnx with missing weights": (_no_weights, ("another file", "missing")),
    "onnx with weights at a place that is none": (_nowhere, ("weight w", "no place")),
    "onnx with a value that nobody holds": (
        _onnx(_random),
        ("value r has 15 GiB", "--shape"),
    ),
    "onnx with a negative extent": (_onnx(_padded_away), ("value p", "negative extent")),
    "onnx that is invalid": (
        _onnx(lambda: _model([_node("Relu", ("nowhere",))])),
        ("not valid ONNX", "nowhere"),
    ),
    "onnx that ONNX Runtime rejects": (
        _onnx(lambda: _model([_node("MatMul", ("x", "x"))])),
        ("ONNX Runtime cannot run it", "Incompatible dimensions"),
    ),
    "onnx with a free dimension": (
        _onnx(lambda: _model([_node("Relu")], shape=(1, "length"))),
        ("length (axis 1 of x)", "--dim length="),
    ),
    "onnx with unnamed dimension": (
        _onnx(lambda: _model([_node("Relu")], shape=(1, None))),
        ("x.1 (axis 1 of x)", "--dim x.1="),
    ),
    "onnx without shape": (
        _onnx(lambda: _model([_node("Relu")], shape=None)),
        ("input x has no shape", "--shape x="),
    ),
    "onnx with bfloat16 input": (_onnx(_bfloat16), ("input x", "bfloat16")),
    "onnx with text as input": (_onnx(_text), ("input x holds text",)),
    "onnx with an unknown domain": (
        _onnx(lambda: _model([_node("Mystery", domain="mine")], opsets=(("", 18), ("mine", 1)))),
        ("ONNX Runtime cannot run it", "write what Mystery of mine computes in operators of ONNX"),
    ),
    "onnx with a circle": (
        _onnx(lambda: _model([_node("Relu", ("z",)), _node("Relu", ("y",), ("z",))])),
        ("needs its own output",),
    ),
    "onnx of an opset that is none": (
        _onnx(lambda: _model([_node("Relu")], opsets=(("", 2**62),))),
        ("which there is not",),
    ),
    "onnx with numbers of a type that is none": (
        _onnx(lambda: _model([_node("Relu")], kind=99)),
        ("type 99", "which there is not"),
    ),
    "onnx with an input that nobody holds": (
        _onnx(lambda: _model([_node("Relu")], shape=(2**31, 2**31, 2))),
        ("GiB", "--shape"),
    ),
    "onnx with names that are not UTF-8": (
        lambda folder: _renamed(folder, b"Relu", b"\xff\xfe\xff\xfe"),
        ("names that are not UTF-8",),
    ),
    "onnx with a function that calls itself": (
        _onnx(_recursive),
        ("not valid ONNX", "calls itself"),
    ),
    "onnx with functions that become billions of nodes": (_onnx(_doubling), (" operators",)),
    "onnx of very many operators": (
        _onnx(lambda: _model([_node("Relu") for _ in range(20_001)])),
        ("20,001 operators",),
    ),
    "garbage pt2": (_file("network.pt2", b"PK\x03\x04 not a zip"), ("not a readable", "torch")),
    "pt2 with a number as input": (
        _exported(lambda x: x + 1, lambda t: 3),
        ("network.pt2", "tensor"),
    ),
    "pt2 with bfloat16": (
        _exported(lambda x: x + 1, lambda t: t.ones(2, dtype=t.bfloat16)),
        ("input x", "bfloat16"),
    ),
    "pt2 with bfloat16 output": (
        _exported(lambda x: x.bfloat16(), lambda t: t.ones(2)),
        ("output output", "bfloat16"),
    ),
    "unknown zoo network": (lambda d: "zoo:resnet5", ("'resnet5'", "did you mean zoo:resnet")),
    "zoo network like none": (lambda d: "zoo:qqq", ("'qqq'", "tunefleet networks")),
    "unknown zoo parameter": (lambda d: "zoo:resnet18?depth=3", ("'depth'", "batch, classes")),
    "zoo parameter not for this network": (
        lambda d: "zoo:bert_tiny?classes=3",
        ("'classes'", "batch, precision, seed, size"),
    ),
    "zoo parameter without value": (lambda d: "zoo:resnet18?batch", ("'batch'", "batch=1")),
    "zoo parameter not a number": (lambda d: "zoo:resnet18?batch=2.5", ("'2.5'", "whole number")),
    "zoo parameter zero": (lambda d: "zoo:resnet18?batch=0", ("batch=0", "from 1")),
    "zoo parameter negative": (lambda d: "zoo:resnet18?batch=-1", ("batch=-1", "too small")),
    "zoo image too small": (lambda d: "zoo:resnet18?size=1", ("size=1", "from 32")),
    "zoo image too large": (lambda d: "zoo:resnet18?size=99999", ("size=99999", "too large")),
    "zoo sequence too long": (lambda d: "zoo:bert_tiny?size=513", ("size=513", "to 512")),
    "zoo image not in patches": (lambda d: "zoo:vit_small?size=100", ("size=100", "size=96")),
    "zoo parameter twice": (lambda d: "zoo:resnet18?batch=1&batch=2", ("batch", "twice")),
}


def _one_line(error):
    text = str(error)
    assert "\n" not in text
    assert len(text) < 300
    assert error.cure
    return text


@pytest.mark.tvm
@pytest.mark.filterwarnings("ignore")  # what torch.export and onnx say while a case is made
@pytest.mark.parametrize("case", BAD)
def test_bad_network_is_explained_in_one_line(case, tmp_path, capfd):
    make, words = BAD[case]
    spec = make(tmp_path)
    capfd.readouterr()
    with pytest.raises(InputError) as caught:
        load_network(spec)
    text = _one_line(caught.value)
    for word in words:
        assert word in text
    assert tuple(capfd.readouterr()) == ("", "")


@pytest.mark.parametrize("read", [network_digest, network_name])
@pytest.mark.parametrize("spec", ["zoo:resnet5", "nowhere.onnx", "network.pt", "network"])
def test_names_and_digests_refuse_what_cannot_be_loaded(read, spec):
    with pytest.raises(InputError) as caught:
        read(spec)
    _one_line(caught.value)


def test_unreadable_file_is_told(tmp_path, monkeypatch):
    path = tmp_path / "network.onnx"
    path.write_bytes(b"x")

    def refuse(self, *args, **options):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "open", refuse)
    with pytest.raises(InputError, match="permission denied") as caught:
        load_network(path)
    assert "chmod" in _one_line(caught.value)


@pytest.mark.parametrize(
    ("name", "extra"), [("a.tflite", "tflite"), ("a.keras", "keras"), ("a", "tensorflow")]
)
def test_a_missing_extra_is_named(tmp_path, monkeypatch, name, extra):
    path = tmp_path / name
    if not path.suffix:
        path.mkdir()
    (path if path.suffix else path / "saved_model.pb").write_bytes(b"x")
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(SetupError, match=rf"pip install tunefleet\[{extra}\]"):
        load_network(path)


def test_missing_onnx_is_a_matter_of_setup(tmp_path, monkeypatch):
    path = tmp_path / "network.onnx"
    path.write_bytes(b"x")
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(SetupError) as caught:
        load_network(path)
    assert "pip install tunefleet[onnx]" in _one_line(caught.value)


def test_missing_torch_is_a_matter_of_setup(tmp_path, monkeypatch):
    path = tmp_path / "network.pt2"
    path.write_bytes(b"x")
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(SetupError) as caught:
        load_network(path)
    assert "pip install tunefleet[torch]" in _one_line(caught.value)


@pytest.mark.tvm
def test_a_network_that_nobody_would_wait_for_is_refused(tmp_path, monkeypatch):
    from onnx import TensorProto, helper

    from tunefleet.compiler.frontends import onnx_

    monkeypatch.setattr(onnx_, "_LONGEST_RUN_S", 0.5)
    number = helper.make_tensor_value_info
    body = helper.make_graph(
        [_node("Relu", ("a",), ("b",)), _node("Identity", ("go",), ("on",))],
        "body",
        [
            number("i", TensorProto.INT64, []),
            number("go", TensorProto.BOOL, []),
            number("a", TensorProto.FLOAT, (1, 4)),
        ],
        [number("on", TensorProto.BOOL, []), number("b", TensorProto.FLOAT, (1, 4))],
    )
    loop = _node("Loop", ("rounds", "", "x"), body=body)
    model = _model([loop])
    model.graph.initializer.append(helper.make_tensor("rounds", TensorProto.INT64, [], [10**9]))
    path = _onnx(lambda: model)(tmp_path)
    with pytest.raises(InputError, match=r"takes ONNX Runtime more than 0\.5 s"):
        load_network(path)
