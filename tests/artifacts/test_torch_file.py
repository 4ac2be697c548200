"""Strangers' .pt2 files: what is in them is not run."""

from __future__ import annotations

import io
import json
import pickle
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tunefleet.errors import InputError

pytestmark = pytest.mark.tvm


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    import torch

    class Network(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = torch.nn.Linear(4, 3)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.linear(x.reshape(x.shape[0] * 2, 4)).relu()

    path = tmp_path_factory.mktemp("saved") / "network.pt2"
    dynamic = {"x": {0: torch.export.Dim("batch", min=2, max=64)}}
    program = torch.export.export(Network().eval(), (torch.ones(3, 8),), dynamic_shapes=dynamic)
    torch.export.save(program, path)
    return path


def rewritten(
    saved: Path, folder: Path, changed: dict[str, Callable[[bytes], bytes]], **added: bytes
) -> Path:
    """The archive with records whose names end so changed, and others beside them."""
    path = folder / "changed.pt2"
    with zipfile.ZipFile(saved) as old, zipfile.ZipFile(path, "w") as new:
        for name in old.namelist():
            content = old.read(name)
            for ending, change in changed.items():
                if name.endswith(ending):
                    content = change(content)
            new.writestr(name, content)
        top = old.namelist()[0].partition("/")[0]
        for name, content in added.items():
            new.writestr(f"{top}/{name.replace('__', '/')}", content)
    return path


class Trap:
    """What unpickling it does can be seen."""

    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __reduce__(self) -> tuple[Any, ...]:
        return Path.touch, (self.mark,)


def torch_pickle(value: Any) -> bytes:
    import torch

    file = io.BytesIO()
    torch.save(value, file)
    return file.getvalue()


def opened(path: Path) -> Any:
    from tunefleet.artifacts.torch_file import open_program

    return open_program(path)


def edited(edit: Callable[[Any], None]) -> Callable[[bytes], bytes]:
    def change(content: bytes) -> bytes:
        program = json.loads(content)
        edit(program["graph_module"]["graph"])
        return json.dumps(program).encode()

    return change


def extent_of(source: str) -> Callable[[Any], None]:
    def edit(graph: Any) -> None:
        text = json.dumps(graph)
        assert '"expr_str"' in text
        waiting = [graph]
        while waiting:
            each = waiting.pop()
            if isinstance(each, dict):
                if "expr_str" in each:
                    each["expr_str"] = source
                waiting += each.values()
            elif isinstance(each, list):
                waiting += each

    return edit


def call_of(target: str) -> Callable[[Any], None]:
    def edit(graph: Any) -> None:
        graph["nodes"][0]["target"] = target

    return edit


def test_an_honest_file_opens(saved: Path, tmp_path: Path) -> None:
    import torch

    program = opened(rewritten(saved, tmp_path, {}))
    assert program.module()(torch.ones(2, 8)).shape == (4, 3)


@pytest.mark.parametrize("program", [b"[]", b"null", b'{"graph_module": "text"}'])
def test_what_is_no_program_is_refused(saved: Path, tmp_path: Path, program: bytes) -> None:
    from tunefleet.compiler.frontends import load_network

    path = rewritten(saved, tmp_path, {"models/model.json": lambda old: program})
    with pytest.raises(InputError, match="not a readable exported program"):
        load_network(path)


def test_an_archive_of_other_programs_is_refused(tmp_path: Path) -> None:
    import torch
    from torch.export.pt2_archive import _package

    program = torch.export.export(torch.nn.ReLU(), (torch.ones(2),))
    path = tmp_path / "several.pt2"
    _package.package_pt2(path, exported_programs={"encoder": program, "decoder": program})
    with pytest.raises(InputError, match="holds encoder, decoder, not one called model"):
        opened(path)


def test_example_inputs_of_other_types_are_left_out(saved: Path, tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    inputs = torch_pickle(((Trap(mark),), {}))
    path = rewritten(saved, tmp_path, {"sample_inputs/model.pt": lambda old: inputs})
    opened(path)
    assert not mark.exists()


def pickled_bias(config: bytes) -> bytes:
    """The list of weights, where the bias is read as pickle."""
    value = json.loads(config)
    value["config"]["linear.bias"]["use_pickle"] = True
    return json.dumps(value).encode()


class Filled:
    """A parameter that unpickling makes by a call."""

    def __reduce__(self) -> tuple[Any, ...]:
        import torch

        return torch.nn.init.ones_, (torch.nn.Parameter(torch.zeros(3)),)


def test_what_is_trusted_is_read_as_it_is(saved: Path, tmp_path: Path) -> None:
    from tunefleet.core.importing import ImportOptions
    from tunefleet.runs.listing import list_tasks

    filled = torch_pickle(Filled())
    changes = {
        "model_weights_config.json": pickled_bias,
        "weights/weight_1": lambda old: filled,
    }
    path = rewritten(saved, tmp_path, changes)
    with pytest.raises(InputError, match="--trust"):
        opened(path)
    assert list_tasks(str(path), "native", 1, ImportOptions(trust=True))["tasks"]


def test_a_weight_that_is_empty_is_refused(saved: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"weight_1 is empty, of a weight that is not"):
        opened(rewritten(saved, tmp_path, {"weights/weight_1": lambda old: b""}))


@pytest.mark.parametrize("config", [b"1.5", b"{", b'{"config": 1.5}', b'{"config": {"x": []}}'])
def test_a_list_of_weights_that_is_none_is_refused(
    saved: Path, tmp_path: Path, config: bytes
) -> None:
    path = rewritten(saved, tmp_path, {"_weights_config.json": lambda _: config})
    with pytest.raises(InputError, match=r"_weights_config\.json is no list of weights"):
        opened(path)


def test_objects_as_pickle_are_refused(saved: Path, tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    trap = torch_pickle(Trap(mark))
    changes = {
        "model_weights_config.json": pickled_bias,
        "weights/weight_1": lambda old: trap,
    }
    with pytest.raises(InputError, match="objects as pickle"):
        opened(rewritten(saved, tmp_path, changes))
    added = {"data__constants__opaque_obj_0": pickle.dumps(Trap(mark))}
    with pytest.raises(InputError, match=r"objects as pickle .*opaque_obj_0"):
        opened(rewritten(saved, tmp_path, {}, **added))
    assert not mark.exists()


@pytest.mark.parametrize(
    "extent",
    [
        "2*s77**2",
        "Max(1, s77**2//4)",
        "(s0**2)*(s1**3) + s2**2",
        "Mul(Integer(4), Pow(Symbol('s77', positive=True), Integer(2)))",
        "Pow(s77, Rational(1, 2))",
        "FloatPow(Symbol('s77', integer=True), Float('0.5', precision=53))",
        "Mul(" + ", ".join(["Float('0.5', precision=53)"] * 8) + ", s77)",
    ],
)
def test_extents_are_arithmetic(extent: str) -> None:
    from tunefleet.artifacts.torch_safety import _is_arithmetic

    assert _is_arithmetic(extent)


@pytest.mark.parametrize(
    "source",
    [
        "__import__('pathlib').Path('{mark}').touch()",
        "().__class__",
        "s77.name",
        "eval(s77)",
        "open(s77)",
        "[s77 for s77 in s77]",
        "Lambda(s77, s77)",
        "Symbol('__import__(chr(111))')",
        "Max(s77, lambda: 1)",
        "s77 + 9**9**9",
        "((9**64)**64)**64",
        "Pow(9, Pow(9, 9))",
        "1 << 10**12",
        "Pow(9, e=10**12)",
        "Pow(9, e=1000000000000)",
        "RShift(9, 1000000000000)",
        "RoundDecimal(9, -1000000000000)",
        "Float(1, 1000000000000)",
        "Pow(9, Integer('1000000000000'))",
    ],
)
def test_what_is_no_arithmetic_is_refused(saved: Path, tmp_path: Path, source: str) -> None:
    mark = tmp_path / "mark"
    change = edited(extent_of(source.format(mark=mark)))
    with pytest.raises(InputError, match="would run code: an extent is"):
        opened(rewritten(saved, tmp_path, {"models/model.json": change}))
    assert not mark.exists()


@pytest.mark.parametrize(
    "target",
    [
        "torch.os.system",
        "torch.ops.load_library",
        "torch.ops.import_module",
        "torch.ops.aten.__class__",
        "torch.load",
        "_operator.attrgetter",
        "_operator.call",
        "math.factorial",
        "#stranger:op",
    ],
)
def test_nodes_call_operators(saved: Path, tmp_path: Path, target: str) -> None:
    change = edited(call_of(target))
    with pytest.raises(InputError, match="would run code: a node calls"):
        opened(rewritten(saved, tmp_path, {"models/model.json": change}))


def test_guards_are_not_run(saved: Path, tmp_path: Path) -> None:
    import torch

    mark = tmp_path / "mark"

    def change(content: bytes) -> bytes:
        program = json.loads(content)
        program["guards_code"] = [f"__import__('pathlib').Path({str(mark)!r}).touch() is None"]
        return json.dumps(program).encode()

    path = rewritten(saved, tmp_path, {"models/model.json": change})
    opened(path).module()(torch.ones(2, 8))
    assert not mark.exists()


def test_compiled_code_is_refused(saved: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="compiled code"):
        opened(rewritten(saved, tmp_path, {}, data__aotinductor__model__x_so=b""))


def test_an_older_format_is_not_tried(saved: Path, tmp_path: Path) -> None:
    """torch goes on to files of pickle where it fails."""
    mark = tmp_path / "mark"
    path = tmp_path / "old.pt2"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("version", "8.1")
        for name in ("state_dict", "constants", "example_inputs"):
            archive.writestr(f"serialized_{name}.pt", torch_pickle(Trap(mark)))
        archive.writestr("serialized_exported_program.json", "{}")
    code = "import sys; from tunefleet.cli import main; sys.argv[0] = 'tunefleet'; main()"
    command = [sys.executable, "-c", code, "tasks", str(path)]
    told = subprocess.run(command, capture_output=True, text=True)
    assert not mark.exists()
    assert told.returncode == 2
    assert "is not a readable exported program" in told.stderr


def test_tensors_of_example_inputs_stay(saved: Path) -> None:
    args, _ = opened(saved).example_inputs
    assert np.array_equal(args[0].numpy(), np.ones((3, 8), np.float32))
