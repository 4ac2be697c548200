"""What a stranger sends is taken as a network, or refused in a line that says why."""

from __future__ import annotations

import io
import os
import zipfile
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("onnx")

from onnx import TensorProto, helper

from tunefleet.core.importing import ImportOptions
from tunefleet.core.shapes import ShapeRequest
from tunefleet.errors import InputError, TunefleetError
from tunefleet.runs.context import BenchmarkContext
from tunefleet.runs.uploads import Admitted, admit, check_import

pytestmark = pytest.mark.tvm


def _network(location: str = "", extent: int | str = 4) -> bytes:
    x, y = (helper.make_tensor_value_info(n, TensorProto.FLOAT, (1, extent)) for n in "xy")
    weights = helper.make_tensor("w", TensorProto.FLOAT, (1, 4), [1.0, 2.0, 3.0, 4.0])
    if location:
        weights.ClearField("float_data")
        weights.data_location = TensorProto.EXTERNAL
        for key, value in (("location", location), ("length", "16")):
            entry = weights.external_data.add()
            entry.key, entry.value = key, value
    made = helper.make_graph([helper.make_node("Add", ["x", "w"], ["y"])], "g", [x], [y], [weights])
    opset = [helper.make_opsetid("", 18)]
    return bytes(helper.make_model(made, opset_imports=opset, ir_version=9).SerializeToString())


def _arrays(*arrays: np.ndarray) -> bytes:
    content = io.BytesIO()
    np.savez(content, *arrays)
    return content.getvalue()


def _admitted(content: bytes, name: str, folder: Path) -> Admitted:
    upload = folder / "part-0"
    upload.write_bytes(content)
    return admit(upload, name, BenchmarkContext(home=folder / "home"))


def _zipped(**members: bytes) -> bytes:
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w") as archive:
        for name, member in members.items():
            archive.writestr(f"packed/{name.replace('__', '.')}", member)
    return content.getvalue()


def test_a_file_is_taken_and_kept(tmp_path: Path) -> None:
    content = _network()
    taken = _admitted(content, "my net.onnx", tmp_path)
    assert Path(taken.place).name == "my net.onnx"
    assert (tmp_path / "home" / taken.place).read_bytes() == content
    assert (taken.tasks, taken.size, taken.needs) == (1, len(content), "")
    assert (tmp_path / "part-0").read_bytes() == content


def test_an_archive_is_taken_with_the_weights_beside_a_network(tmp_path: Path) -> None:
    content = _zipped(net__onnx=_network("w.bin"), w__bin=bytes(16))
    taken = _admitted(content, "all.zip", tmp_path)
    kept = (tmp_path / "home" / taken.place).parent
    assert sorted(path.name for path in kept.iterdir()) == ["net.onnx", "w.bin"]
    assert taken.size == sum(path.stat().st_size for path in kept.iterdir())


def test_a_network_whose_shapes_are_not_known_is_taken_and_checked_with_them(
    tmp_path: Path,
) -> None:
    taken = _admitted(_network(extent="width"), "a.onnx", tmp_path)
    assert "a.onnx has free dimensions: width" in taken.needs
    context = BenchmarkContext(home=tmp_path / "home")
    kept = tmp_path / "home" / taken.place
    check_import(kept, context, ImportOptions(ShapeRequest.of(dims=[("width", [4])])))
    with pytest.raises(InputError, match=r"^a\.onnx") as refused:
        check_import(kept, context, ImportOptions(ShapeRequest.of(dims=[("height", [4])])))
    assert refused.value.cure
    with pytest.raises(InputError, match="is not run"):
        check_import(kept, context, ImportOptions(trust=True))


def test_arrays_are_taken_alone_and_in_an_archive(tmp_path: Path) -> None:
    content = _arrays(np.ones((2, 4), np.float32))
    taken = _admitted(content, "samples.npz", tmp_path)
    assert (tmp_path / "home" / taken.place).read_bytes() == content
    together = _admitted(_zipped(a__npz=content, b__npz=content), "all.zip", tmp_path)
    assert sorted(p.name for p in (tmp_path / "home" / together.place).iterdir()) == [
        "a.npz",
        "b.npz",
    ]


@pytest.mark.parametrize(
    ("content", "name", "reason"),
    [
        (b"", "a.onnx", "a.onnx is empty"),
        (b"\x13\x37" * 500, "a.onnx", "^a.onnx is not a readable ONNX file"),
        (_network("../part-0"), "a.onnx", "a.onnx"),
        (_network("/etc/passwd"), "a.onnx", "a.onnx"),
        (_network(), "../a.onnx", "is no name of a file"),
        (_network(), "a.exe", "cannot tell what a.exe is"),
        (_zipped(readme__txt=b"x"), "a.zip", "a.zip holds no network"),
        (b"\x93NUMPY" + bytes(90), "a.npy", "^a.npy contains no arrays"),
        (_arrays(np.array(["text"])), "a.npz", "^a.npz holds <U4"),
        (_arrays(np.array([{}])), "a.npz", "^a.npz contains no arrays"),
        (_zipped(a__onnx=b"x", b__onnx=b"x"), "a.zip", "a.zip holds 2 networks"),
        (_zipped(a__zip=_zipped(a__onnx=_network())), "a.zip", "a.zip holds no network"),
    ],
)
def test_what_is_no_network_is_refused_by_its_name(
    content: bytes, name: str, reason: str, tmp_path: Path
) -> None:
    with pytest.raises(TunefleetError, match=reason) as refused:
        _admitted(content, name, tmp_path)
    assert refused.value.cure
    assert str(tmp_path) not in str(refused.value)
    assert "given/" not in str(refused.value)
    networks = tmp_path / "home" / "networks"
    assert not networks.exists() or not any(networks.iterdir())


def test_a_link_and_trust_are_refused(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to("/etc/passwd")
    context = BenchmarkContext(home=tmp_path / "home")
    with pytest.raises(InputError, match="is no regular file"):
        admit(tmp_path / "link", "a.onnx", context)
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(InputError, match="is no regular file"):
        admit(tmp_path / "pipe", "a.onnx", context)
    with pytest.raises(InputError, match="is not run"):
        admit(tmp_path / "link", "a.onnx", context, ImportOptions(trust=True))
