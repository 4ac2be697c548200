from __future__ import annotations

from pathlib import Path

import pytest

from tunefleet.errors import SetupError
from tunefleet.system.packages import require

INSTALL = "pip install tunefleet[more]"


@pytest.fixture
def packages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.syspath_prepend(str(tmp_path))
    return tmp_path


def test_packages_that_are_there_are_loaded(packages: Path) -> None:
    (packages / "tunefleet_test_good.py").write_text("loaded = True")
    require("net.onnx", ("tunefleet_test_good",), INSTALL)


def test_all_that_is_missing_is_named(packages: Path) -> None:
    with pytest.raises(SetupError) as raised:
        require("net.onnx", ("json", "tunefleet_no_such.part", "tunefleet_nor_this"), INSTALL)
    assert raised.value.what == (
        "net.onnx needs tunefleet-no-such and tunefleet-nor-this, not installed here"
    )
    assert raised.value.cure == INSTALL


@pytest.mark.parametrize(
    ("source", "why"),
    [
        ("raise RuntimeError('operator torchvision::nms does not exist\\nmore')",
         "RuntimeError: operator torchvision::nms does not exist"),
        ("import ctypes; ctypes.CDLL('libtunefleet_no_such.so.12')",
         "OSError: libtunefleet_no_such.so.12: cannot open shared object file"),
        ("import tunefleet_no_such", "ModuleNotFoundError: No module named 'tunefleet_no_such'"),
        ("try:\n    1 / 0\nexcept Exception as e:\n    raise ImportError('see above') from e",
         "ZeroDivisionError: division by zero"),
    ],
)  # fmt: skip
def test_why_a_package_does_not_load_is_told(packages: Path, source: str, why: str) -> None:
    name = f"tunefleet_test_bad_{abs(hash(source))}"
    (packages / f"{name}.py").write_text(source)
    with pytest.raises(SetupError) as raised:
        require("net.onnx", ("json", name), INSTALL)
    assert raised.value.what.startswith(f"net.onnx needs {name.replace('_', '-')}, which does not")
    assert why in raised.value.what
    assert "pip check" in str(raised.value.cure)
