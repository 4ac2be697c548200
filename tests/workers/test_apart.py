"""Whatever becomes of a call on a whole network, it becomes of its own process alone."""

from __future__ import annotations

import ctypes
import errno
import os
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tunefleet.compiler.toolchain import load_tvm
from tunefleet.errors import InputError, InternalError, JobError, SetupError
from tunefleet.system.progress import working_on
from tunefleet.system.sandbox import Sandbox, sandbox_support
from tunefleet.workers import apart
from tunefleet.workers.apart import call_apart

pytestmark = pytest.mark.tvm


def _where(path: Path) -> tuple[int, str]:
    return os.getpid(), path.read_text(encoding="utf-8")


def _crash() -> None:
    os.write(2, b"LLVM ERROR: cannot select this\n")
    signal.signal(signal.SIGSEGV, signal.SIG_DFL)
    ctypes.string_at(0)


def _take() -> int:
    return len(bytearray(1 << 45))


def _killed() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def _grow() -> None:
    working_on("erfinv y")
    kept = []
    while True:
        kept.append(bytearray(1 << 24))


def _grow_in_tvm() -> None:
    tvm = load_tvm()
    working_on("erfinv y")
    kept = []
    while True:
        kept.append(tvm.runtime.empty((1 << 22,), "float32"))


def _hang() -> None:
    working_on("Sum total")
    time.sleep(60)


def _go_on() -> str:
    for step in range(8):
        working_on(f"step {step}")
        time.sleep(0.5)
    return "done"


class _Trap:
    """Pickle calls what it names."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[object, ...]:
        return os.system, (f"touch {self.path}",)


def _answer_with_a_trap(path: Path) -> object:
    return _Trap(path)


def _fail_with_a_trap(path: Path) -> None:
    error = InputError("x.onnx is wrong", cure="correct it")
    error.args = ("x", _Trap(path))
    error.__dict__["trap"] = _Trap(path)
    raise error


def _connect(port: int) -> None:
    socket.create_connection(("127.0.0.1", port))


def _start() -> None:
    subprocess.run(["/bin/true"], check=True)


def _read_in_a_thread(path: Path) -> str:
    read: list[str] = []
    thread = threading.Thread(target=lambda: read.append(_attempt(path)))
    thread.start()
    thread.join()
    return read[0]


def _attempt(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except OSError as error:
        return type(error).__name__


def _write(path: Path) -> None:
    path.write_text("x", encoding="utf-8")


def _links(path: Path) -> None:
    path.symlink_to("/etc/passwd")


def _refuse() -> None:
    raise InputError("x.onnx is wrong", cure="correct it")


def _too_many_axes() -> None:
    from tunefleet.compiler.toolchain import load_tvm

    raise load_tvm().error.InternalError("Check failed: (ndim <= 26) is false: at most 26 axes")


def _too_large() -> None:
    raise OSError(errno.EFBIG, "File too large", "module.so")


def _unforeseen() -> None:
    raise RuntimeError("a pass of TVM failed")


def test_it_runs_elsewhere_with_the_same_paths(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "text").write_text("found")
    monkeypatch.chdir(tmp_path)
    sandbox = Sandbox((tmp_path / "text",))
    pid, text = call_apart("it failed", _where, Path("text"), sandbox=sandbox)
    assert text == "found"
    assert pid != os.getpid()


@pytest.mark.skipif(not sandbox_support().is_whole, reason="this kernel confines no process")
def test_it_reaches_what_it_is_given_alone(tmp_path: Path) -> None:
    secret, made = tmp_path / "secret", tmp_path / "made"
    secret.write_text("secret", encoding="utf-8")
    made.mkdir()
    sandbox = Sandbox(writes=(made,))
    with socket.create_server(("127.0.0.1", 0)) as server:
        refused: list[tuple[Callable[..., object], object]] = [
            (_where, secret),
            (_write, secret),
            (_write, tmp_path / "new"),
            (_links, made / "link"),
            (_connect, server.getsockname()[1]),
        ]
        for function, argument in refused:
            with pytest.raises(SetupError, match="ermi"):
                call_apart("it failed", function, argument, sandbox=sandbox)
    with pytest.raises(SetupError, match="ermi"):
        call_apart("it failed", _start, sandbox=sandbox)
    assert call_apart("it failed", _read_in_a_thread, secret) == "PermissionError"
    call_apart("it failed", _write, made / "new", sandbox=sandbox)
    assert [path.name for path in made.iterdir()] == ["new"]
    assert secret.read_text(encoding="utf-8") == "secret"


@pytest.mark.parametrize("function", [_answer_with_a_trap, _fail_with_a_trap])
def test_an_answer_is_data(function: Callable[[Path], object], tmp_path: Path) -> None:
    with pytest.raises(JobError, match="it failed: every worker died"):
        call_apart("it failed", function, tmp_path / "canary")
    assert not (tmp_path / "canary").exists()


def test_what_nobody_thought_of_in_tvm_is_told_as_its_refusal() -> None:
    with pytest.raises(JobError, match=r"TVM cannot compile it: Check failed: .*26 axes"):
        call_apart("it failed", _too_many_axes)


def test_a_limit_of_the_machine_is_no_bug() -> None:
    with pytest.raises(SetupError, match=r"module\.so: File too large"):
        call_apart("it failed", _too_large)


def test_a_crash_is_told_with_its_last_words() -> None:
    with pytest.raises(JobError, match=r"it failed: worker died: SIGSEGV \(LLVM ERROR: cannot"):
        call_apart("it failed", _crash)


@pytest.mark.parametrize("function", [_take, _killed])
def test_a_lack_of_memory_is_told(function: object) -> None:
    with pytest.raises(JobError, match=r"more memory than there is; .* GiB of memory are free"):
        call_apart("it failed", function)  # type: ignore[arg-type]


@pytest.mark.parametrize("function", [_grow, _grow_in_tvm])
def test_memory_is_bounded_by_the_size_of_the_network(
    function: Callable[[], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(apart, "_BYTES", 1 << 30)
    with pytest.raises(JobError, match=r"it needs more than 1\.\d GiB of memory at erfinv y"):
        call_apart("it failed", function, network_bytes=1000)


def test_a_step_without_progress_is_given_up_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(apart, "_STILL_S", 2.5)
    with pytest.raises(JobError, match=r"it failed: no progress in 2 s at Sum total"):
        call_apart("it failed", _hang)
    assert call_apart("it failed", _go_on) == "done"


def test_errors_are_what_they_are_here() -> None:
    with pytest.raises(InputError) as refused:
        call_apart("it failed", _refuse)
    assert (refused.value.what, refused.value.cure) == ("x.onnx is wrong", "correct it")
    with pytest.raises(InternalError, match="RuntimeError: a pass of TVM failed") as unforeseen:
        call_apart("it failed", _unforeseen)
    assert "_unforeseen" in unforeseen.value.details
