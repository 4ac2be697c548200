"""Torch modules given from Python: the file that is made of them."""

from __future__ import annotations

import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tunefleet.compiler.frontends import ImportRequest, load_network, network_digest
from tunefleet.core.shapes import ShapeRequest
from tunefleet.errors import InputError

torch = pytest.importorskip("torch")

from tunefleet.compiler.frontends.torch_module import saved_dims, saved_module  # noqa: E402

pytestmark = [pytest.mark.tvm, pytest.mark.filterwarnings("ignore")]


class Scaled(torch.nn.Module):  # type: ignore[name-defined]
    def __init__(self, factor: float = 2.0) -> None:
        super().__init__()
        self.factor = torch.nn.Parameter(torch.tensor([factor]))

    def forward(self, x: Any, y: Any) -> Any:
        return {"scaled": x * self.factor + y.sum(-1)}


_EXAMPLES = (torch.ones(2, 3), torch.ones(2, 3, 4))
_DYNAMIC = {"x": {0: "batch", 1: "width"}, "y": {0: "batch", 1: "width", 2: "depth"}}


def test_equal_modules_have_one_file_and_others_another(tmp_path: Path) -> None:
    first = saved_module(Scaled().eval(), _EXAMPLES, None, tmp_path)
    digest = network_digest(first)
    assert first == saved_module(Scaled().eval(), _EXAMPLES, None, tmp_path)
    assert digest == network_digest(first)
    others = [
        saved_module(Scaled(3.0).eval(), _EXAMPLES, None, tmp_path),
        saved_module(Scaled().eval(), _EXAMPLES, _DYNAMIC, tmp_path),
        saved_module(Scaled().eval(), (torch.ones(3), torch.ones(3, 4)), None, tmp_path),
    ]
    assert len({first, *others}) == 4
    assert [first] == list(first.parent.iterdir())


def test_free_axes_keep_their_names(tmp_path: Path) -> None:
    path = saved_module(Scaled().eval(), _EXAMPLES, _DYNAMIC, tmp_path)
    with pytest.raises(InputError, match=r"free dimensions: width \(axis 1 of x, axis 1 of y\), "):
        load_network(path)
    asked = ShapeRequest.of((), [("width", [5]), ("depth", [2])])
    network = load_network(path, ImportRequest(tmp_path, asked))
    assert [i.shape for i in network.info.inputs] == [(1, 5), (1, 5, 2)]
    assert [o.name for o in network.info.outputs] == ["scaled"]
    x, y = network.example_inputs
    np.testing.assert_allclose(network.reference([x, y])[0], 2 * x + y.sum(-1), rtol=1e-5)


@pytest.mark.parametrize("names", ["{", "[1]", '{"s0": 1}', "\udcff"])
def test_names_of_free_axes_that_are_none_are_the_files_fault(tmp_path: Path, names: str) -> None:
    path = tmp_path / "x.pt2"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("x/extra/tunefleet_dims.json", names.encode(errors="surrogateescape"))
    with pytest.raises(InputError, match=r"x\.pt2 has no usable names of its free dimensions"):
        saved_dims(path)


def test_inputs_are_given_by_name_and_dims_of_torch_are_taken(tmp_path: Path) -> None:
    rows = torch.export.Dim("rows", min=2, max=64)
    examples = {"y": torch.ones(5, 3, 4), "x": torch.ones(5, 3)}
    dynamic = {"x": {0: rows}, "y": {0: rows}}
    path = saved_module(Scaled().eval(), examples, dynamic, tmp_path)
    asked = ShapeRequest.of((), [("rows", [65])])
    with pytest.raises(InputError, match="rows is 65, exported for 2 to 64"):
        load_network(path, ImportRequest(tmp_path, asked))


def test_an_exported_program_is_taken_as_it_is(tmp_path: Path) -> None:
    program = torch.export.export(Scaled().eval(), _EXAMPLES)
    path = saved_module(program, None, None, tmp_path)
    assert [i.shape for i in load_network(path).info.inputs] == [(2, 3), (2, 3, 4)]


class _Odd(torch.nn.Module):  # type: ignore[name-defined]
    def forward(self, x: Any) -> Any:
        return x, "done"


class _Fixed(torch.nn.Module):  # type: ignore[name-defined]
    def forward(self, x: Any) -> Any:
        return x + torch.ones(3)


class _Branching(torch.nn.Module):  # type: ignore[name-defined]
    def forward(self, x: Any) -> Any:
        return x + 1 if x.sum() > 0 else x


class _Flexible(torch.nn.Module):  # type: ignore[name-defined]
    """Its functions of scores are in the program, which torch exports and cannot write."""

    def forward(self, x: Any) -> Any:
        from torch.nn.attention.flex_attention import flex_attention

        return flex_attention(x, x, x)


@pytest.mark.parametrize(
    ("module", "inputs", "dynamic", "said"),
    [
        (Scaled(), _EXAMPLES, None, "training mode"),
        (Scaled().eval(), None, None, "inputs are not known"),
        (Scaled().eval(), (torch.ones(2),), None, "do not fit its forward"),
        (Scaled().eval(), (torch.ones(2), 3), None, "hold int"),
        (Scaled().eval(), _EXAMPLES, {"z": {0: "batch"}}, "no input z"),
        (Scaled().eval(), _EXAMPLES, {"x": {2: "batch"}}, "has 2 axes"),
        (Scaled().eval(), _EXAMPLES, {"x": {0: "a b"}}, "is no name"),
        (Scaled().eval().to("meta"), _EXAMPLES, None, "lies on meta"),
        (_Odd().eval(), (torch.ones(2),), None, "returns str done"),
        (_Fixed().eval(), (torch.ones(3),), {"x": {0: "batch"}}, "specialized it to be a constant"),
        (_Branching().eval(), (torch.ones(2),), None, "torch cannot export it"),
        (_Flexible().eval(), (torch.ones(1, 1, 4, 4),), None, "save it: .* node flex_attention"),
        (object(), (), None, "a torch module, not object"),
    ],
)
def test_what_cannot_be_exported_is_refused(
    module: Any, inputs: Any, dynamic: Any, said: str, tmp_path: Path
) -> None:
    with pytest.raises(InputError, match=said) as error:
        saved_module(module, inputs, dynamic, tmp_path)
    assert "\n" not in str(error.value)


class _Chosen(torch.nn.Module):  # type: ignore[name-defined]
    def __init__(self, factor: float) -> None:
        super().__init__()
        self.factor = factor

    def forward(self, x: Any) -> Any:
        return torch.cond(x.sum() > 0, lambda x: x * self.factor, lambda x: x - 1, (x,))


def test_modules_that_differ_within_a_branch_have_files_and_segments_of_their_own(
    tmp_path: Path,
) -> None:
    files = [saved_module(_Chosen(f).eval(), (torch.ones(2),), None, tmp_path) for f in (2.0, 3.0)]
    assert files[0] != files[1]
    networks = [load_network(file, ImportRequest(tmp_path)) for file in files]
    names = [segment.name for network in networks for segment in network.segments]
    assert 2 == len(set(names)) == len(names)
    given = [np.ones(2, "float32")]
    assert [network.reference(given)[0][0] for network in networks] == [2.0, 3.0]


class _Mapped(torch.nn.Module):  # type: ignore[name-defined]
    def forward(self, x: Any) -> Any:
        return torch.vmap(lambda row: row * 2 + row.sum())(x)


class _Scanned(torch.nn.Module):  # type: ignore[name-defined]
    def forward(self, x: Any) -> Any:
        from torch._higher_order_ops.associative_scan import associative_scan

        return associative_scan(lambda a, b: a * b, x, 0, combine_mode="generic")


@pytest.mark.parametrize("module", [_Mapped(), _Scanned()])
def test_what_vmap_maps_is_written_in_operators(module: Any, tmp_path: Path) -> None:
    module.eval()
    network = load_network(saved_module(module, (torch.rand(4, 3),), None, tmp_path))
    (x,) = network.example_inputs
    np.testing.assert_allclose(module(torch.tensor(x)), network.reference([x])[0], rtol=1e-6)


def test_a_program_with_vmap_in_its_file_is_refused_with_its_cure(tmp_path: Path) -> None:
    path = tmp_path / "mapped.pt2"
    program = torch.export.export(_Mapped().eval(), (torch.rand(4, 3),))
    torch.export.save(program, path)
    with pytest.raises(InputError, match=r"save what .* run_decompositions\(\{\}\)"):
        load_network(path)
    torch.export.save(program.run_decompositions({}), path)
    assert load_network(path).info.outputs[0].shape == (4, 3)


def test_what_was_traced_is_taken_in_whatever_mode_it_says_it_is(tmp_path: Path) -> None:
    module = torch.export.export(torch.nn.Linear(4, 3).eval(), (torch.ones(2, 4),)).module()
    assert module.training
    path = saved_module(module, (torch.ones(2, 4),), None, tmp_path)
    assert load_network(path).info.outputs[0].shape == (2, 3)


class _Doubled(torch.nn.Module):  # type: ignore[name-defined]
    def forward(self, x: Any) -> Any:
        return x * 2


def test_an_example_without_axes_stays_one(tmp_path: Path) -> None:
    file = saved_module(_Doubled().eval(), (torch.tensor(3.0),), None, tmp_path)
    (found,) = load_network(file).example_inputs
    assert found.shape == ()


def test_a_torchscript_module_is_refused(tmp_path: Path) -> None:
    module = torch.jit.trace(_Doubled().eval(), torch.ones(2))
    with pytest.raises(InputError, match="TopLevelTracedModule is a TorchScript module"):
        saved_module(module, (torch.ones(2),), None, tmp_path)
