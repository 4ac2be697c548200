"""Operators and weights of .pt2 files that other modules define."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest

from tunefleet.errors import SetupError

torch = pytest.importorskip("torch")
pytestmark = [pytest.mark.tvm, pytest.mark.filterwarnings("ignore")]

_OPEN = """
import sys
from pathlib import Path
from tunefleet.artifacts.torch_file import open_program
program = open_program(Path(sys.argv[1]), trust=bool(sys.argv[2]))
print([type(tensor).__name__ for tensor in program.state_dict.values()])
"""

#: What a package of operators does when it is imported.
_REGISTERS = """
import torch
@torch.library.custom_op("torchvision::doubled", mutates_args=())
def doubled(x: torch.Tensor) -> torch.Tensor:
    return x * 2
doubled.register_fake(torch.empty_like)
"""
_EXPORT = """
import sys, torch, torchvision
class Network(torch.nn.Module):
    def forward(self, x):
        return torch.ops.torchvision.doubled(x) + 1
torch.export.save(torch.export.export(Network(), (torch.ones(2),)), sys.argv[1])
"""
_RUN = """
import sys, torch
from pathlib import Path
from tunefleet.artifacts.torch_file import open_program
assert "torchvision" not in sys.modules
print(open_program(Path(sys.argv[1])).module()(torch.ones(2)).tolist())
"""


class _Scaled(torch.nn.Module):  # type: ignore[name-defined]  # torch may be missing
    def forward(self, x: Any) -> Any:
        return torch.ops.quantized_decomposed.dequantize_per_tensor(x, 0.5, 3, 0, 255, torch.uint8)


@pytest.fixture
def quantised(tmp_path: Path) -> Path:
    pytest.importorskip("torch.ao.quantization.fx._decomposed")
    program = torch.export.export(_Scaled(), (torch.ones(2, dtype=torch.uint8),))
    torch.export.save(program, tmp_path / "network.pt2")
    return tmp_path / "network.pt2"


@pytest.mark.parametrize("trust", ["", "yes"])
def test_a_process_that_knows_no_quantised_operators_opens_them(
    quantised: Path, trust: str
) -> None:
    command = [sys.executable, "-W", "ignore", "-c", _OPEN, str(quantised), trust]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    assert done.stdout == "[]\n"


def test_a_package_whose_operators_a_file_calls_is_imported(tmp_path: Path) -> None:
    (tmp_path / "torchvision").mkdir()
    (tmp_path / "torchvision" / "__init__.py").write_text(_REGISTERS)
    environment = os.environ | {"PYTHONPATH": str(tmp_path)}
    for code in (_EXPORT, _RUN):
        command = [sys.executable, "-W", "ignore", "-c", code, str(tmp_path / "network.pt2")]
        done = subprocess.run(command, check=True, capture_output=True, text=True, env=environment)
    assert done.stdout == "[3.0, 3.0]\n"


def _calling(saved: Path, operator: str) -> Path:
    """The archive with another operator in its program."""
    path = saved.with_name("changed.pt2")
    with zipfile.ZipFile(saved) as old, zipfile.ZipFile(path, "w") as new:
        for name in old.namelist():
            known = b"torch.ops.quantized_decomposed.dequantize_per_tensor.default"
            new.writestr(name, old.read(name).replace(known, operator.encode()))
    return path


def test_a_package_that_is_missing_is_named(
    quantised: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tunefleet.artifacts.torch_file import open_program

    monkeypatch.setitem(sys.modules, "torchao", None)
    changed = _calling(quantised, "torch.ops.torchao.dequantize_affine.default")
    with pytest.raises(SetupError, match="needs torchao, not installed here") as raised:
        open_program(changed)
    assert raised.value.cure == "pip install torchao"


def test_weights_of_a_missing_package_name_it(
    quantised: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tunefleet.artifacts.torch_file import open_program

    monkeypatch.setitem(sys.modules, "torchao", None)
    changed = quantised.with_name("changed.pt2")
    weight = io.BytesIO()
    with zipfile.ZipFile(weight, "w") as pickled:
        pickled.writestr("weight/data.pkl", b"\x80\x02ctorchao.quantization\nUnknown\n.")
        pickled.writestr("weight/version", b"3\n")
    listed = {"config": {"w": {"path_name": "weight_0", "use_pickle": True, "tensor_meta": None}}}
    with zipfile.ZipFile(quantised) as old, zipfile.ZipFile(changed, "w") as new:
        for name in old.namelist():
            is_list = name.endswith("_weights_config.json")
            new.writestr(name, json.dumps(listed) if is_list else old.read(name))
        top = old.namelist()[0].partition("/")[0]
        new.writestr(f"{top}/data/weights/weight_0", weight.getvalue())
    with pytest.raises(SetupError, match="needs torchao, not installed here"):
        open_program(changed)


def test_weights_of_torchao_are_opened_without_trust(tmp_path: Path) -> None:
    torchao = pytest.importorskip("torchao.quantization", reason="torchao is not installed")
    module = torch.nn.Linear(64, 32).eval()
    torchao.quantize_(module, torchao.Int8WeightOnlyConfig())
    program = torch.export.export(module, (torch.ones(2, 64),))
    torch.export.save(program, tmp_path / "network.pt2")
    command = [sys.executable, "-W", "ignore", "-c", _OPEN, str(tmp_path / "network.pt2"), ""]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    assert done.stdout == "['Int8Tensor', 'Parameter']\n"
