"""What a worker in a sandbox answers is data, whatever it sends."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest
from pebble.common.types import RemoteException, Result, ResultStatus
from pebble.pool.process import TaskResult

from tunefleet.core.job import JobState
from tunefleet.core.network import Footprint, TensorSpec
from tunefleet.errors import InputError, InternalError
from tunefleet.workers._received import received


class _Calls:
    def __init__(self, function: object, *arguments: object) -> None:
        self.call = function, arguments

    def __reduce__(self) -> tuple[object, ...]:
        return self.call


@pytest.mark.parametrize(
    "value",
    [
        TensorSpec("x", (1, 3), "float32"),
        Footprint(12, 34),
        [{"a": (1, 2.5, None)}, Path("a/b"), frozenset({b"x"}), 1 << 70],
        ResultStatus.FAILURE,
    ],
)
def test_values_come_as_they_were_sent(value: object) -> None:
    sent = TaskResult(3, Result(ResultStatus.SUCCESS, value))
    assert sent == received(pickle.dumps(sent))


def test_members_of_enumerations_come_as_python_3_11_2_sends_them() -> None:
    """Debian 12 has it."""
    assert received(pickle.dumps(_Calls(getattr, JobState, "FAILED"))) is JobState.FAILED


def test_errors_come_with_what_they_say() -> None:
    error = InputError("x.onnx is wrong", cure="correct it")
    answer = received(pickle.dumps(RemoteException(error, "Traceback: ...")))
    assert (error.what, error.cure) == (answer.what, answer.cure)
    assert "Traceback" in str(answer.__cause__)
    bug = InternalError("a bug")
    bug.details = "where"
    assert received(pickle.dumps(bug)).details == "where"


@pytest.mark.parametrize(
    "value",
    [
        _Calls(exec, "raise SystemExit"),
        _Calls(getattr, InputError, "__init__"),
        _Calls(getattr, JobState, "mro"),
        _Calls(__import__, "os"),
        _Calls(print, "x"),
        Path.unlink,
        [print],
    ],
)
def test_nothing_else_is_named(value: object) -> None:
    with pytest.raises(OSError, match="a worker sent"):
        received(pickle.dumps(value))


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"no pickle",
        b"\x80\x04.",
        # Attributes of a class of ours: InputError.exit_code = 0.
        b"\x80\x04ctunefleet.errors\nInputError\nN}\x8c\texit_codeK\x00s\x86b.",
        # A module of ours that does something when it is imported, and a name with a dot.
        b"ctunefleet.stages._preload\nload_tvm\n.",
        b"\x80\x04\x8c\x15tunefleet.core.network\x8c\x0bTensorSpec.x\x93.",
    ],
)
def test_bytes_that_are_no_answer_are_an_error_of_the_pipe(content: bytes) -> None:
    with pytest.raises(OSError, match="a worker sent"):
        received(content)
    assert InputError.exit_code == 2
