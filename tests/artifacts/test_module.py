from __future__ import annotations

import copy
import gc
import hashlib
import json
import os
import pickle
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import tunefleet
from tunefleet.errors import InputError, SetupError

pytestmark = pytest.mark.tvm


def expected(image: Any) -> Any:
    from tunefleet.compiler.frontends import load_network

    (found,) = load_network("zoo:tiny_cnn").reference([image], 1)
    return found


def test_it_computes_what_the_network_does_from_any_array(artifact: Path, image: Any) -> None:
    import torch

    unaligned = np.empty(image.size + 1, np.float32)[1:].reshape(image.shape)
    unaligned[...] = image
    strided = np.repeat(image, 2, axis=3)[..., ::2]
    fixed = image.copy()
    fixed.flags.writeable = False
    with tunefleet.load(artifact) as module:
        for given in (image, unaligned, strided, fixed, torch.from_numpy(image.copy())):
            np.testing.assert_allclose(module(given), expected(image), rtol=1e-3, atol=1e-4)
        assert isinstance(module(torch.from_numpy(image)), torch.Tensor)
        assert isinstance(module(image), np.ndarray)


def test_an_artifact_is_run_from_its_own_folder(
    artifact: Path, image: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(artifact)
    with tunefleet.load(".") as module:
        np.testing.assert_allclose(module(image), expected(image), rtol=1e-3, atol=1e-4)


def test_an_output_stays_when_the_module_is_called_again_and_closed(
    artifact: Path, image: Any
) -> None:
    with tunefleet.load(artifact) as module:
        first = module(image)
        kept = first.copy()
        assert not np.array_equal(module(image + 1), kept)
        np.testing.assert_array_equal(first, kept)
        first[...] = 0  # it is the caller's
        np.testing.assert_array_equal(module(image), kept)
    gc.collect()
    assert (first == 0).all()


def test_eight_threads_get_their_own_results(artifact: Path, image: Any) -> None:
    inputs = [image * (i + 1) for i in range(8)]
    with tunefleet.load(artifact) as module:
        wanted = [module(each) for each in inputs]
        wrong = []

        def call(index: int) -> None:
            for _ in range(50):
                if not np.array_equal(module(inputs[index]), wanted[index]):
                    wrong.append(index)

        threads = [threading.Thread(target=call, args=(i,)) for i in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert not wrong


@pytest.mark.parametrize(
    ("given", "cause"),
    [
        ([], "takes 1 inputs, 0 were given"),
        ([[1.0]], "is a list, not an array"),
        ([np.zeros((1, 3, 16, 16))], r"is float64\[1, 3, 16, 16\]"),
        ([np.zeros((1, 3, 8, 8), "float32")], r"is float32\[1, 3, 8, 8\]"),
    ],
)
def test_other_inputs_are_refused(artifact: Path, given: list[Any], cause: str) -> None:
    with tunefleet.load(artifact) as module, pytest.raises(InputError, match=cause):
        module(*given)


def test_a_closed_module_is_refused(artifact: Path, image: Any) -> None:
    module = tunefleet.load(artifact)
    module(image)
    module.close()
    module.close()
    with pytest.raises(InputError, match="was closed"):
        module(image)


@pytest.mark.parametrize("name", ["module.so", "module.safetensors"])
@pytest.mark.parametrize("damage", ["flip", "cut", "remove"])
def test_changed_files_are_refused_before_they_are_opened(
    copied: Path, name: str, damage: str
) -> None:
    path = copied / name
    content = bytearray(path.read_bytes())
    if damage == "remove":
        path.unlink()
    else:
        content[len(content) // 2] ^= 1
        path.write_bytes(content if damage == "flip" else content[: len(content) // 2])
    with pytest.raises(InputError, match=r"no module\.so|was damaged or replaced|cannot read"):
        tunefleet.load(copied)


def test_a_file_that_was_added_is_refused(copied: Path) -> None:
    (copied / "segments").mkdir()
    (copied / "segments" / "0123.onnx").write_bytes(b"")
    with pytest.raises(InputError, match="is not of this artifact"):
        tunefleet.load(copied)


def _replaced(folder: Path, name: str, content: bytes) -> None:
    """A file of an artifact, and its sum."""
    (folder / name).write_bytes(content)
    path = folder / "artifact.json"
    value = json.loads(path.read_text())
    value["files"][name] = hashlib.sha256(content).hexdigest()
    path.write_text(json.dumps(value))


@pytest.mark.parametrize(
    ("name", "content", "cause"),
    [
        ("module.so", b"text", "cannot be loaded"),
        ("module.safetensors", b"text", "no file of weights"),
        ("module.safetensors", b"text in place of weights", "ends in its header"),
        ("module.safetensors", b"\x02" + bytes(7) + b"[]", "no file of weights"),
    ],
)
def test_files_of_another_kind_are_refused(
    copied: Path, name: str, content: bytes, cause: str
) -> None:
    _replaced(copied, name, content)
    with pytest.raises(InputError, match=cause):
        tunefleet.load(copied)


def _with_header(content: bytes, change: Callable[[dict[str, Any]], object]) -> bytes:
    length = int.from_bytes(content[:8], "little")
    header = json.loads(content[8 : 8 + length])
    change(header)
    text = json.dumps(header).encode()
    text += b" " * (-(8 + len(text)) % 64)
    return len(text).to_bytes(8, "little") + text + content[8 + length :]


@pytest.mark.parametrize(
    "change",
    [
        lambda h: h["0"].update(shape=[3]),
        lambda h: h["0"].update(shape=[0, 2**63]),
        lambda h: h["0"].update(shape=[-1]),
        lambda h: h["0"].update(shape="x"),
        lambda h: h["0"].update(data_offsets=[0, 2**62]),
        lambda h: h["0"].update(data_offsets=[64, 0]),
        lambda h: h["0"].update(data_offsets=[1]),
        lambda h: h["0"].update(dtype="BF16"),
        lambda h: h["0"].pop("dtype"),
        lambda h: h.update({"0": 5}),
        lambda h: h.pop("0"),
        lambda h: h["__metadata__"].pop("entries"),
        lambda h: h["__metadata__"].update(entries="[" * 5000),
        lambda h: h["__metadata__"].update(entries='{"main": ["0"]}'),
        lambda h: h["__metadata__"].update(entries="[]"),
        lambda h: h["__metadata__"].update(entries="{}"),
        lambda h: h.update(__metadata__=[]),
    ],
)
def test_weights_that_do_not_lie_where_they_say_are_refused(
    copied: Path, image: Any, change: Callable[[dict[str, Any]], object]
) -> None:
    content = (copied / "module.safetensors").read_bytes()
    _replaced(copied, "module.safetensors", _with_header(content, change))
    with pytest.raises(InputError, match="no file of weights"):
        tunefleet.load(copied)(image)


@pytest.mark.parametrize("name", ["artifact.json", "module.so", "module.safetensors"])
def test_a_pipe_is_not_waited_for(copied: Path, name: str) -> None:
    (copied / name).unlink()
    os.mkfifo(copied / name)
    with pytest.raises(InputError, match=r"no regular file|no module"):
        tunefleet.load(copied)


@pytest.mark.parametrize("content", ["[" * 100_000, "[]", "{}", "3", ""])
def test_a_description_of_another_kind_is_refused(copied: Path, content: str) -> None:
    (copied / "artifact.json").write_text(content)
    with pytest.raises(InputError):
        tunefleet.load(copied)


@pytest.mark.parametrize("field", ["result", "network", "files", "instructions", "target"])
@pytest.mark.parametrize("value", ["text", 3, [1]])
def test_a_field_of_another_type_is_refused(copied: Path, field: str, value: object) -> None:
    path = copied / "artifact.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {field: value}))
    with pytest.raises(InputError):
        tunefleet.load(copied)


def test_a_module_of_another_tvm_is_refused(copied: Path) -> None:
    value = json.loads((copied / "artifact.json").read_text())
    value["toolchain"]["tvm"] = "0.1.0"
    (copied / "artifact.json").write_text(json.dumps(value))
    with pytest.raises(SetupError, match=r"was compiled by TVM 0\.1\.0"):
        tunefleet.load(copied)


def test_the_runtime_alone_suffices(artifact: Path) -> None:
    """Whatever `tunefleet[runtime]` does not install cannot be imported, nor is TVM's compiler."""
    code = f"""
import sys
ALLOWED = {{"tunefleet", "numpy", "tvm_ffi", "typing_extensions", "ml_dtypes"}}

class Absent:
    def find_spec(self, name, path=None, target=None):
        top = name.partition(".")[0]
        if top != "tvm" and top not in ALLOWED | sys.stdlib_module_names:
            raise ModuleNotFoundError(name, name=top)

sys.meta_path.insert(0, Absent())
import numpy as np, tunefleet
with tunefleet.load({str(artifact)!r}) as module:
    module(np.zeros([1, 3, 16, 16], "float32"))
    maps = open("/proc/self/maps").read()
print("tvm" in sys.modules, "libtvm_compiler" in maps)
from tunefleet.cli import main
main()
"""
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert told.stdout.split() == ["False", "False"], told.stderr
    assert told.returncode == 3
    assert "pip install 'tunefleet[tune]'" in told.stderr


def resident_mb() -> float:
    pages = int(Path("/proc/self/statm").read_text(encoding="utf-8").split()[1])
    return pages * 4096 / 2**20


def test_memory_stays_flat_when_it_is_called_and_when_it_is_loaded_again(
    artifact: Path, image: Any
) -> None:
    def used(count: int) -> None:
        for _ in range(count):
            with tunefleet.load(artifact) as module:
                for _ in range(20):
                    module(image)

    used(5)
    gc.collect()
    before = resident_mb()
    used(40)
    gc.collect()
    assert resident_mb() - before < 8
    maps = Path("/proc/self/maps").read_text(encoding="utf-8")
    assert str(artifact) not in maps  # neither code nor weights


@pytest.mark.parametrize("gives", [True, False])
def test_registers_that_the_kernel_does_not_give_are_said(
    monkeypatch: pytest.MonkeyPatch, gives: bool
) -> None:
    """Before anything runs, which would end the process."""
    from tunefleet.artifacts import module
    from tunefleet.artifacts.runtime import installed_versions

    facts = SimpleNamespace(flags=frozenset({"avx2", "amx_tile"}))
    cpu = SimpleNamespace(facts=facts)
    monkeypatch.setattr(module, "cpu_info", lambda: cpu)
    monkeypatch.setattr(module, "takes_tiles", lambda: gives)
    toolchain = SimpleNamespace(tvm=installed_versions()["apache-tvm"])
    artifact: Any = SimpleNamespace(
        path="x", toolchain=toolchain, instructions=("amx_tile",), target=None
    )
    if gives:
        module.check_runs_here(artifact)
    else:
        with pytest.raises(SetupError, match="AMX"):
            module.check_runs_here(artifact)


FORKED = """
import multiprocessing, sys
import numpy as np, tunefleet

module = tunefleet.load(sys.argv[1], threads=2)
image = np.load(sys.argv[2])
expected = module(image)
held = module._idle.get()  # as a thread that calls holds it

def same(_):
    return np.array_equal(module(image), expected)

with multiprocessing.get_context("fork").Pool(2) as pool:
    forked = all(pool.map(same, range(8)))
module._idle.put(held)
print(forked, same(0))
"""


def test_a_forked_process_computes_too(artifact: Path, image: Any, tmp_path: Path) -> None:
    # Neither the pool of threads of the one that forks is there, nor who held a machine then.
    np.save(tmp_path / "image.npy", image)
    command = [sys.executable, "-c", FORKED, str(artifact), str(tmp_path / "image.npy")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.stdout == "True True\n", done.stderr


@pytest.mark.parametrize("threads", [0, -1, 1.5, "2", float("nan"), 10**6])
def test_a_number_of_threads_that_cannot_be_is_refused(artifact: Path, threads: Any) -> None:
    with pytest.raises(InputError, match=r"threads.*this machine has"):
        tunefleet.load(artifact, threads=threads)


def test_inputs_come_as_a_sequence(artifact: Path, image: Any) -> None:
    nested = SimpleNamespace(shape=None, dtype=np.dtype("float32"), __dlpack__=None)
    with tunefleet.load(artifact) as module:
        (expected,) = module.run([image])
        (found,) = module.run(each for each in [image])
        np.testing.assert_array_equal(found, expected)
        wrong: tuple[Any, ...] = (image, {"image": image}, None, 3)
        for given in wrong:
            with pytest.raises(InputError, match="give a list of arrays"):
                module.run(given)
        for odd in (np.ndarray, nested):
            with pytest.raises(InputError, match="no shape of numbers"):
                module(odd)


def test_a_module_is_not_copied(artifact: Path) -> None:
    with tunefleet.load(artifact) as module:
        for copied in (copy.copy, copy.deepcopy, pickle.dumps):
            with pytest.raises(InputError, match=r"tunefleet.load\('"):
                copied(module)


def test_what_cannot_be_a_path_is_no_artifact(tmp_path: Path) -> None:
    for odd in ("x" * 5000, "a\0b", str(tmp_path / "nowhere")):
        with pytest.raises(InputError, match="no artifact at"):
            tunefleet.load(odd)


def test_a_call_that_meets_close_ends(artifact: Path, image: Any) -> None:
    ended: list[str] = []

    def call(module: Any) -> None:
        try:
            while True:
                module(image)
        except InputError as error:
            ended.append(str(error))

    for _ in range(20):
        module = tunefleet.load(artifact)
        threads = [threading.Thread(target=call, args=(module,), daemon=True) for _ in range(3)]
        for thread in threads:
            thread.start()
        module.close()
        for thread in threads:
            thread.join(20)
    assert ended == ["tiny_cnn was closed; load it again"] * 60
