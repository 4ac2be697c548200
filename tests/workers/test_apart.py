"""Whatever becomes of a call on a whole network, it becomes of its own process alone."""

from __future__ import annotations

import ctypes
import errno
import os
import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tunefleet.compiler.toolchain import load_tvm
from tunefleet.errors import InputError, InternalError, JobError, SetupError
from tunefleet.system.progress import working_on
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
    pid, text = call_apart("it failed", _where, Path("text"))
    assert text == "found"
    assert pid != os.getpid()


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
