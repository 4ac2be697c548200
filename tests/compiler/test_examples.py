"""The inputs that a network is checked and measured with."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import torch
from onnx import TensorProto, helper

from tunefleet.compiler.frontends import ImportRequest, load_network
from tunefleet.compiler.frontends.imported import ImportedNetwork
from tunefleet.core.network import IntegerRange
from tunefleet.core.shapes import ShapeRequest
from tunefleet.errors import InputError
from tunefleet.runs.given_inputs import input_files

pytestmark = [pytest.mark.tvm, pytest.mark.frameworks]


class Embedded(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.words = torch.nn.Embedding(1000, 8)
        self.positions = torch.nn.Embedding(64, 8)

    def forward(self, ids: torch.Tensor, places: torch.Tensor) -> torch.Tensor:
        return self.words(ids) + self.positions(places + 2)


def exported(module: torch.nn.Module, *inputs: torch.Tensor, folder: Path) -> ImportedNetwork:
    path = folder / "network.pt2"
    torch.export.save(torch.export.export(module, inputs), path)
    return load_network(path, ImportRequest(folder))


def graph(folder: Path, nodes: list[Any], inputs: dict[str, tuple[int, list[int]]]) -> Path:
    """An ONNX file whose output is y, a vector of floats."""
    values = [helper.make_tensor_value_info(n, *kind) for n, kind in inputs.items()]
    output = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    tables = [
        onnx.numpy_helper.from_array(np.arange(40, dtype="float32").reshape(20, 2), "table"),
        onnx.numpy_helper.from_array(np.arange(12), "steps"),
        onnx.numpy_helper.from_array(np.array(2), "two"),
    ]
    made = helper.make_graph(nodes, "network", values, [output], tables)
    path = folder / "network.onnx"
    onnx.save(helper.make_model(made, opset_imports=[helper.make_opsetid("", 20)]), path)
    return path


INT64 = TensorProto.INT64


def test_indices_are_drawn_within_what_they_index(tmp_path: Path) -> None:
    ids, places = (torch.ones(1, 50, dtype=torch.int64) for _ in range(2))
    imported = exported(Embedded(), ids, places, folder=tmp_path)
    assert (IntegerRange(0, 999), IntegerRange(0, 61)) == imported.info.ranges
    # Those of the file are its author's.
    assert all((array == 1).all() for array in imported.example_inputs)


@pytest.mark.parametrize(
    ("nodes", "within"),
    [
        ([("Gather", ["table", "n"], "y", {})], IntegerRange(0, 19)),
        ([("Gather", ["table", "n"], "y", {"axis": 1})], IntegerRange(0, 1)),
        (
            [("Add", ["n", "two"], "m", {}), ("Gather", ["table", "m"], "y", {})],
            IntegerRange(0, 17),
        ),
        # Twice the index, however it comes about.
        (
            [("Mul", ["n", "two"], "m", {}), ("Gather", ["table", "m"], "y", {})],
            IntegerRange(0, 9),
        ),
        # A length: positions up to the largest are seen or hidden.
        (
            [("Less", ["steps", "n"], "m", {}), ("Cast", ["m"], "y", {"to": TensorProto.FLOAT})],
            IntegerRange(0, 12),
        ),
        (
            [("Div", ["two", "n"], "m", {}), ("Cast", ["m"], "y", {"to": TensorProto.FLOAT})],
            IntegerRange(1, 9),
        ),
        # Not only at zero.
        (
            [
                ("Sub", ["n", "two"], "m", {}),
                ("Div", ["two", "m"], "q", {}),
                ("Cast", ["q"], "y", {"to": TensorProto.FLOAT}),
            ],
            IntegerRange(3, 9),
        ),
        # A mask: with other numbers BERT's would be infinite.
        (
            [("Sub", ["two", "n"], "m", {}), ("Cast", ["m"], "y", {"to": TensorProto.FLOAT})],
            IntegerRange(0, 1),
        ),
        # What is indexed has a size that depends on values.
        (
            [
                ("NonZero", ["steps"], "places", {}),
                ("Gather", ["places", "n"], "m", {"axis": 1}),
                ("Cast", ["m"], "y", {"to": TensorProto.FLOAT}),
            ],
            IntegerRange(0, 1),
        ),
        # In a way that is not followed.
        (
            [("Mul", ["n", "n"], "m", {}), ("Gather", ["table", "m"], "y", {})],
            IntegerRange(0, 1),
        ),
    ],
)
def test_integers_are_drawn_by_what_is_computed_with_them(
    nodes: list[tuple[str, list[str], str, dict[str, Any]]], within: IntegerRange, tmp_path: Path
) -> None:
    made = [helper.make_node(name, given, [to], **more) for name, given, to, more in nodes]
    imported = load_network(graph(tmp_path, made, {"n": (INT64, [1])}), ImportRequest(tmp_path))
    assert (within,) == imported.info.ranges
    (drawn,) = imported.example_inputs
    assert within.least <= drawn[0] <= within.most
    imported.reference(imported.example_inputs)


def test_bytes_are_drawn_over_all_their_values(tmp_path: Path) -> None:
    node = helper.make_node("Cast", ["n"], ["y"], to=TensorProto.FLOAT)
    path = graph(tmp_path, [node], {"n": (TensorProto.UINT8, [3000])})
    (drawn,) = load_network(path, ImportRequest(tmp_path)).example_inputs
    assert len(np.unique(drawn)) == 256


@pytest.fixture
def scaled(tmp_path: Path) -> Path:
    nodes = [
        helper.make_node("Cast", ["n"], ["f"], to=TensorProto.FLOAT),
        helper.make_node("Mul", ["x", "f"], ["y"]),
    ]
    inputs = {"x": (TensorProto.FLOAT, ["rows", 2]), "n": (INT64, [1])}
    return graph(tmp_path, nodes, inputs)  # type: ignore[arg-type]  # a free dimension has a name


def load(path: Path, given: Any, rows: int = 3) -> ImportedNetwork:
    files = input_files(given, lambda: path.parent)
    shapes = ShapeRequest.of(dims=[("rows", [rows])])
    return load_network(path, ImportRequest(path.parent, shapes, inputs=files))


def test_given_inputs_are_checked_with(scaled: Path) -> None:
    # Doubles, as NumPy makes them.
    given = {"x": np.ones((3, 2)), "n": np.array([7])}
    imported = load(scaled, given)
    assert [array.dtype.name for array in imported.example_inputs] == ["float32", "int64"]
    assert imported.example_inputs[1][0] == 7
    drawn = load(scaled, None)
    assert drawn.info.digest != imported.info.digest


def test_of_several_files_the_one_of_the_shapes_is_taken(scaled: Path) -> None:
    given = [{"x": np.full((rows, 2), rows), "n": np.array([1])} for rows in (3, 5)]
    assert load(scaled, given, rows=5).example_inputs[0][0, 0] == 5


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"x": np.ones((4, 2)), "n": np.array([1])}, r"x has shape \[4, 2\].* takes \[3, 2\]"),
        ({"x": np.ones((3, 2))}, "lacks n"),
        ({"x": np.ones((3, 2)), "n": np.array([1.5])}, "has values that int64 does not"),
        ({"x": np.array(["a"]), "n": np.array([1])}, "no array of numbers"),
        ("absent.npz", "cannot read"),
        (5, "inputs are int"),
        ([5], "inputs are int"),
    ],
)
def test_inputs_that_do_not_fit_are_refused(given: Any, said: str, scaled: Path) -> None:
    with pytest.raises(InputError, match=said):
        load(scaled, given)


def test_equal_arrays_are_one_file(tmp_path: Path) -> None:
    first, second = (input_files({"x": np.arange(3)}, lambda: tmp_path) for _ in range(2))
    assert first == second
    assert first != input_files({"x": np.arange(4)}, lambda: tmp_path)
