"""Whatever becomes of a call on a whole network, it becomes of its own process alone."""

from __future__ import annotations

import ctypes
import errno
import os
import signal
from pathlib import Path

import pytest

from tunefleet.errors import InputError, InternalError, JobError, SetupError
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


def test_errors_are_what_they_are_here() -> None:
    with pytest.raises(InputError) as refused:
        call_apart("it failed", _refuse)
    assert (refused.value.what, refused.value.cure) == ("x.onnx is wrong", "correct it")
    with pytest.raises(InternalError, match="RuntimeError: a pass of TVM failed") as unforeseen:
        call_apart("it failed", _unforeseen)
    assert "_unforeseen" in unforeseen.value.details
