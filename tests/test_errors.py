"""Whose fault an error is, by the function that ran last."""

from __future__ import annotations

import pytest

from tunefleet.core.allocation import LaneState, next_lane
from tunefleet.errors import InputError, InternalError, is_mistake, raise_mistake


class Lane(LaneState):
    """A lane whose code, which is not tunefleet's, fails."""

    @property
    def best_s(self) -> float | None:
        raise KeyError("best")


def caught(lane: object) -> Exception:
    with pytest.raises((AttributeError, KeyError)) as raised:
        next_lane([lane])  # type: ignore[list-item]
    return raised.value


def test_a_misspelt_name_in_our_code_is_a_mistake() -> None:
    assert is_mistake(caught("no lane"))


def test_what_code_that_we_call_raises_is_none() -> None:
    assert not is_mistake(caught(Lane("a", 1, 1.0, history=(1.0,))))


def test_an_error_for_the_user_is_none() -> None:
    assert not is_mistake(InputError("no such file"))


def test_an_error_without_a_traceback_is_none() -> None:
    assert not is_mistake(KeyError("never raised"))


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
