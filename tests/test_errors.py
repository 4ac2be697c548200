"""Whose fault an error is, by the function that ran last."""

from __future__ import annotations

import errno
import json
import os
import sqlite3
from collections.abc import Callable

import numpy as np
import pytest

from tunefleet.core.allocation import next_lane
from tunefleet.errors import (
    DiskFullError,
    ForeignError,
    InputError,
    InternalError,
    SetupError,
    foreign,
    is_mistake,
    judged,
    raise_mistake,
)


def caught(lane: object) -> Exception:
    with pytest.raises((AttributeError, KeyError)) as raised:
        next_lane([lane])  # type: ignore[list-item]
    return raised.value


def test_a_misspelt_name_in_our_code_is_a_mistake() -> None:
    assert is_mistake(caught("no lane"))


def raised(call: Callable[[], object]) -> Exception:
    with pytest.raises(Exception) as error:  # noqa: PT011
        call()
    return error.value


@pytest.mark.parametrize(
    "call",
    [
        lambda: json.dumps(object()),
        lambda: sqlite3.connect(":memory:").execute("SELECT"),
        lambda: np.zeros(2).reshape(3),
        lambda: int("one"),
        lambda: os.close(-1),
        lambda: next_lane(["no lane"]),  # type: ignore[list-item]
    ],
)
def test_any_error_of_a_call_that_is_not_named_is_a_mistake(call: Callable[[], object]) -> None:
    assert is_mistake(raised(call))
    assert isinstance(judged(raised(call)), InternalError)


def test_what_a_named_call_raises_is_none() -> None:
    def call() -> None:
        with foreign():
            int("one")

    assert not is_mistake(raised(call))
    assert isinstance(judged(raised(call)), ForeignError)


def test_our_own_code_called_back_by_a_named_call_is_one() -> None:
    def call() -> None:
        with foreign():
            next_lane(["no lane"])  # type: ignore[list-item]

    assert is_mistake(raised(call))


@pytest.mark.tvm
def test_what_tvm_raises_is_none_unless_code_of_ours_raised_it_there() -> None:
    import tvm_ffi

    back = tvm_ffi.convert(lambda: next_lane(["no lane"]))  # type: ignore[list-item]
    assert is_mistake(raised(lambda: back()))
    assert not is_mistake(raised(lambda: tvm_ffi.get_global_func("no function")))


@pytest.mark.parametrize(
    ("number", "kind"), [(errno.ENOSPC, DiskFullError), (errno.EACCES, SetupError)]
)
def test_what_the_system_says_of_a_disk_is_the_machines(number: int, kind: type[Exception]) -> None:
    error = OSError(number, os.strerror(number), "file")
    assert not is_mistake(error)
    assert type(judged(error)) is kind
    with pytest.raises(kind):
        raise_mistake(error)


def test_an_error_for_the_user_is_none() -> None:
    assert not is_mistake(InputError("no such file"))


def test_an_error_without_a_traceback_is_one() -> None:
    assert is_mistake(KeyError("never raised"))


def test_a_mistake_is_raised_with_the_place_and_the_traceback() -> None:
    with pytest.raises(InternalError, match=r"AttributeError: .* \(core/allocation\.py:\d+\)") as e:
        raise_mistake(caught("no lane"))
    assert "next_lane" in e.value.details


def test_an_internal_error_of_another_process_stays_as_it_is() -> None:
    told = InternalError("KeyError: x (stages/work.py:1)")
    with pytest.raises(InternalError) as raised:
        raise_mistake(told)
    assert raised.value is told


def test_what_is_no_mistake_is_left_to_the_caller() -> None:
    raise_mistake(InputError("no such file"))


def test_a_full_disk_is_known_by_the_text_of_a_library_too() -> None:
    def call() -> None:
        with foreign():
            raise RuntimeError(f"cannot write a.o: {os.strerror(errno.ENOSPC)}")

    assert isinstance(judged(raised(call)), DiskFullError)
    with pytest.raises(DiskFullError):
        raise_mistake(raised(call))
